"""GauntletFeedbackController: tunes training and self-play parameters by a gauntlet's results.

A model that is weak against the random bot gets more games and epochs for its trainings; one that is strong against the
heuristic gets less noise and a higher quality threshold. Each change is taken back step by step once its reason is
certainly gone. Scores between the two leave the parameters alone, so that noise does not move them back and forth. No
parameter is taken back beyond its configured value.

More games and epochs are taken back, too, if the score did not change with them: in a game of luck even the best player
beats the random bot in few more games than half, and work that brings nothing is missing elsewhere.

Models of few trainings are not judged. All of them are weak, and more work for each training delays the next one. A
model that an operator or a rollback made current is not judged either, because no training brought its strength.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from flyball.app.config import Parameter
from flyball.app.controllers.controller import Controller, Watched, setting
from flyball.app.controllers.cooldown import Wait, cooldown_wait, is_cooling
from flyball.app.controllers.knobs import bounded, configured, is_turned
from flyball.app.controllers.state import FeedbackState, States, state_of
from flyball.app.core import HEURISTIC, RANDOM
from flyball.app.events import (
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
    """The changes of one configuration's parameters.

    Attributes:
        changed_us: when parameters were last changed, microseconds since 1970 UTC; 0: never.
        ratings: number of judged ratings since then.
        random, heuristic: the judged rating's scores against these bots; ``None`` if it was not played.
        work_steps: number of raises of epochs and games that stand.
        tried: the score against random at the latest raise; ``None``: none, or the model was strong enough since.
        strict_steps: number of changes of temperature and quality threshold that stand.
    """

    changed_us: int = 0
    ratings: int = 0
    work_steps: int = 0
    strict_steps: int = 0
    tried: float | None = None
    random: float | None = None
    heuristic: float | None = None


Values = dict[Parameter, float]
Rows = Mapping[str, GauntletRow]


class GauntletFeedbackController(Controller):
    """Owns epochs, games per iteration, quality threshold and base temperature."""

    name: ClassVar[str] = "GauntletFeedbackController"
    row: ClassVar[type[GauntletRow]] = GauntletRow
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({HyperparameterUpdated})
    parameters: ClassVar[frozenset[Parameter]] = frozenset(
        {"epochs", "games_per_iteration", "quality_threshold", "base_temperature"}
    )

    @handles(EvaluationCompleted)
    def evaluated(  # noqa: C901 - a rule from top to bottom
        self, rows: Rows, event: Event[EvaluationCompleted], states: States
    ) -> Step[GauntletRow]:
        """Change the parameters that a trained model's scores call for. Parameters change at most once per cooldown."""
        data, key, limits = event.data, event.subject, self.settings.feedback.gauntlet
        row, state = rows.get(key, GauntletRow()), state_of(states, key)
        if data.purpose != "rating" or data.step < limits.least_trainings or not state.lineage.is_trial(data.model):
            return Step()
        scores, emissions = {match.opponent: match.score for match in data.results}, list[Emission]()
        means = {name: scores[name].mean if name in scores else None for name in (RANDOM, HEURISTIC)}
        row = row.replace(ratings=row.ratings + 1, random=means[RANDOM], heuristic=means[HEURISTIC])
        if is_cooling(event.recorded_us, row.changed_us, row.ratings, limits):
            return Step({key: row})

        def turn(values: Values, why: str) -> bool:
            """Emit the parameters that change. Returns whether there are any."""
            before = {name: state.parameter(name, self.settings) for name in values}
            changed = [name for name in values if values[name] != before[name] and is_turned(name, self.settings, key)]
            emissions.extend(
                Emission(HyperparameterUpdated(parameter=name, value=values[name], previous=before[name], reason=why))
                for name in changed
            )
            return bool(changed)

        if (score := scores.get(HEURISTIC)) is not None:
            rule = setting("feedback.gauntlet.strong_win_rate", limits.strong_win_rate)
            why = f"{score.mean:.1%} in {score.n} games against the heuristic, {{}} the threshold {rule}"
            if score.mean > limits.strong_win_rate:
                row = row.replace(strict_steps=row.strict_steps + turn(self._stricter(state), why.format("above")))
            elif row.strict_steps and score.upper < limits.strong_win_rate:
                turn(self._laxer(state), why.format("certainly below"))
                row = row.replace(strict_steps=row.strict_steps - 1)
        if (score := scores.get(RANDOM)) is not None:
            rule = setting("feedback.gauntlet.weak_win_rate", limits.weak_win_rate)
            why = f"{score.mean:.1%} in {score.n} games against random, certainly {{}} the threshold {rule}"
            in_vain = row.tried is not None and score.lower <= row.tried <= score.upper
            if score.upper < limits.weak_win_rate and not in_vain:
                if turn(self._more_work(state), why.format("below")):
                    row = row.replace(work_steps=row.work_steps + 1, tried=score.mean)
            elif row.work_steps and score.upper < limits.weak_win_rate:
                turn(self._less_work(state), f"{why.format('below')}; more did not help, it had {row.tried:.1%} before")
                row = row.replace(work_steps=row.work_steps - 1)
            elif row.work_steps and score.lower > limits.weak_win_rate:
                turn(self._less_work(state), why.format("above"))
                row = row.replace(work_steps=row.work_steps - 1, tried=None)
        if emissions:
            row = row.replace(changed_us=event.recorded_us, ratings=0)
        return Step({key: row}, tuple(emissions))

    def watches(self, rows: Rows, states: States, key: str) -> Sequence[Watched]:
        """Return the scores against the bots. See ``Controller.watches``."""
        row, state, limits = rows.get(key, GauntletRow()), state_of(states, key), self.settings.feedback.gauntlet
        trained, wait = state.lineage.current, cooldown_wait(state, row.changed_us, row.ratings, limits)
        if trained is None or trained.step < limits.least_trainings:
            wait = Wait(f"{trained.step if trained else 0} of {limits.least_trainings} trainings")
        cooler = (
            f"base temperature x {limits.temperature_factor:g}, quality threshold + {limits.quality_threshold_step:g}"
        )
        work = f"epochs and games per iteration x {limits.work_factor:g}"
        return (
            Watched(
                what="score against the heuristic",
                value=row.heuristic,
                threshold=limits.strong_win_rate,
                acts="above",
                effect=cooler,
                setting="feedback.gauntlet.strong_win_rate",
                unit="%",
                **wait._asdict(),
            ),
            Watched(
                what="score against the random bot",
                value=row.random,
                threshold=limits.weak_win_rate,
                acts="below",
                effect=work,
                setting="feedback.gauntlet.weak_win_rate",
                unit="%",
                **wait._asdict(),
            ),
        )

    def _stricter(self, state: FeedbackState) -> Values:
        """Return a lower temperature and a higher quality threshold."""
        limits, temperature = self.settings.feedback.gauntlet, state.parameter("base_temperature", self.settings)
        cooler = max(limits.min_temperature, temperature * limits.temperature_factor)
        threshold = state.parameter("quality_threshold", self.settings) + limits.quality_threshold_step
        stricter = bounded("quality_threshold", threshold, self.settings, state.config_key)
        return {"base_temperature": min(temperature, cooler), "quality_threshold": stricter}

    def _laxer(self, state: FeedbackState) -> Values:
        """Return temperature and quality threshold one step back towards their configured values."""
        limits, temperature = self.settings.feedback.gauntlet, state.parameter("base_temperature", self.settings)
        warmer = min(self._configured(state, "base_temperature"), temperature / limits.temperature_factor)
        threshold = state.parameter("quality_threshold", self.settings)
        laxer = max(self._configured(state, "quality_threshold"), threshold - limits.quality_threshold_step)
        return {"base_temperature": max(temperature, warmer), "quality_threshold": min(threshold, laxer)}

    def _more_work(self, state: FeedbackState) -> Values:
        """Return more epochs and games per iteration."""
        limits, epochs = self.settings.feedback.gauntlet, state.parameter("epochs", self.settings)
        more_epochs = float(min(limits.max_epochs, int(epochs * limits.work_factor)))
        games = state.parameter("games_per_iteration", self.settings)
        most = self._configured(state, "games_per_iteration") * limits.max_games_factor
        more_games = float(min(most, int(games * limits.work_factor)))
        return {"epochs": max(epochs, more_epochs), "games_per_iteration": max(games, more_games)}

    def _less_work(self, state: FeedbackState) -> Values:
        """Return epochs and games per iteration one step back towards their configured values, and not beyond."""

        def less(name: Parameter) -> float:
            before = state.parameter(name, self.settings)
            fewer = float(int(before / self.settings.feedback.gauntlet.work_factor))
            return min(before, max(self._configured(state, name), fewer))

        return {"epochs": less("epochs"), "games_per_iteration": less("games_per_iteration")}

    def _configured(self, state: FeedbackState, name: Parameter) -> float:
        return configured(name, self.settings, state.config_key)
