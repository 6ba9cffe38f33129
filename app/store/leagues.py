"""A league in a file that any number of processes share: for use without a broker, and for exchange."""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.core import RANDOM, UnusableFile
from app.league import League, dump_league, founded, load_league
from app.store.files import replace_durably


class ForeignLeague(UnusableFile):
    """A league's file is about another run or another configuration."""


class LeagueFile:
    """The league of one configuration in ``league.json``; see ``app.league.document``.

    A change is made under an exclusive lock on a file beside it, to what is read under that lock, and replaces the file
    in one step: no change is lost, and who only reads never waits and never sees half a league. The lock goes with the
    process that holds it. A file that is damaged or foreign is refused and left as it is.

    Args:
        path: the file; it and its folder are made by the first change.
        run_name: of the run that it is about.
        config_key: of the configuration that it is about.
        baselines: the built-in players of a new league.
    """

    def __init__(self, path: Path, run_name: str, config_key: str, baselines: Sequence[str] = (RANDOM,)) -> None:
        self._path, self._run_name, self._config_key = path, run_name, config_key
        self._founded = founded(baselines)

    def read(self) -> League:
        """Return the league; before the first change, one with nothing but baselines.

        Raises ``DamagedLeague`` or ``ForeignLeague``.
        """
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return self._founded
        league, about = load_league(data, str(self._path))
        claimed = about.run_name, about.config_key or self._config_key
        if claimed != (self._run_name, self._config_key):
            raise ForeignLeague(
                f"{self._path} is the league of {claimed[1]} in run {claimed[0]}, "
                f"not of {self._config_key} in run {self._run_name}.",
                hint="It was left as it is. Give the run and configuration that it is about, or another file.",
            )
        return league

    def update(self, change: Callable[[League], League]) -> League:
        """Change the league and return it as it is then; what ``change`` raises leaves it as it was.

        Args:
            change: a pure function; it is given the league as it is under the lock.

        Raises ``DamagedLeague`` or ``ForeignLeague``.
        """
        self.read()  # a file that is refused gets no lock beside it
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            before = self.read()
            after = change(before)
            if after != before or not self._path.exists():
                data = dump_league(after, self._run_name, self._config_key)
                replace_durably(self._path, data, self._path.parent)
            return after

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Not the file itself: it is replaced, and a lock on what was replaced would keep nobody out.
        handle = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)  # and with it the lock goes
