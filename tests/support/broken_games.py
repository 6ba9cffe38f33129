"""A sound custom game, and games and tables with one fault each. A fault breaks one rule of the contract."""

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from flyball.app.games import FINISHED, Game, IllegalAction, Symmetry, Table, UnknownGame, symmetry
from flyball.app.games.game import GameTable, game_spec

GOAL, MOST = 12, 3
_DRAWN = count()


class Race(Game):
    """The first seat to reach the goal wins. Each move adds 1 to 3 to a sum that begins at random."""

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
    """A race of three seats. The loser is the seat after the winner, and the third seat draws."""

    players = 3

    def play(self, action):
        self.total += action + 1
        self.mover = (self.mover + 1) % 3

    def returns(self):
        outcome = [0, 0, 0]
        outcome[self.mover], outcome[self.mover - 1] = -1, 1
        return outcome


class Planes(Race):
    """A race with a built-in player and planes of small whole numbers. The planes are its observations."""

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


class Doubter:
    against = "a doubter"

    def failures(self, record):
        return [f"{len(record.history)} moves are too many"]


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


class Nameless(Game):
    version, players, actions, observation_size = 1, 2, 3, 1

    def reset(self, rng): ...


def _broken(base: type, **faults: dict[str, Any]) -> None:
    """Define subclasses by name, each by the members that differ."""
    globals().update({name: type(name, (base,), members) for name, members in faults.items()})


def _raising(error: Exception) -> Any:
    """Return a method that raises."""

    def fail(*_: Any) -> None:
        raise error

    return fail


_broken(
    Race,
    ScaledToNothing={"scale": 0},
    ScaledInPart={"scale": (1, 2, 3)},
    ScaledInWords={"scale": "255"},
    Doubted={"checker": Doubter},
    Unversioned={"version": None},
    Crowded={"players": 8},
    Flat={"planes": (2, 3, 4)},
    Listed={"planes": [1, 1, GOAL]},
    PlanesInWords={"planes": "3 x 3"},
    Asymmetric={"symmetries": ("left_right",)},
    Negative={"planes": (-1, -1, GOAL)},
    OtherType={"observation_type": np.int64},
    Lopsided={"symmetries": (Symmetry("twice", np.zeros(GOAL + 1, dtype=int), np.arange(MOST), np.arange(MOST)),)},
    Mirrored={
        "symmetries": (symmetry("swapped", np.arange(GOAL + 1), np.array([0, 2, 1])),)
    },  # it has no such symmetry
    SeatTwo={"seat": lambda self: 2 if self.total > 4 else Race.seat(self)},
    NoMoves={"legal": lambda self: [] if self.total > 4 else Race.legal(self)},
    Masked={"legal": lambda self: np.arange(MOST) < GOAL - self.total},
    Beyond={"legal": lambda self: range(MOST + 1)},
    Twice={"legal": lambda self: [0, 1, 1]},
    Uncopied={"searchable": True, "__deepcopy__": lambda self, memo: self},
    Uninitialised={"__init__": _raising(OSError("no licence"))},
    Short={"observe": lambda self, seat: [1.0, 2.0]},
    Worded={"observe": lambda self, seat: ["one"] * (GOAL + 1)},
    Infinite={"observe": lambda self, seat: [float("inf")] * (GOAL + 1)},
    OneReturn={"returns": lambda self: 1},
    Staked={"outcome_scale": 5, "returns": lambda self: [4 * outcome for outcome in Race.returns(self)]},
    Drawn={"returns": lambda self: (0, 0)},
    Fixed={"returns": lambda self: (1, -1)},
    Over={"seat": lambda self: None, "returns": lambda self: (0, 0)},
    Plural={"outcome_scales": 5},
    Helpful={"player": 0, "seats": (0, 1), "_symmetry": None},  # these names resemble only names that it defines
    Free={"outcome_scale": 0},
    BigReturns={"returns": lambda self: (2, -2)},
    Generous={"returns": lambda self: (1, 0)},
    Endless={"seat": lambda self: self.mover, "legal": lambda self: range(MOST)},
    ForcedForEver={"seat": lambda self: self.mover, "legal": lambda self: [0]},
)
_broken(
    Planes,
    Large={"observe": lambda self, seat: [256] * (GOAL + 1)},
    Speechless={"heuristic": staticmethod(lambda obs, mask: np.zeros(len(obs), dtype=np.float32))},
    Hopeless={"heuristic": staticmethod(lambda obs, mask: np.full(mask.shape, -np.inf))},
    Raising={"heuristic": staticmethod(_raising(ZeroDivisionError("nobody")))},
)


class Falling(Race):
    def play(self, action):
        super().play(action)
        if self.total > 4:
            raise KeyError("four")


class Rare(Race):
    """A race that is hardly ever decided, as gin rummy among random players."""

    def reset(self, rng):
        super().reset(rng)
        self.decided = rng.random() > 0.97

    def returns(self):
        return super().returns() if self.decided else (0, 0)


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


class CutReturns(Race16):
    def __init__(self, config, slots):
        super().__init__(config, slots)
        self._limit = 2

    def returns(self):
        return np.where(self.truncated()[:, None], np.float32([1, -1]), super().returns())


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


def _described(**changes: Any) -> dict[str, Any]:
    """Return the members of a table with another description."""
    return {"description": lambda self: replace(Race16.description(self), **changes)}


def _refuse(self, slots, actions):
    raise IllegalAction(int(actions[0]), int(slots[0]), [])


_broken(
    Race16,
    RefusesAll={"step": _refuse},
    EarlyReturns={"returns": lambda self: Race16.returns(self) + np.float32([0.5, -0.5])},
    LargeReturns={"returns": lambda self: 3 * Race16.returns(self)},
    UnevenReturns={"returns": lambda self: np.abs(Race16.returns(self))},
    WideSeats={"seats": lambda self: Race16.seats(self).astype(np.int64)},
    SeatNine={"seats": lambda self: np.where(Race16.seats(self) == 1, 9, Race16.seats(self)).astype(np.int8)},
    ByteObservations={"view": lambda self, slots, seats: Race16.view(self, slots, seats).astype(np.uint8)},
    Careless={"reset": lambda self, slots, seeds: Race16.reset(self, slots, [seeds[0]] * len(slots))},
    Renumbered={"history": lambda self, slot: [MOST - action for action in Race16.history(self, slot)]},
    Unsearchable={"copy_from": None, "branch": None, **_described(searchable=True)},
    Unnamed=_described(rules_version=""),
    Unscaled=_described(scale=None),
    Levelled=_described(levels=("easy",)),
    Champion=_described(levels={"champion": Planes.heuristic}),
    Earning={"earnd": lambda self, slots, seats: np.ones(len(slots), np.float32)},
)


def failing(config, slots):
    raise OSError("no disk")


NO_GAME = {"players": 2}
