"""Shogi and minishogi, written as plainly as possible.

Squares have names, and moves are in USI. A move is legal if the other seat could not capture the king after it. The
rules are slow, and independent of the rules under test.
"""

from collections import Counter
from itertools import product

LINES = [(-1, 0), (1, 0), (0, -1), (0, 1)]
DIAGONALS = [(-1, -1), (-1, 1), (1, -1), (1, 1)]
GOLD = [*LINES, (-1, -1), (-1, 1)]
STEPS = {"P": [(-1, 0)], "N": [(-2, -1), (-2, 1)], "S": [*DIAGONALS, (-1, 0)], "G": GOLD, "K": LINES + DIAGONALS}
STEPS |= {"+P": GOLD, "+L": GOLD, "+N": GOLD, "+S": GOLD, "+B": LINES, "+R": DIAGONALS}
SLIDES = {"L": [(-1, 0)], "B": DIAGONALS, "R": LINES, "+B": DIAGONALS, "+R": LINES}
STUCK = {"P": 1, "L": 1, "N": 2}


class PlainShogi:
    """A position with its past; ``seat`` 0 is Black. Black's pieces are upper case and go up the board."""

    def __init__(self, sfen: str) -> None:
        squares, seat, hands, _ = sfen.split()
        rows = squares.split("/")
        self.side, self.board = len(rows), {}
        self.zone = 3 if self.side == 9 else 1
        for row, text in enumerate(rows):
            column, mark = 0, ""
            for letter in text:
                if letter.isdigit():
                    column += int(letter)
                elif letter == "+":
                    mark = "+"
                else:
                    self.board[row, column] = mark + letter
                    column, mark = column + 1, ""
        self.seat, self.hands, number = "bw".index(seat), (Counter(), Counter()), ""
        for letter in hands.replace("-", ""):
            if letter.isdigit():
                number += letter
            else:
                self.hands[letter.islower()][letter.upper()] += int(number or 1)
                number = ""
        self.past = [self.key()]
        self.checked = [self.in_check(self.seat)]

    def key(self):
        return frozenset(self.board.items()), *(frozenset((+hand).items()) for hand in self.hands), self.seat

    def reach(self, place, piece, seat):
        """Yield the squares that a piece can reach, without own pieces there."""
        way = -1 if seat else 1
        for moves, far in ((STEPS, 1), (SLIDES, self.side)):
            for down, right in moves.get(piece, ()):
                row, column = place
                for _ in range(far):
                    row, column = row + down * way, column + right * way
                    if not (0 <= row < self.side and 0 <= column < self.side):
                        break
                    there = self.board.get((row, column))
                    if there is None or there[-1].islower() != bool(seat):
                        yield row, column
                    if there is not None:
                        break

    def own(self, seat):
        return [(place, piece.upper()) for place, piece in self.board.items() if piece[-1].islower() == bool(seat)]

    def in_check(self, seat):
        king, other = "k" if seat else "K", 1 - seat
        return any(
            self.board.get(to) == king for place, piece in self.own(other) for to in self.reach(place, piece, other)
        )

    def rank(self, row):
        """Return a row's distance from the mover's far edge."""
        return self.side - 1 - row if self.seat else row

    def name(self, place):
        return f"{self.side - place[1]}{'abcdefghi'[place[0]]}"

    def pseudo(self):
        """Yield moves, including those that leave the king in check.

        A move is its text, its origin (None for a drop), its target and the piece.
        """
        for place, piece in self.own(self.seat):
            for to in self.reach(place, piece, self.seat):
                text = self.name(place) + self.name(to)
                if self.rank(to[0]) >= STUCK.get(piece, 0):
                    yield text, place, to, piece
                if piece in "PLNSBR" and min(self.rank(place[0]), self.rank(to[0])) < self.zone:
                    yield text + "+", place, to, "+" + piece
        for piece, to in product(+self.hands[self.seat], product(range(self.side), range(self.side))):
            if to in self.board or self.rank(to[0]) < STUCK.get(piece, 0):
                continue
            file = [self.board.get((row, to[1])) for row in range(self.side)]
            if piece == "P" and ("p" if self.seat else "P") in file:
                continue
            yield f"{piece}*{self.name(to)}", None, to, piece

    def after(self, place, to, piece):
        """Return the position after a move, without its past."""
        new = PlainShogi.__new__(PlainShogi)
        new.side, new.zone, new.seat = self.side, self.zone, 1 - self.seat
        new.board, new.hands = dict(self.board), (self.hands[0].copy(), self.hands[1].copy())
        if place is None:
            new.hands[self.seat][piece] -= 1
        else:
            del new.board[place]
            if to in new.board:
                new.hands[self.seat][new.board[to][-1].upper()] += 1
        new.board[to] = piece.lower() if self.seat else piece
        return new

    def legal(self):
        """Return the positions after the legal moves, by move."""
        found = {}
        for text, place, to, piece in self.pseudo():
            new = self.after(place, to, piece)
            if not new.in_check(self.seat) and not (text[:2] == "P*" and new.in_check(new.seat) and not new.legal()):
                found[text] = new
        return found

    def play(self, text):
        new = self.legal()[text]
        self.board, self.hands, self.seat = new.board, new.hands, new.seat
        self.past.append(self.key())
        self.checked.append(self.in_check(self.seat))

    def declares(self):
        if self.side != 9 or self.checked[-1]:
            return False
        camp = [piece for (row, _), piece in self.own(self.seat) if self.rank(row) < 3]
        pieces = [piece for piece in camp if piece != "K"]
        points = sum(5 if piece[-1] in "BR" else 1 for piece in [*pieces, *self.hands[self.seat].elements()])
        return "K" in camp and len(pieces) >= 10 and points >= (27 if self.seat else 28)

    def outcome(self):
        """Return the game's outcome for the seat to move.

        It is 1 for a win, -1 for a loss, 0 for a draw, or None if the game goes on.
        """
        if self.past.count(self.past[-1]) == 4:
            since = self.past.index(self.past[-1])
            theirs = all(self.checked[since + 2 :: 2])
            own = all(self.checked[since + 1 :: 2])
            return int(theirs) - int(own)
        if not self.legal():
            return -1
        return 1 if self.declares() else None
