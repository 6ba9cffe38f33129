"""A player of one's own for tic-tac-toe: wins, blocks, or moves anywhere.

In flyball.toml: ``player = "greedy_player:build"``, see greedy_player.toml.
"""

import numpy as np

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


class Greedy:
    def __init__(self, blocks):
        self.blocks = blocks

    def choose(self, obs, mask, points):
        """Return actions for K positions; ``points`` [K] in [0, 1) break ties."""
        mine, theirs = obs[:, :9], obs[:, 9:18]  # planes of the seat to move, and of the other
        worth = 10 * self.completes(mine) + (self.blocks and self.completes(theirs))
        worth = np.where(mask, worth, -1)
        best = worth == worth.max(axis=1, keepdims=True)
        nth = (points * best.sum(axis=1)).astype(int)  # which of the equally good squares
        return (best.cumsum(axis=1) > nth[:, None]).argmax(axis=1)

    def completes(self, stones):
        """Return squares [K, 9] that complete a line of ``stones`` [K, 9]."""
        found = np.zeros(stones.shape, dtype=int)
        for line in LINES:
            for square in line:
                others = [other for other in line if other != square]
                found[:, square] |= stones[:, others].all(axis=1)
        return found


def build(config, options):
    return Greedy(blocks=options.get("blocks", True))
