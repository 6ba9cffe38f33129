"""The files of a run: its journal and what is folded from it."""

import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from flyball.app.api.arguments import Number, check_arguments
from flyball.app.api.runs import RunLocation, check_config, check_played, complaint, locate_run, open_journal, open_run
from flyball.app.api.selection import Selection, before_last, before_since, select
from flyball.app.controllers import FeedbackState
from flyball.app.core import BadUsage, ConfigKey
from flyball.app.events import Event, Payload
from flyball.app.events.frames import DeadLetter
from flyball.app.status.state import feedback_state

if TYPE_CHECKING:
    from flyball.app.replay.controller_reports import ControllerReport
    from flyball.app.replay.run_comparison import RunComparison
    from flyball.app.replay.run_report import RunReport
    from flyball.app.status.league import LeagueView

P = TypeVar("P", bound=Payload)


class RunReader:
    """The files of a run, readable whether or not it is running. Raises ``NotAJournal`` or ``ForeignSettings``."""

    def __init__(self, location: RunLocation) -> None:
        self._location = location
        with open_run(location):  # refuses a folder without a run
            pass

    @overload
    def journal(
        self,
        kind: type[P],
        /,
        *kinds: type[P],
        config_key: str | None = ...,
        since: str | int | None = ...,
        last: int | None = ...,
    ) -> Generator[Event[P]]: ...
    @overload
    def journal(
        self,
        *patterns: str | type[Payload],
        config_key: str | None = ...,
        since: str | int | None = ...,
        last: int | None = ...,
    ) -> Generator[Event[Any]]: ...

    def journal(
        self,
        *patterns: str | type[Payload],
        config_key: str | None = None,
        since: str | int | None = None,
        last: int | None = None,
    ) -> Generator[Event[Any]]:
        """Iterate over the events that are recorded now, in order.

        Args:
            patterns: names, such as "MODEL_PROMOTED" or "TRAINING_*", or classes, such as ``events.ModelPromoted``,
                whose payloads type checkers then know; all events by default.
            config_key: only events about this configuration.
            since: a position, a time (ISO 8601) or an age such as "10m"; the beginning by default.
            last: only the latest events, at most this many.

        Raises ``UnknownEventType``, ``UnknownConfig`` or ``BadUsage``.
        """
        check_arguments(Number | None, last=last)
        selection = select(patterns, config_key)
        with open_journal(self._location) as reader:
            check_config(reader, config_key)
            end = reader.head
            start = 0 if since is None else before_since(reader, str(since))
            if last is not None:
                start = max(start, before_last(reader, last, selection, end))
        return self._events(selection, start, end)

    def _events(self, selection: Selection, start: int, end: int) -> Generator[Event[Any]]:
        with open_journal(self._location) as reader:
            for event in selection.read(reader, start, on_dead=complaint(warn)):
                if event.sequence > end:
                    return
                yield event

    def head(self) -> int:
        """Return the position of the last event."""
        with open_journal(self._location) as reader:
            return reader.head

    def state(self, config_key: str) -> FeedbackState:
        """Return a configuration's feedback state: signals, knobs and lineage. Raises ``UnknownConfig``."""
        with open_run(self._location) as reader:
            check_config(reader, config_key)
            check_played(reader, self._location, config_key)
            return feedback_state(reader, ConfigKey(config_key), complaint(warn))

    def league(self, config_key: str) -> "LeagueView":
        """Return a configuration's league, as `flyball league` shows it. Raises ``UnknownConfig`` or ``NoLeague``."""
        from flyball.app.api.leagues import league_views  # loads OpenSpiel

        return league_views(self._location, config_key, warn)[config_key]

    def controllers(self, config_key: str | None = None) -> "tuple[ControllerReport, ...]":
        """Return what each controller watches, owns and decided, as `flyball controllers` shows it.

        Args:
            config_key: only rules and decisions about this configuration, and decisions about the whole run.

        Raises ``UnknownConfig``, or ``BadSettings`` if a user-defined controller cannot be imported.
        """
        from flyball.app.replay.controller_reports import read_reports  # imports all controllers

        with open_run(self._location) as reader:
            check_config(reader, config_key)
            if config_key is not None:
                check_played(reader, self._location, config_key)
            return read_reports(reader, complaint(warn)).reports(None if config_key is None else (config_key,))

    def report(self, since: str | int | None = None) -> "RunReport":
        """Return what the run trained and decided, as `flyball report` shows it.

        Args:
            since: a position, a time (ISO 8601) or an age such as "10m"; the beginning by default.

        Raises ``BadUsage``, or ``BadSettings`` if a user-defined controller cannot be imported.
        """
        from flyball.app.replay.run_report import read_report  # imports all controllers

        with open_run(self._location) as reader:
            after = 0 if since is None else before_since(reader, str(since))
            return read_report(reader, complaint(warn), after=after)

    def compare(self, other: str | Path, *, config_file: str | Path | None = None) -> "RunComparison":
        """Return this run beside another one, as `flyball report A B` shows them.

        Args:
            other: the folder of the other run, which need not be running either.
            config_file: the other run's settings file, if it is not its folder's ``flyball.toml``.

        Raises ``NotAJournal``, ``ForeignSettings``, ``BadUsage`` for the same run, or ``BadSettings`` if a user-defined
        controller cannot be imported.
        """
        return compare_runs(self._location, locate_run(other, config_file), complaint(warn))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to the run in {self._location.folder.path}>"


def compare_runs(a: RunLocation, b: RunLocation, on_dead: Callable[[DeadLetter], None]) -> "RunComparison":
    """Return two runs side by side. Raises the errors of ``RunReader.compare``."""
    from flyball.app.replay.run_comparison import compare, read_run  # imports all controllers

    with open_run(a) as reader_a, open_run(b) as reader_b:
        name_a, name_b = distinct_names(a, b)
        return compare(read_run(reader_a, name_a, on_dead), read_run(reader_b, name_b, on_dead))


def distinct_names(a: RunLocation, b: RunLocation) -> tuple[str, str]:
    """Return the names of two run folders, or their paths if the names are the same.

    Raises ``BadUsage`` for the same run.
    """
    paths = a.folder.path.absolute(), b.folder.path.absolute()
    if paths[0].resolve() == paths[1].resolve():
        raise BadUsage(f"{a.folder.path} and {b.folder.path} are the same run.", hint="Name two run folders.")
    return (paths[0].name, paths[1].name) if paths[0].name != paths[1].name else (str(paths[0]), str(paths[1]))


def warn(text: str) -> None:
    """Warn the caller of the API."""
    warnings.warn(text, stacklevel=2)
