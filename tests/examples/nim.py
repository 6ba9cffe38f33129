"""Nim, a game of one's own; who takes the last piece wins.

A move takes any number from one heap. In flyball.toml: ``game = "nim:Nim"``.
"""

from flyball import Game

HEAPS = (1, 3, 5, 7)
MOST = max(HEAPS)


class Nim(Game):
    version = 1
    players = 2
    actions = len(HEAPS) * MOST  # action a takes a % MOST + 1 pieces from heap a // MOST
    observation_size = len(HEAPS) * MOST

    def reset(self, rng):
        self.heaps, self.mover = list(HEAPS), 0

    def seat(self):
        return self.mover if any(self.heaps) else None

    def legal(self):
        return [heap * MOST + taken for heap, left in enumerate(self.heaps) for taken in range(left)]

    def play(self, action):
        self.heaps[action // MOST] -= action % MOST + 1
        self.mover = 1 - self.mover

    def observe(self, seat):
        return [float(piece < left) for left in self.heaps for piece in range(MOST)]

    def returns(self):
        return (-1, 1) if self.mover == 0 else (1, -1)
