"""Ids of recent events, to recognise repetitions."""

from collections import deque
from collections.abc import Sequence
from itertools import count

WINDOW = 1_000_000


class IdWindow:
    """The hashes of the last event ids, and the position of each.

    Args:
        size: how many events are remembered at least; frames are forgotten whole.
    """

    def __init__(self, size: int = WINDOW) -> None:
        self._size = size
        self._positions: dict[int, int] = {}
        self._frames: deque[Sequence[int]] = deque()

    def __len__(self) -> int:
        return len(self._positions)

    def remember(self, ids: Sequence[int], first: int) -> None:
        """Remember a frame of new events at the positions from ``first`` on."""
        positions, frames = self._positions, self._frames
        positions.update(zip(ids, count(first), strict=False))
        frames.append(ids)
        while len(positions) - len(frames[0]) >= self._size:
            for old in frames.popleft():
                positions.pop(old, None)

    def is_new(self, ids: Sequence[int]) -> bool:
        """Return whether none of the ids is remembered or occurs twice."""
        return self._positions.keys().isdisjoint(ids) and len(set(ids)) == len(ids)

    def position(self, event_id: int) -> int:
        """Return an event's position; 0 when it is not remembered."""
        return self._positions.get(event_id, 0)
