"""Marks and bands on a configuration's Elo chart: what was decided about it, and states that lasted.

The states are those of FeedbackState, so that a band begins and ends by the rules of the controllers.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from flyball.app.config import RunSettings
from flyball.app.controllers.state import FeedbackState
from flyball.app.core import SECOND_US, SECONDS_PER_HOUR
from flyball.app.events import (
    AdaptiveParamsChanged,
    CurriculumRebalanced,
    Event,
    ExplorationBoost,
    HyperparameterUpdated,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    PlateauDetected,
    QualityPenaltyApplied,
    TrainingBlockedByQuality,
    TrainingIntensityChanged,
    TrainingUnblocked,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.status.summary import show_emitter, summarise

MOST = 200
"""Latest marks, and latest bands, of each kind that are kept."""

LEAST_WEIGHT_CHANGE = 0.05
"""Change of the curriculum's weight since its last mark that is marked: each rebalancing moves all weights a little."""

MarkKind = Literal["promotion", "rollback", "knob", "weight"]
BandKind = Literal["boost", "stall", "plateau", "block"]

NAMES: dict[MarkKind | BandKind, str] = {
    "promotion": "promotion",
    "rollback": "rollback",
    "knob": "change of a knob",
    "weight": "change of the weight",
    "boost": "boost of exploration",
    "stall": "stall",
    "plateau": "plateau",
    "block": "block of training",
}
"""Names in legends and tables."""

DECIDED: dict[type[Payload], MarkKind] = {
    ModelPromoted: "promotion",
    ModelRolledBack: "rollback",
    HyperparameterUpdated: "knob",
    AdaptiveParamsChanged: "knob",
    TrainingIntensityChanged: "knob",
    QualityPenaltyApplied: "knob",
}
MARKS_READ: frozenset[type[Payload]] = frozenset(
    {
        *DECIDED,
        *(CurriculumRebalanced, ExplorationBoost, PlateauDetected, TrainingBlockedByQuality, TrainingUnblocked),
    }
)
"""Payload types that make marks and bands."""


class Mark(NamedTuple):
    """A decision. ``time`` is in seconds since 1970, ``text`` says what was decided, why, and who decided it."""

    time: float
    what: MarkKind
    text: str
    id: str


@dataclass(slots=True)
class Band:
    """A state that lasted.

    Attributes:
        begin, end: seconds since 1970; ``end`` is ``None`` while it lasts.
        what: the state.
        text: why it began, and who decided that.
        ended: why it ended, and who decided that; empty while it lasts.
        id: of the event that began it.
    """

    begin: float
    end: float | None
    what: BandKind
    text: str
    id: str
    ended: str = ""


class MarkRow(NamedTuple):
    """A mark or a band as a row of a table; ``end`` is ``None`` for a mark, and for a band that lasts."""

    begin: datetime
    end: datetime | None
    name: str
    text: str
    id: str
    lasts: bool = False


def mark_text(event: Event[Any], settings: RunSettings | None) -> str:
    """Return what an event decided or found, why, and who emitted it. Settings name user-defined controllers."""
    data = event.data
    what = data.reason if isinstance(data, CurriculumRebalanced) else summarise(data)
    knob = "training_intensity " if isinstance(data, TrainingIntensityChanged) else ""  # other texts name what they set
    return f"{knob}{what}{show_emitter(event, settings)}"


class ConfigMarks:
    """Marks and bands of one configuration. ``last`` is the id of the last event among them."""

    def __init__(self) -> None:
        self._marks: defaultdict[MarkKind, deque[Mark]] = defaultdict(lambda: deque(maxlen=MOST))
        self._bands: defaultdict[BandKind, deque[Band]] = defaultdict(lambda: deque(maxlen=MOST))
        self._weight, self._boost, self.last = 1.0, 1.0, ""

    def take(self, event: Event[Any], state: FeedbackState, text: str) -> None:
        """Add what an event of ``MARKS_READ`` shows.

        Args:
            event: about the configuration, or about all.
            state: of the configuration after the event.
            text: of the event, see ``mark_text``.
        """
        data, weight = event.data, state.curriculum_weight
        self.last = event.id
        if type(data) in DECIDED:
            self._mark(DECIDED[type(data)], event, text)
        if abs(weight - self._weight) >= LEAST_WEIGHT_CHANGE:
            self._mark("weight", event, f"weight {self._weight:.2f} → {weight:.2f}: {text}")
            self._weight = weight
        if state.exploration_boost != self._boost:  # otherwise a boost only lasts longer
            self._mark("knob", event, text)
            self._boost = state.exploration_boost
        self._set("boost", event, text, holds=state.exploration_boost > 1)
        self._set("stall", event, text, holds=state.stalls > 0 and not state.plateaued)
        self._set("plateau", event, text, holds=state.plateaued)
        self._set("block", event, text, holds=state.training_block is not None)

    def _mark(self, what: MarkKind, event: Event[Any], text: str) -> None:
        self._marks[what].append(Mark(event.recorded_us / SECOND_US, what, text, event.id))

    def _set(self, what: BandKind, event: Event[Any], text: str, *, holds: bool) -> None:
        """Begin or end a band, unless it holds already, or does not. A stall began with the window that shows it."""
        bands, time = self._bands[what], event.recorded_us / SECOND_US
        lasts = bool(bands) and bands[-1].end is None
        if holds and not lasts:
            hours = event.data.window_hours if isinstance(event.data, PlateauDetected) else 0.0
            bands.append(Band(time - hours * SECONDS_PER_HOUR, None, what, text, event.id))
        elif lasts and not holds:
            bands[-1].end, bands[-1].ended = time, text

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """Return all marks and bands, by their kinds and in order of time."""
        return {
            "marks": [mark._asdict() for marks in self._marks.values() for mark in marks],
            "bands": [asdict(band) for bands in self._bands.values() for band in bands],
        }

    def rows(self, most: int) -> list[MarkRow]:
        """Return the latest marks and bands, the latest first."""
        rows = sorted(self._rows(), key=lambda row: row.begin, reverse=True)
        return rows[:most]

    def _rows(self) -> Iterator[MarkRow]:
        for marks in self._marks.values():
            for mark in marks:
                yield MarkRow(_moment(mark.time), None, NAMES[mark.what], mark.text, mark.id)
        for bands in self._bands.values():
            for band in bands:
                text = f"{band.text}. It ended: {band.ended}" if band.ended else band.text
                end = None if band.end is None else _moment(band.end)
                yield MarkRow(_moment(band.begin), end, NAMES[band.what], text, band.id, lasts=end is None)


def _moment(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)
