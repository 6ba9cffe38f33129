"""GauntletFeedbackController: tunes training and self-play parameters by a gauntlet's results."""

from collections.abc import Mapping
from typing import ClassVar

from app.config import Parameter
from app.controllers.controller import Controller
from app.controllers.knobs import bounded, is_turned
from app.controllers.state import FeedbackState, States, state_of
from app.controllers.trend import SECONDS_PER_HOUR, US
from app.core import RANDOM
from app.events import (
    Emission,
    EvaluationCompleted,
    Event,
    HyperparameterUpdated,
    Payload,
    Row,
    Step,
    handles,
)


class GauntletRow(Row, frozen=True):
    """When the parameters were last changed."""

    changed_us: int = 0


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
        """Set the parameters that a gauntlet's scores call for, at most once per cooldown."""
        data, key = event.data, event.subject
        if data.purpose != "rating":
            return Step()
        changed_us = rows.get(key, GauntletRow()).changed_us
        cooldown = self.settings.feedback.gauntlet.cooldown_hours * SECONDS_PER_HOUR * US
        if changed_us and event.recorded_us - changed_us < cooldown:
            return Step()
        emissions = []
        for name, (value, why) in self._wanted(state_of(states, key), data).items():
            before = state_of(states, key).parameter(name, self.settings)
            if value != before and is_turned(name, self.settings, key):
                emissions.append(
                    Emission(HyperparameterUpdated(parameter=name, value=value, previous=before, reason=why))
                )
        return Step({key: GauntletRow(changed_us=event.recorded_us)}, tuple(emissions)) if emissions else Step()

    def _wanted(self, state: FeedbackState, data: EvaluationCompleted) -> dict[Parameter, tuple[float, str]]:
        """Return the parameters that the gauntlet's scores call for, within their clamps, with reasons."""
        limits, config = self.settings.feedback.gauntlet, self.settings.config(state.config_key)
        scores = {match.opponent: match.score.mean for match in data.results}
        wanted: dict[Parameter, tuple[float, str]] = {}
        if (heuristic := scores.get("heuristic", 0.0)) > limits.strong_win_rate:
            why = f"{heuristic:.1%} against the heuristic, above {limits.strong_win_rate:.0%}"
            temperature = state.parameter("base_temperature", self.settings)
            cooler = max(limits.min_temperature, temperature * limits.temperature_factor)
            stricter = state.parameter("quality_threshold", self.settings) + limits.quality_threshold_step
            wanted["base_temperature"] = min(temperature, cooler), why
            wanted["quality_threshold"] = bounded("quality_threshold", stricter, self.settings, state.config_key), why
        random = next((match.score for match in data.results if match.opponent == RANDOM), None)
        if random is not None and random.upper < limits.weak_win_rate:  # upper bound, because a raise is never undone
            why = f"{random.mean:.1%} of {random.n} games against random, certainly below {limits.weak_win_rate:.0%}"
            before = state.parameter("epochs", self.settings)
            epochs = min(limits.max_epochs, int(before * limits.work_factor))
            wanted["epochs"] = max(before, float(epochs)), why
            before = state.parameter("games_per_iteration", self.settings)
            most = config.selfplay.games_per_request * limits.max_games_factor
            games = min(most, int(before * limits.work_factor))
            wanted["games_per_iteration"] = max(before, float(games)), why
        return wanted
