"""The model of a run, folded once from its events. All pages show the same model."""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

from flyball.app.config import RunSettings
from flyball.app.controllers.state import state_of
from flyball.app.core import FlyballError
from flyball.app.dashboard.curves import CURVES_READ, ConfigCurves
from flyball.app.dashboard.index import EventIndex
from flyball.app.dashboard.marks import MARKS_READ, mark_text
from flyball.app.dashboard.shares import WorkerShares
from flyball.app.events import CurriculumRebalanced, Event, ModelPromoted, PromotionRejected
from flyball.app.replay.run_report import RunReports
from flyball.app.status.league import LEAGUES_READ, Leagues
from flyball.app.status.state import STATE_READS, StateFields
from flyball.app.status.status import READS, Board

NOTABLE = 12
"""Events that the overview shows."""

JUDGED = frozenset({ModelPromoted, PromotionRejected})
"""Types that the overview shows beside the notable ones."""


class RunModel:
    """State of a run, folded from its events.

    Attributes:
        position: of the last event that was read.
        board: configurations and daemons, as ``flyball status`` shows them.
        states: the FeedbackState of each configuration, as ``flyball state`` shows it.
        leagues: as ``flyball league`` shows them.
        reports: what was done in the run, and by which controller.
        not_loaded: why user-defined controllers are missing there; empty if none is.
        curves: of each configuration, with marks and bands.
        shares: of the worker time, over time.
        index: finds events.
        latest: position of the last event about each configuration; of events about the run under the empty string.
        notable: the latest notable events, promotions and rejections.
    """

    def __init__(self, past: Sequence[RunSettings] = (), voided: frozenset[int] = frozenset()) -> None:
        self.position, self.not_loaded = 0, ""
        self._own = frozenset[tuple[str, str]]().union(*map(_own_controllers, past))
        try:
            self.reports = RunReports(past, voided)
        except FlyballError as error:  # a user-defined controller cannot be imported here
            self.reports, self.not_loaded = RunReports(voided=voided), str(error)
        self.board, self.states, self.leagues = Board(), StateFields(voided), Leagues()
        self.curves: defaultdict[str, ConfigCurves] = defaultdict(ConfigCurves)
        self.shares, self.index = WorkerShares(), EventIndex()
        self.latest: dict[str, int] = {}
        self.notable: deque[Event[Any]] = deque(maxlen=NOTABLE)

    @property
    def is_outdated(self) -> bool:
        """Return whether the settings name a user-defined controller that the reports began without."""
        return self.board.settings is not None and not _own_controllers(self.board.settings) <= self._own

    def take(self, event: Event[Any], *, voided: bool = False) -> None:
        """Fold the next event; only index a voided one."""
        kind = type(event.data)
        self.position = event.sequence
        self.latest[event.subject] = event.sequence
        self.index.add(event)
        if voided:
            return
        if kind in READS:
            self.board.feed((event,))
        if kind in STATE_READS:
            self.states.take(event)
        self.reports.take(event)
        if kind in LEAGUES_READ:
            self.leagues.take(event)
        if kind in CURVES_READ:
            self.curves[event.subject].take(event)
        self._draw(event)
        if event.data.notable or kind in JUDGED:
            self.notable.appendleft(event)

    def _draw(self, event: Event[Any]) -> None:
        """Note marks and shares of worker time, which show the states after the event."""
        if type(event.data) not in MARKS_READ and event.recorded_us < self.shares.due_us:
            return  # nearly always
        states = self.reports.controllers.states
        self.shares.take(event.recorded_us, states)
        if type(event.data) in MARKS_READ:
            about = event.data.weights if isinstance(event.data, CurriculumRebalanced) else (event.subject,)
            text = mark_text(event, self.reports.controllers.settings)
            for key in about:
                self.curves[key].marks.take(event, state_of(states, key), text)


def _own_controllers(settings: RunSettings) -> frozenset[tuple[str, str]]:
    """Return the user-defined controllers that settings name, with their classes."""
    return frozenset((name, table.use) for name, table in settings.controllers.items())
