"""A league in a file that processes share without a broker."""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from flyball.app.core import RANDOM, UnusableFile
from flyball.app.league.document import dump_league, load_league
from flyball.app.league.league import League
from flyball.app.store.blobs import replace_durably


class ForeignLeague(UnusableFile):
    """A league file of another run or another configuration."""


class LeagueFile:
    """One configuration's league in a JSON file; see ``flyball.app.league.document``.

    ``update`` holds an exclusive lock on a separate file while it reads and replaces the league, so no change is lost.
    Readers never wait and never see a partial league. The lock ends with its process at the latest. A damaged or
    foreign file is refused and stays unchanged.

    Args:
        path: the file; created with its folder by the first change.
        run_name: name of the league's run.
        config_key: the league's configuration.
        baselines: the built-in players of a new league.
    """

    def __init__(self, path: Path, run_name: str, config_key: str, baselines: Sequence[str] = (RANDOM,)) -> None:
        self._path, self._run_name, self._config_key = path, run_name, config_key
        self._founded = League().with_baselines(baselines)

    def read(self) -> League:
        """Return the league, at first of baselines only. Raises ``DamagedLeague`` or ``ForeignLeague``."""
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
        """Apply ``change`` and return the new league.

        If ``change`` raises, the file stays unchanged.

        Args:
            change: a pure function of the league that is read under the lock.

        Raises ``DamagedLeague`` or ``ForeignLeague``.
        """
        self.read()  # because a refused file must get no lock file beside it
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
        # The league file itself is not locked, because a lock on a file that was replaced excludes nobody.
        handle = os.open(self._path.with_name(f"{self._path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)  # releases the lock
