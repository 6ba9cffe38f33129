"""A perfect player of tic-tac-toe: every position solved by minimax, 5,478 of them."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from app.games import Mask, Observations
from app.learning.network import MASKED_LOGIT

CELLS = 9
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))

Stones = frozenset[int]


@cache
def worth(mine: Stones, theirs: Stones) -> int:
    """Return a position's value for the side to move: 1 a win, 0 a draw, -1 a loss."""
    if any(theirs.issuperset(line) for line in LINES):
        return -1
    free = frozenset(range(CELLS)) - mine - theirs
    return max((-worth(theirs, mine | {cell}) for cell in free), default=0)


def best_moves(mine: Stones, theirs: Stones) -> list[int]:
    """Return the cells that keep the position's value."""
    free = frozenset(range(CELLS)) - mine - theirs
    return sorted(cell for cell in free if -worth(theirs, mine | {cell}) == worth(mine, theirs))


class PerfectPlayer:
    """A player that chooses evenly among the best moves, at any temperature."""

    def forward(
        self, obs: Observations, mask: Mask, temperature: float = 1.0
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """See ``Player.forward``; the values are exact."""
        log_probs = np.full(mask.shape, MASKED_LOGIT, dtype=np.float32)
        values = np.empty(len(obs), dtype=np.float32)
        for row, planes in enumerate(obs.reshape(-1, 3, CELLS)):
            mine, theirs = (frozenset(np.flatnonzero(plane).tolist()) for plane in planes[:2])
            best = best_moves(mine, theirs)
            log_probs[row, best] = -np.log(len(best))
            values[row] = worth(mine, theirs)
        return log_probs, values
