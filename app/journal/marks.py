"""Marks: the next event number of each producer's epochs, as far as they are kept."""

from collections.abc import Iterable, Iterator, Mapping

from flyball.app.journal.queries import MARKS_KEPT

Key = tuple[str, int]
"""A producer and one of its epochs."""


class Marks:
    """The marks of each producer's latest epochs. Immutable.

    Args:
        rows: (producer, epoch, next event number), the latest last.
    """

    def __init__(self, rows: Iterable[tuple[str, int, int]] = ()) -> None:
        self._epochs: dict[str, dict[int, int]] = {}
        for producer, epoch, following in rows:
            self._epochs.setdefault(producer, {})[epoch] = following

    def get(self, producer: str, epoch: int) -> int | None:
        """Return the next event number of a producer's epoch; None if no mark is kept."""
        return self._epochs.get(producer, {}).get(epoch)

    def changed(self, marks: Mapping[Key, int]) -> "Marks":
        """Return these marks with some set. Of a producer, the latest ``MARKS_KEPT`` are kept."""
        after = Marks()
        after._epochs = dict(self._epochs)
        for producer in {producer for producer, _ in marks}:
            after._epochs[producer] = dict(self._epochs.get(producer, {}))
        for (producer, epoch), following in marks.items():
            epochs = after._epochs[producer]
            epochs.pop(epoch, None)
            epochs[epoch] = following
            if len(epochs) > MARKS_KEPT:
                del epochs[next(iter(epochs))]
        return after

    def forgotten(self, after: "Marks", producers: Iterable[str]) -> Iterator[Key]:
        """Iterate over the marks of some producers that are not kept in ``after``."""
        for producer in producers:
            for epoch in self._epochs.get(producer, {}):
                if after.get(producer, epoch) is None:
                    yield producer, epoch
