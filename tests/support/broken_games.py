"""A sound custom game, and games and tables with one fault each.

A fault breaks one rule of the contract.
"""

from dataclasses import replace
from itertools import count

import numpy as np

from app.games import FINISHED, Game, IllegalAction, Symmetry, Table, UnknownGame, symmetry
from app.games.game import GameTable, game_spec

GOAL, MOST = 12, 3
_DRAWN = count()


class Race(Game):
    """The first seat to reach the goal wins.

    Each move adds 1 to 3 to a sum that begins at random.
    """

    version = 3
    players = 2
    actions = MOST
    observation_size = GOAL + 1

    def reset(self, rng):
        self.total, self.mover = rng.randrange(3), 0

    def seat(self):
        return self.mover if self.total < GOAL else None

    def legal(self):
        return range(min(MOST, GOAL - self.total))

    def play(self, action):
        self.total += action + 1
        self.mover = 1 - self.mover

    def observe(self, seat):
        return [float(number == self.total) for number in range(GOAL + 1)]

    def returns(self):
        return (-1, 1) if self.mover == 0 else (1, -1)


class Three(Race):
    """A race of three seats.

    The loser is the seat after the winner, and the third seat draws.
    """

    players = 3

    def play(self, action):
        self.total += action + 1
        self.mover = (self.mover + 1) % 3

    def returns(self):
        outcome = [0, 0, 0]
        outcome[self.mover], outcome[self.mover - 1] = -1, 1
        return outcome


class Planes(Race):
    """A race with a built-in player and planes of small whole numbers.

    The planes are its observations.
    """

    planes = (1, 1, GOAL)
    observation_type = np.uint8

    def observe(self, seat):
        return np.arange(GOAL + 1) == self.total

    @staticmethod
    def heuristic(obs, mask):
        return np.where(mask, np.arange(MOST), -np.inf).astype(np.float32)


class Chips(Race):
    """A race with a number far above the others."""

    def observe(self, seat):
        return [*super().observe(seat)[:-1], 100]


class ScaledChips(Chips):
    scale = [1] * GOAL + [100]


class ScaledToNothing(Race):
    scale = 0


class ScaledInPart(Race):
    scale = (1, 2, 3)


class ScaledInWords(Race):
    scale = "255"


class Doubter:
    against = "a doubter"

    def failures(self, record):
        return [f"{len(record.history)} moves are too many"]


class Doubted(Race):
    checker = Doubter


class Undecided(Race):
    """A race that its own limit ends without a winner."""

    def reset(self, rng):
        super().reset(rng)
        self.moves = 0

    def play(self, action):
        super().play(action)
        self.moves += 1

    def seat(self):
        return None if self.moves == 2 else super().seat()

    def cut_off(self):
        return self.moves == 2


# Classes that break a rule.


class Nameless(Game):
    version, players, actions, observation_size = 1, 2, 3, 1

    def reset(self, rng): ...


class Unversioned(Race):
    version = None


class Crowded(Race):
    players = 8


class Flat(Race):
    planes = (2, 3, 4)


class Listed(Race):
    planes = [1, 1, GOAL]  # noqa: RUF012 - the mistake


class PlanesInWords(Race):
    planes = "3 x 3"


class Asymmetric(Race):
    symmetries = ("left_right",)


class Negative(Race):
    planes = (-1, -1, GOAL)


class OtherType(Race):
    observation_type = np.int64


class Lopsided(Race):
    symmetries = (Symmetry("twice", np.zeros(GOAL + 1, dtype=int), np.arange(MOST), np.arange(MOST)),)


class SeatTwo(Race):
    def seat(self):
        return 2 if self.total > 4 else super().seat()


class NoMoves(Race):
    def legal(self):
        return [] if self.total > 4 else super().legal()


class Masked(Race):
    def legal(self):
        return np.arange(MOST) < GOAL - self.total


class Beyond(Race):
    def legal(self):
        return range(MOST + 1)


class Twice(Race):
    def legal(self):
        return [0, 1, 1]


