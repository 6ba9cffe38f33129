"""Connect four as one class in plain Python, as users write games."""

import numpy as np

from flyball.app.games import Game

ROWS, COLUMNS = 6, 7
LINES = ((0, 1), (1, 0), (1, 1), (1, -1))


class ConnectFour(Game):
    version, players, actions = 1, 2, COLUMNS
    planes = (2, ROWS, COLUMNS)
    observation_type = np.uint8

    def reset(self, rng):
        self.board = np.zeros((2, ROWS, COLUMNS), dtype=np.uint8)
        self.heights, self.mover, self.won, self.over = [0] * COLUMNS, 0, None, False

    def seat(self):
        return None if self.over else self.mover

    def legal(self):
        return [column for column in range(COLUMNS) if self.heights[column] < ROWS]

    def play(self, column):
        row = self.heights[column]
        self.heights[column] += 1
        self.board[self.mover, row, column] = 1
        if any(self.run(row, column, *line) >= 4 for line in LINES):
            self.won = self.mover
        self.over = self.won is not None or min(self.heights) == ROWS
        self.mover = 1 - self.mover

    def run(self, row, column, down, right):
        own, length = self.board[self.mover], 1
        for sign in (1, -1):
            r, c = row + sign * down, column + sign * right
            while 0 <= r < ROWS and 0 <= c < COLUMNS and own[r, c]:
                length, r, c = length + 1, r + sign * down, c + sign * right
        return length

    def observe(self, seat):
        return self.board if seat == 0 else self.board[::-1]

    def returns(self):
        return (0, 0) if self.won is None else (1, -1) if self.won == 0 else (-1, 1)
