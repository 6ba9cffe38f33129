"""Pig, a game of one's own with a die.

Roll as often as you like; a one loses the turn's points. In flyball.toml: ``game = "pig:Pig"``.
"""

from flyball import Game

ROLL, HOLD = 0, 1
GOAL = 30


class Pig(Game):
    version = 1
    players = 2
    actions = 2
    observation_size = 3

    def reset(self, rng):
        self.rng, self.scores, self.pot, self.mover = rng, [0, 0], 0, 0

    def seat(self):
        return self.mover if max(self.scores) < GOAL else None

    def legal(self):
        return [ROLL, HOLD] if self.pot else [ROLL]

    def play(self, action):
        die = self.rng.randint(1, 6) if action == ROLL else None
        if die is not None and die > 1:
            self.pot += die
        else:  # the turn ends
            self.scores[self.mover] += self.pot if action == HOLD else 0
            self.pot, self.mover = 0, 1 - self.mover

    def observe(self, seat):
        return [points / GOAL for points in (self.scores[seat], self.scores[1 - seat], self.pot)]

    def returns(self):
        return (1, -1) if self.scores[0] >= GOAL else (-1, 1)
