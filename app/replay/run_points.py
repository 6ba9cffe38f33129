"""A run's events as points of experiment trackers: training curves, ratings, knobs and decisions. Pure."""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from flyball.app.config import PARAMETERS, RunSettings, flatten
from flyball.app.controllers.knobs import configured
from flyball.app.controllers.state import state_of
from flyball.app.core import SECOND_US, SECONDS_PER_HOUR, ConfigKey
from flyball.app.events import Event, MatchmakingUpdated, TrainingCompleted
from flyball.app.replay.controller_reports import ControllerReports
from flyball.app.replay.divergences import WORK
from flyball.app.status.summary import event_text, show_time
from flyball.app.telemetry.curves import points
from flyball.app.telemetry.trackers import Summary, TrackedPoint

NOTED = 20
"""Latest decisions about a configuration that its summary names."""

FACTORS = ("exploration_boost", "selfplay_rate", "curriculum_weight")
"""Knobs that are numbers from the beginning, beside the parameters."""


class RunPoints:
    """Folds events into points.

    A training, a rating and the rating of a league's member are at the step of the model that they are about. Decisions
    and knobs are at the step of the configuration's training completed last, or at 0 before the first: ratings of
    other models, which may come late, do not move them. An event whose values are at two steps has two points.

    Args:
        past: the run's settings, which name its user-defined controllers.
        voided: positions of events to leave out.
        start_us: time of the run's first event, microseconds since 1970.
    """

    def __init__(self, past: Sequence[RunSettings], voided: Collection[int], start_us: int) -> None:
        self._controllers, self._start_us = ControllerReports(past, voided), start_us
        self._position, self._time_ms = 0, start_us // 1000
        self._steps: dict[ConfigKey, int] = {}
        self._knobs: dict[ConfigKey, dict[str, float]] = {}
        self._counts: defaultdict[ConfigKey, Counter[str]] = defaultdict(Counter)
        self._decided: defaultdict[ConfigKey, Counter[str]] = defaultdict(Counter)
        self._noted: defaultdict[ConfigKey, deque[str]] = defaultdict(lambda: deque(maxlen=NOTED))

    def take(self, event: Event[Any]) -> Iterator[tuple[ConfigKey, TrackedPoint]]:
        """Fold the next event, and iterate over the points that it adds to each configuration."""
        self._position, self._time_ms = event.sequence, event.recorded_us // 1000
        by = self._controllers.take(event)
        settings = self._controllers.settings
        for config in settings.configs if settings else ():
            key = config.key
            if event.subject not in ("", key):
                continue
            if isinstance(event.data, TrainingCompleted):
                self._steps[key] = event.data.step
            by_step = defaultdict[int, dict[str, float]](dict)
            for tag, value, step in points(event.data) if event.subject else ():
                by_step[step][tag] = value
            decided = self._decision(key, by, event) if by and type(event.data) not in WORK else {}
            if values := {**decided, **self._changed_knobs(key)}:
                by_step[self._steps.get(key, 0)] |= values
            hours = (event.recorded_us - self._start_us) / SECOND_US / SECONDS_PER_HOUR
            for step, at_step in by_step.items():
                yield key, TrackedPoint(event.sequence, self._time_ms, hours, step, at_step)

    def _decision(self, key: ConfigKey, by: str, event: Event[Any]) -> Mapping[str, float]:
        name = event.data.event_name
        self._counts[key][name] += 1
        self._decided[key][f"{by}/{name}"] += 1
        if not isinstance(event.data, MatchmakingUpdated):  # it would crowd out the others
            text = event_text(event, self._controllers.settings).plain
            self._noted[key].append(f"{show_time(event.recordedtime)} {text}")
        return {f"decisions/{name}": self._counts[key][name]}

    def _changed_knobs(self, key: ConfigKey) -> Mapping[str, float]:
        state, settings = state_of(self._controllers.states, key), self._controllers.settings
        assert settings is not None  # its configurations are folded
        knobs = {name: float(getattr(state, name)) for name in FACTORS}
        for parameter in PARAMETERS:
            decided = getattr(state, parameter)
            knobs[parameter] = configured(parameter, settings, key) if decided is None else decided
        before, self._knobs[key] = self._knobs.get(key, {}), knobs
        return {f"knobs/{name}": value for name, value in knobs.items() if before.get(name) != value}

    def settings(self, key: ConfigKey) -> Mapping[str, Any]:
        """Return the latest settings of a configuration, and the run's own, by their dotted names."""
        settings = self._controllers.settings
        assert settings is not None
        tree = settings.model_dump(mode="json", exclude={"configs"})
        return flatten(tree) | flatten(settings.config(key).model_dump(mode="json", exclude={"key"}))

    def summary(self, key: ConfigKey) -> Summary:
        """Return what was decided about a configuration up to the last event."""
        notes = "\n".join(f"- {line}" for line in reversed(self._noted[key]))
        return Summary(self._position, self._time_ms, dict(sorted(self._decided[key].items())), notes)