class Falling(Race):
    def play(self, action):
        super().play(action)
        if self.total > 4:
            raise KeyError("four")


class Uncopied(Race):
    searchable = True

    def __deepcopy__(self, memo):
        return self


class Uninitialised(Race):
    def __init__(self):
        raise OSError("no licence")


class Short(Race):
    def observe(self, seat):
        return [1.0, 2.0]


class Worded(Race):
    def observe(self, seat):
        return ["one"] * (GOAL + 1)


class Infinite(Race):
    def observe(self, seat):
        return [float("inf")] * (GOAL + 1)


class Large(Planes):
    def observe(self, seat):
        return [256] * (GOAL + 1)


class OneReturn(Race):
    def returns(self):
        return 1


class Staked(Race):
    outcome_scale = 5

    def returns(self):
        return [4 * outcome for outcome in super().returns()]


class Drawn(Race):
    def returns(self):
        return (0, 0)


class Rare(Race):
    """A race that is hardly ever decided, as gin rummy among random players."""

    def reset(self, rng):
        super().reset(rng)
        self.decided = rng.random() > 0.97

    def returns(self):
        return super().returns() if self.decided else (0, 0)


class Fixed(Race):
    def returns(self):
        return (1, -1)


class Over(Race):
    def seat(self):
        return None

    def returns(self):
        return (0, 0)


class Plural(Race):
    outcome_scales = 5


class Helpful(Race):
    """Its own names resemble only names that it defines."""

    player = 0
    seats = (0, 1)
    _symmetry = None


class Free(Race):
    outcome_scale = 0


class BigReturns(Race):
    def returns(self):
        return (2, -2)


class Generous(Race):
    def returns(self):
        return (1, 0)


class Endless(Race):
    def seat(self):
        return self.mover

    def legal(self):
        return range(MOST)


class ForcedForEver(Race):
    def seat(self):
        return self.mover

    def legal(self):
        return [0]


class Forgetful(Race):
    def __init__(self):
        self.begun = 0

    def reset(self, rng):
        super().reset(rng)
        self.begun += 1
        self.total = self.begun % 3


class Unseeded(Race):
    def reset(self, rng):
        super().reset(rng)
        self.total = next(_DRAWN) % 3


class Watched(Race):
    """A race that is changed by looking at it."""

    def observe(self, seat):
        seen = super().observe(seat)
        self.total += self.total < GOAL - MOST
        return seen


class Mirrored(Race):
    """Names a symmetry that it does not have."""

    symmetries = (symmetry("swapped", np.arange(GOAL + 1), np.array([0, 2, 1])),)


class Speechless(Planes):
    @staticmethod
    def heuristic(obs, mask):
        return np.zeros(len(obs), dtype=np.float32)


class Hopeless(Planes):
    @staticmethod
    def heuristic(obs, mask):
        return np.full(mask.shape, -np.inf)


class Raising(Planes):
    @staticmethod
    def heuristic(obs, mask):
        raise ZeroDivisionError("nobody")


# Factories of tables, most of which break a rule.


class Race16(GameTable):
    """A race as a custom table."""

    def __init__(self, config, slots):
        super().__init__(Race, self.description(), "race", slots, max_moves=config.max_moves)

    def description(self):
        return replace(game_spec(Race, "race"), rules_version="broken_games-1:race16")


class PlaysAll(Race16):
    """Plays what the mask excludes."""

    def step(self, slots, actions):
        self._mask[:] = True
        super().step(slots, actions)


class Race16Masks(Race16):
    """Masks that exclude what may be played."""

    def observe(self, slots):
        obs, mask = super().observe(slots)
        mask[:, 0] &= ~mask[:, 2]
        return obs, mask


class RefusesAll(Race16):
    def step(self, slots, actions):
        raise IllegalAction(int(actions[0]), int(slots[0]), [])


class HalfPlayed(Race16):
    """Counts a move before it is refused."""

    def step(self, slots, actions):
        for slot in slots.tolist():
            self._histories[slot].append(0)
        try:
            super().step(slots, actions)
        finally:
            for slot in slots.tolist():
                self._histories[slot].remove(0)
                self._histories[slot] += [0] * (len(self._histories[slot]) == 0)


