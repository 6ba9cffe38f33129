"""GauntletFeedbackController: a gauntlet's results set the work and the noise of coming trainings."""

from collections.abc import Mapping
from typing import ClassVar

from app.controllers.controller import Controller
from app.controllers.knobs import bounded
from app.controllers.state import States
from app.controllers.trend import SECONDS_PER_HOUR
from app.core import RANDOM, ConfigKey
from app.events import (
    Emission,
    EvaluationCompleted,
    Event,
    HyperparameterUpdated,
    Parameter,
    Payload,
    Row,
    Step,
    handles,
)

US = 1_000_000


class GauntletRow(Row, frozen=True):
    """The parameters in force, and when they were last changed."""

    epochs: float
    games_per_iteration: float
    quality_threshold: float
    base_temperature: float
    changed_us: int


class GauntletFeedbackController(Controller):
    """Owns epochs, games per iteration, quality threshold and base temperature."""

    name: ClassVar[str] = "GauntletFeedbackController"
    row: ClassVar[type[GauntletRow]] = GauntletRow
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({HyperparameterUpdated})
    parameters: ClassVar[frozenset[Parameter]] = frozenset(
        {"epochs", "games_per_iteration", "quality_threshold", "base_temperature"}
    )

    @handles(EvaluationCompleted)
    def evaluated(
        self, rows: Mapping[str, GauntletRow], event: Event[EvaluationCompleted], states: States
    ) -> Step[GauntletRow]:
        """Set the parameters that a gauntlet's scores call for, once per cooldown."""
        data, key = event.data, event.subject
        if data.purpose != "rating":
            return Step()
        row = rows.get(key) or self._initial(key)
        cooldown = self.settings.feedback.gauntlet.cooldown_hours * SECONDS_PER_HOUR * US
        if row.changed_us and event.recorded_us - row.changed_us < cooldown:
            return Step()
        changes = self._wanted(key, row, data)
        values = {name: value for name, (value, _) in changes.items() if value != getattr(row, name)}
        if not values:
            return Step({key: row})
        emissions = tuple(
            Emission(
                HyperparameterUpdated(parameter=name, value=value, previous=getattr(row, name), reason=changes[name][1])
            )
            for name, value in values.items()
        )
        changed = row.replace(**{str(name): value for name, value in values.items()})
        return Step({key: changed.replace(changed_us=event.recorded_us)}, emissions)

    def _initial(self, key: str) -> GauntletRow:
        config = self.settings.config(ConfigKey(key))
        return GauntletRow(
            epochs=float(config.ppo.epochs),
            games_per_iteration=float(config.selfplay.games_per_request),
            quality_threshold=bounded("quality_threshold", self.settings.min_quality, self.settings, key),
            base_temperature=config.selfplay.temperature,
            changed_us=0,
        )

    def _wanted(self, key: str, row: GauntletRow, data: EvaluationCompleted) -> dict[Parameter, tuple[float, str]]:
        """Return the parameters as the gauntlet would have them, within their clamps, and why."""
        limits = self.settings.feedback.gauntlet
        scores = {match.opponent: match.score.mean for match in data.results}
        wanted: dict[Parameter, tuple[float, str]] = {}
        if (heuristic := scores.get("heuristic", 0.0)) > limits.strong_win_rate:
            why = f"{heuristic:.1%} against the heuristic, above {limits.strong_win_rate:.0%}"
            cooler = max(limits.min_temperature, row.base_temperature * limits.temperature_factor)
            stricter = row.quality_threshold + limits.quality_threshold_step
            wanted["base_temperature"] = min(row.base_temperature, cooler), why
            wanted["quality_threshold"] = bounded("quality_threshold", stricter, self.settings, key), why
        random = next((match.score for match in data.results if match.opponent == RANDOM), None)
        if random is not None and random.upper < limits.weak_win_rate:  # work never falls again, and games may be few
            why = f"{random.mean:.1%} of {random.n} games against random, certainly below {limits.weak_win_rate:.0%}"
            most = self.settings.config(ConfigKey(key)).selfplay.games_per_request * limits.max_games_factor
            epochs = min(limits.max_epochs, int(row.epochs * limits.work_factor))
            games = min(most, int(row.games_per_iteration * limits.work_factor))
            wanted["epochs"] = max(row.epochs, float(epochs)), why
            wanted["games_per_iteration"] = max(row.games_per_iteration, float(games)), why
        return wanted
