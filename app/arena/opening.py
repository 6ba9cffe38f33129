"""Random openings: what makes the games of a match differ where the rules deal nothing."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.games import FINISHED, Observations, Table, TableSpec
from app.selfplay import draw_points


class OpenedTable:
    """A table whose games begin after some random legal moves, drawn from each game's seed.

    Games of the same seed have the same opening, whoever sits where. Forced moves don't count.

    Args:
        table: plays the games.
        plies: decisions that are taken at random; a game may already be over after them.
    """

    def __init__(self, table: Table, plies: int) -> None:
        self._table = table
        self._plies = plies

    @property
    def spec(self) -> TableSpec:
        """See ``Table.spec``."""
        return self._table.spec

    def reset(self, slots: NDArray[np.int64], seeds: Sequence[int]) -> None:
        """See ``Table.reset``; then play the openings."""
        self._table.reset(slots, seeds)
        streams = np.array(seeds, dtype=np.uint64)
        for ply in range(self._plies):
            live = self._table.seats()[slots] != FINISHED
            if live.any():
                self._play(slots[live], draw_points(streams[live], np.full(np.count_nonzero(live), ply)))

    def _play(self, slots: NDArray[np.int64], points: NDArray[np.float64]) -> None:
        _, mask = self._table.observe(slots)
        wanted = (points * mask.sum(axis=1)).astype(np.int64)  # the how-manieth of the legal actions
        actions = (mask.cumsum(axis=1) > wanted[:, None]).argmax(axis=1)
        self._table.step(slots, actions.astype(np.int32))

    def seats(self) -> NDArray[np.int8]:
        """See ``Table.seats``."""
        return self._table.seats()

    def observe(self, slots: NDArray[np.int64]) -> tuple[Observations, NDArray[np.bool_]]:
        """See ``Table.observe``."""
        return self._table.observe(slots)

    def view(self, slots: NDArray[np.int64], seats: NDArray[np.int8]) -> Observations:
        """See ``Table.view``."""
        return self._table.view(slots, seats)

    def step(self, slots: NDArray[np.int64], actions: NDArray[np.int32]) -> None:
        """See ``Table.step``."""
        self._table.step(slots, actions)

    def earned(self, slots: NDArray[np.int64], seats: NDArray[np.int8]) -> NDArray[np.float32]:
        """See ``Table.earned``."""
        return self._table.earned(slots, seats)

    def returns(self) -> NDArray[np.float32]:
        """See ``Table.returns``."""
        return self._table.returns()

    def truncated(self) -> NDArray[np.bool_]:
        """See ``Table.truncated``."""
        return self._table.truncated()

    def history(self, slot: int) -> list[int]:
        """See ``Table.history``."""
        return self._table.history(slot)
