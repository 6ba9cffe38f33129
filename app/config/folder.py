"""The folder of one run, and the names of what lies in it."""

from dataclasses import dataclass
from pathlib import Path

DEFAULT_RUN_FOLDER = Path("run")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Names the paths in a run folder. Creates nothing.

    Args:
        path: the folder.
    """

    path: Path

    @property
    def settings(self) -> Path:
        """The settings file."""
        return self.path / "flyball.toml"

    @property
    def journal(self) -> Path:
        """The journal."""
        return self.path / "journal.sqlite"

    @property
    def up_lock(self) -> Path:
        """The file that `up` keeps locked while it runs."""
        return self.path / "up.lock"

    @property
    def store(self) -> Path:
        """The folder of models and experience."""
        return self.path / "store"

    @property
    def curves(self) -> Path:
        """The folder of training curves, one in it for each configuration."""
        return self.path / "curves"

    def state(self, daemon: str) -> Path:
        """Return the file with a daemon's state."""
        return self.path / "state" / f"{daemon}.sqlite"

    @property
    def board(self) -> Path:
        """The file with what `up` and `status` have counted so far."""
        return self.path / "state" / "board.json"

    def outbox(self, daemon: str) -> Path:
        """Return the file with what a daemon could not send yet."""
        return self.path / "outbox" / f"{daemon}.sqlite"

    def log(self, daemon: str) -> Path:
        """Return a daemon's log file, JSON lines."""
        return self.path / "logs" / f"{daemon}.jsonl"

    def errors(self, daemon: str) -> Path:
        """Return the file with what a supervised daemon writes to stderr."""
        return self.path / "logs" / f"{daemon}.stderr"
