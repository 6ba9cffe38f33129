"""An in-memory outbox that passes the real outbox's contract suite."""

from collections.abc import Collection, Sequence

from flyball.app.journal.outbox import MAX_BYTES, check_bound, key_of


class MemoryOutbox:
    """Frames in memory: they outlive a bus, but not the process."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._frames: dict[tuple[int, int], bytes] = {}
        self._max_bytes = max_bytes

    def put(self, frames: Sequence[bytes]) -> None:
        kept = {key_of(frame): frame for frame in frames} | self._frames
        check_bound(sum(map(len, kept.values())), self._max_bytes)
        for frame in frames:
            self._frames.setdefault(key_of(frame), frame)

    def load(self) -> list[bytes]:
        return list(self._frames.values())

    def remove(self, keys: Collection[tuple[int, int]]) -> None:
        for key in keys:
            self._frames.pop(key, None)

    def check(self) -> None:
        """Do nothing: no other program can touch the content."""

    def close(self) -> None:
        """Do nothing: the content stays as long as the object."""