class Shared(Race16):
    """Returns an array that it overwrites later."""

    def __init__(self, config, slots):
        super().__init__(config, slots)
        self.shared = np.zeros((slots, GOAL + 1), dtype=np.float32)

    def observe(self, slots):
        obs, mask = super().observe(slots)
        self.shared[: len(slots)] = obs
        return self.shared[: len(slots)], mask

    def step(self, slots, actions):
        super().step(slots, actions)
        self.shared[:] = -1


class OtherView(Race16):
    def view(self, slots, seats):
        return 1 - super().view(slots, seats)

    def observe(self, slots):
        return super().view(slots, self.seats()[slots]), self._mask[slots]


class AsksForced(Race16):
    def observe(self, slots):
        obs, mask = super().observe(slots)
        mask[:, 1:] &= ~mask[:, 2:3]
        mask[:, 1] = False
        return obs, mask


class EarlyReturns(Race16):
    def returns(self):
        return super().returns() + np.float32([0.5, -0.5])


class CutReturns(Race16):
    def __init__(self, config, slots):
        super().__init__(config, slots)
        self._limit = 2

    def returns(self):
        return np.where(self.truncated()[:, None], np.float32([1, -1]), super().returns())


class LargeReturns(Race16):
    def returns(self):
        return 3 * super().returns()


class UnevenReturns(Race16):
    def returns(self):
        return np.abs(super().returns())


class Unlimited(Race16):
    """Ignores the move limit."""

    def __init__(self, config, slots):
        super().__init__(config.replace(max_moves=None), slots)


class RefusesLimits(Race16):
    """Declares that it has no move limit, which is allowed."""

    def __init__(self, config, slots):
        if config.max_moves is not None:
            raise UnknownGame("It has no move limit.", hint="Leave max_moves out.")
        super().__init__(config, slots)


class Neighbours(Race16):
    """A step adds to the history of every slot."""

    def step(self, slots, actions):
        super().step(slots, actions)
        for slot, seat in enumerate(self.seats()):
            if seat != FINISHED and slot not in slots:
                self._histories[slot].append(0)


class WideSeats(Race16):
    def seats(self):
        return super().seats().astype(np.int64)


class SeatNine(Race16):
    def seats(self):
        return np.where(super().seats() == 1, 9, super().seats()).astype(np.int8)


class ByteObservations(Race16):
    def view(self, slots, seats):
        return super().view(slots, seats).astype(np.uint8)


class Careless(Race16):
    """Begins all slots with the first seed."""

    def reset(self, slots, seeds):
        super().reset(slots, [seeds[0]] * len(slots))


class Renumbered(Race16):
    """Its history does not hold the numbers of the actions."""

    def history(self, slot):
        return [MOST - action for action in super().history(slot)]


class Crashing(Race16):
    def step(self, slots, actions):
        if len(self._histories[0]) > 1:
            raise IndexError("out of bounds")
        super().step(slots, actions)


class NotATable:
    def __init__(self, config, slots):
        self.spec = None

    reset = seats = observe = view = step = earned = returns = Table.earned


class NoSpec(Race16):
    def __init__(self, config, slots):
        super().__init__(config, slots)
        self.spec = "race"


class Unsearchable(Race16):
    copy_from = branch = None

    def description(self):
        return replace(super().description(), searchable=True)


class Unnamed(Race16):
    def description(self):
        return replace(super().description(), rules_version="")


class Unscaled(Race16):
    def description(self):
        return replace(super().description(), scale=None)


class Levelled(Race16):
    def description(self):
        return replace(super().description(), levels=("easy",))


class Earning(Race16):
    def earnd(self, slots, seats):
        return np.ones(len(slots), np.float32)


class Champion(Race16):
    def description(self):
        return replace(super().description(), levels={"champion": Planes.heuristic})


def failing(config, slots):
    raise OSError("no disk")


NO_GAME = {"players": 2}
