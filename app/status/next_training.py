"""Reasons why each configuration's next training waits: rows, a verdict, a worker, or the end of a pause.

The rows, pauses and failures are those of ``TrainingTrigger``, whose own handlers fold them here, so that its rule is
not written a second time.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from math import ceil
from typing import Any

from msgspec import field

from flyball.app.config import RunSettings
from flyball.app.controllers import FeedbackFold, FeedbackState, TrainingTrigger, state_of
from flyball.app.controllers.needs import is_fresh, is_usable, rows_needed
from flyball.app.controllers.trigger import TrainingRow
from flyball.app.core import SECOND_US, SECONDS_PER_HOUR
from flyball.app.events import (
    ClockTick,
    EloUpdated,
    EvaluationCompleted,
    Event,
    LossAnomalyDetected,
    MatchmakingUpdated,
    ParityChecked,
    Payload,
    PlateauDetected,
    QualityScoreUpdated,
    SelfplayComplete,
    TrainingRequested,
)
from flyball.app.events.rows import Row
from flyball.app.status.summary import short, show_age

LAST_SHARDS = 12
"""Latest shards of usable rows, whose rate the estimate of time rests on."""

LEAST_SHARDS = 3
"""Shards below which no time is estimated."""

SILENT_GAPS = 3.0
"""Mean times between shards after which nothing is estimated, because rows do not come any more."""

LONGEST_ESTIMATE_SECONDS = 24 * SECONDS_PER_HOUR
"""Estimate beyond which nothing is said: the rate will change sooner."""

STATES_READ: frozenset[type[Payload]] = FeedbackFold.reads - {
    ClockTick,
    EloUpdated,
    EvaluationCompleted,
    LossAnomalyDetected,
    MatchmakingUpdated,
    ParityChecked,
    PlateauDetected,
    SelfplayComplete,
}
"""Types by which the FeedbackState changes that the trigger looks at: knobs, pauses, blocks and the lineage."""

TRAININGS_READ = (STATES_READ | TrainingTrigger.reads) - {ClockTick}
"""Payload types that ``Trainings`` is folded from. Trainings that begin at a tick are recorded by themselves."""


class Arrival(Row, frozen=True):
    """Usable rows of a shard, and when it was scored."""

    at_us: int
    rows: int


class Trainings(Row, frozen=False):  # type: ignore[misc]
    """All configurations' rows and pauses on the way to their next trainings, by the configuration's key.

    ``states`` have only the fields that the trigger looks at.
    """

    states: dict[str, FeedbackState] = field(default_factory=dict)
    rows: dict[str, TrainingRow] = field(default_factory=dict)
    arrivals: dict[str, tuple[Arrival, ...]] = field(default_factory=dict)

    def feed(self, event: Event[Any], settings: RunSettings) -> None:
        """Fold an event of ``TRAININGS_READ``, under the settings in force; skip one that cannot be folded."""
        if event.subject and event.subject not in settings:
            return
        with suppress(Exception):  # as in every fold: a status must not fail because of one event
            if type(event.data) in STATES_READ:
                _apply(self.states, FeedbackFold(settings).step(self.states, event).rows)
            if type(event.data) in TrainingTrigger.reads:
                self._feed_trigger(event, settings)

    def _feed_trigger(self, event: Event[Any], settings: RunSettings) -> None:
        key, data = event.subject, event.data
        _apply(self.rows, TrainingTrigger(settings).step(self.rows, event, self.states).rows)
        if isinstance(data, TrainingRequested) and key in self.rows:  # one that began at a tick, or an operator's
            self.rows[key] = self.rows[key].replace(requested_us=event.recorded_us)
        if isinstance(data, QualityScoreUpdated):
            state = state_of(self.states, key)
            if is_usable(state, settings, data.score) and is_fresh(state, settings, data.shard.model):
                arrived = Arrival(at_us=event.recorded_us, rows=data.shard.rows)
                self.arrivals[key] = (*self.arrivals.get(key, ()), arrived)[-LAST_SHARDS:]

    def waits_for(self, key: str, settings: RunSettings, ready: Collection[str], now_us: int) -> str | None:
        """Return what a configuration's next training waits for, in words.

        Args:
            key: the configuration.
            settings: the run's.
            ready: names of the daemons that can take jobs; empty while the run starts or ends.
            now_us: the time, microseconds since 1970 UTC.

        Returns:
            ``None`` where nothing is known yet, and where a user-defined controller decides when trainings start.
        """
        row, state = self.rows.get(key), state_of(self.states, key)
        if row is None or "training_start" in settings.taken_over:
            return None
        return (
            _under_way(state, row, ready, now_us)
            or _forbidden(state, settings)
            or _failed(row, settings, now_us)
            or self._needed(state, row, settings, ready, now_us)
        )

    def _needed(
        self, state: FeedbackState, row: TrainingRow, settings: RunSettings, ready: Collection[str], now_us: int
    ) -> str:
        """Return the rows that are there and needed, or the pause between two trainings."""
        have, needed = sum(shard.rows for shard in row.shards), ceil(rows_needed(state, settings) or 0)
        if have >= needed:
            cooldown_us = settings.feedback.trigger.cooldown_seconds * SECOND_US
            left_us = row.requested_us + cooldown_us - now_us
            rest = f", pause between trainings for {show_age(left_us / SECOND_US)} more" if left_us > SECOND_US else ""
            return f"rows {have:,} of {needed:,}{rest}"
        seconds = self._seconds_until(state.config_key, needed - have, now_us)
        estimate = "" if seconds is None else f", about {show_age(seconds)}"
        if ready and "selfplay_worker" not in ready:
            estimate = ", but no self-play worker is ready"
        plateaued = "; plateaued, so it plays at the lowest weight" if state.plateaued else ""
        return f"rows {have:,} of {needed:,}{estimate}{plateaued}"

    def _seconds_until(self, key: str, rows: int, now_us: int) -> float | None:
        """Return the seconds until so many rows have come, at the rate of the last shards.

        ``None``: the rate is unknown, rows do not come any more, or it would take too long for an estimate.
        """
        arrivals = self.arrivals.get(key, ())
        if len(arrivals) < LEAST_SHARDS:
            return None
        lasted_us, silent_us = arrivals[-1].at_us - arrivals[0].at_us, now_us - arrivals[-1].at_us
        if lasted_us <= 0 or silent_us > max(SECOND_US, SILENT_GAPS * lasted_us / (len(arrivals) - 1)):
            return None
        rate = sum(arrival.rows for arrival in arrivals[1:]) / (lasted_us / SECOND_US)
        seconds = max(1.0, rows / rate)
        return seconds if seconds <= LONGEST_ESTIMATE_SECONDS else None


def _apply(rows: dict[str, Any], changed: Mapping[str, Any]) -> None:
    """Change rows by those of a step, where ``None`` deletes."""
    for key, row in changed.items():
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row


def _under_way(state: FeedbackState, row: TrainingRow, ready: Collection[str], now_us: int) -> str | None:
    """Return the work of the loop that must end first, and whether a daemon is missing for it."""
    lineage = state.lineage
    if lineage.training is not None:
        noun, needed = "training" if lineage.distributed else "making of the initial model", "training"
        what = f"{noun} under way for {show_age(max(0, now_us - row.requested_us) / SECOND_US)}"
    elif lineage.candidate is not None:
        what, needed = f"gate of {short(lineage.candidate)} under way", "evaluation"
        if lineage.current is None:
            what = f"evaluation of the initial model {short(lineage.candidate)} under way"
    elif lineage.busy:
        what, needed = f"distribution of {short(lineage.current_model)} under way", "distribution"
    elif lineage.distributed is None:
        what, needed = "the initial model is to be made", "training"
    else:
        return None
    return what if needed in ready or not ready else f"{what}, but no {needed} daemon is ready"


def _forbidden(state: FeedbackState, settings: RunSettings) -> str | None:
    """Return the block or the pause of training."""
    if state.training_block is not None:
        return f"blocked because {state.training_block}"
    if state.training_intensity != "paused":
        return None
    quality = "" if state.quality_score is None else f" {state.quality_score:.2f}"
    return f"paused because data quality{quality} is below {settings.feedback.intensity.reduced:g}"


def _failed(row: TrainingRow, settings: RunSettings, now_us: int) -> str | None:
    """Return the pause after consecutive failures."""
    left_us = row.failed_us + settings.feedback.trigger.pause_after(row.failures) * SECOND_US - now_us
    if left_us <= 0:
        return None
    return f"pause after {row.failures} consecutive failures, {show_age(left_us / SECOND_US)} more"
