"""Games written as one class, and their table.

``Game`` is the base class of such a class. ``GameTable`` plays N of its games at once: it draws chance from each game's
seed, plays forced moves, cuts off long games, keeps histories, and checks whatever the class returns.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import cache
from math import prod
from random import Random
from typing import Any, ClassVar, NoReturn, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flyball.app.config.settings import OPENING_PLIES
from flyball.app.core import HEURISTIC, located, misspelling_hint, misspelt
from flyball.app.games.parity import Checker
from flyball.app.games.spec_check import are_planes, spec_faults
from flyball.app.games.table import (
    FINISHED,
    TOLERANCE,
    Floats,
    Heuristic,
    IllegalAction,
    Indices,
    Mask,
    Observations,
    Seats,
    Symmetry,
    Table,
    TableSpec,
    UnknownGame,
)

R = TypeVar("R")


class BrokenGame(UnknownGame):
    """A user-defined game that is incomplete, raises, or returns impossible values."""


class Game:
    """Base class of a user-defined game.

    An object plays one game after the other. Seats and actions are numbered from 0. All chance is drawn from the
    generator that ``reset`` is given. Clocks and global random numbers may not be read, because games are played again
    to be checked. ``legal``, ``seat``, ``observe`` and ``returns`` change nothing.
    """

    version: ClassVar[int]
    """Version of the rules and observations; raise it when either changes."""
    players: ClassVar[int]
    actions: ClassVar[int]
    """A, the number of actions of the game, legal or not."""
    observation_size: ClassVar[int]
    """D, how many numbers ``observe`` returns; optional if ``planes`` is set."""
    observation_type: ClassVar[type[np.uint8] | type[np.float32]] = np.float32
    """``numpy.uint8`` if all observed numbers are whole, from 0 to 255."""
    scale: ClassVar[float | Sequence[float] | None] = None
    """Divisor of the observations inside the network: a number, or one for each of the D.

    By default 1, but for pixels: if most uint8 numbers other than 0 are above 8 in random games, their largest.
    """
    planes: ClassVar[tuple[int, int, int] | None] = None
    """See ``TableSpec.planes``."""
    symmetries: ClassVar[tuple[Symmetry, ...]] = ()
    outcome_scale: ClassVar[float] = 1.0
    """Largest possible outcome in the game's own units, such as chips or points."""
    heuristic: ClassVar[Heuristic | None] = None
    """A static method: the built-in player ``heuristic``."""
    searchable: ClassVar[bool] = False
    """True if the backend ``search`` can look ahead in the game.

    Set it if nothing is drawn or hidden, and ``copy.deepcopy`` of an object copies its game.
    """
    checker: ClassVar[Callable[[], Checker] | None] = None
    """Maker of a user-defined parity checker. Without it, this class plays recorded games again."""

    def reset(self, rng: Random) -> None:
        """Begin a game; ``rng`` is the source of all its chance."""
        raise NotImplementedError

    def seat(self) -> int | None:
        """Return the seat to move; None once the game is over."""
        raise NotImplementedError

    def legal(self) -> Iterable[int]:
        """Return the legal actions of the seat to move, at least one."""
        raise NotImplementedError

    def play(self, action: int) -> None:
        """Play a legal action of the seat to move."""
        raise NotImplementedError

    def observe(self, seat: int) -> ArrayLike:
        """Return a seat's observation: D numbers, or planes [C, H, W]. Seats in equivalent positions see the same."""
        raise NotImplementedError

    def returns(self) -> Sequence[float]:
        """Return each seat's outcome of a finished game; their sum is 0, none is beyond ``outcome_scale``."""
        raise NotImplementedError

    def cut_off(self) -> bool:
        """Return whether the game's own move limit ended it undecided."""
        return False


ENDLESS = 100_000
"""Moves after which a game without a move limit counts as endless. Otherwise forced moves could go on for ever."""

METHODS = ("reset", "seat", "legal", "play", "observe", "returns")
"""Methods that a game has to define."""


def game_spec(game: type[Game], name: str) -> TableSpec:
    """Return the description of a class's games. Messages call the game ``name``. Raises ``BrokenGame``."""
    if unknown := misspelt(game, Game):
        raise BrokenGame(f"{name}.{unknown[0]} is nothing that a game has.", hint=misspelling_hint(*unknown))
    for method in METHODS:
        if getattr(game, method) is getattr(Game, method):
            raise BrokenGame(f"{name} has no method {method}.", hint=f"Define {method}, as flyball.Game describes it.")
    planes = game.planes
    implied = prod(planes) if planes is not None and are_planes(planes) else 1  # bad planes are reported below
    size: Any = getattr(game, "observation_size", None if planes is None else implied)
    counts = {key: getattr(game, key, None) for key in ("version", "players", "actions")} | {"observation_size": size}
    for attribute, value in counts.items():
        if type(value) is not int or value < 1:
            raise BrokenGame(
                f"{name}.{attribute} is {'missing' if value is None else repr(value)}.",
                hint=f"Write for instance {attribute} = 1 in the class: a whole number, 1 or more.",
            )
    spec = TableSpec(
        players=game.players,
        actions=game.actions,
        observation_size=size,
        observation_type=game.observation_type,
        rules_version=f"{game.__module__}-{game.version}:{game.__qualname__}",
        symmetries=game.symmetries,
        levels={} if game.heuristic is None else {HEURISTIC: game.heuristic},
        planes=planes,
        scale=1.0 if game.scale is None else _divisor(game.scale),
        searchable=game.searchable,
        outcome_scale=game.outcome_scale,
        dealt=not game.searchable and _is_dealt(game),  # type: ignore[arg-type]  # a class has a hash
    )
    for fault in spec_faults(spec):
        raise BrokenGame(f"{name}: {fault.what}", hint=fault.hint)
    return spec


@cache
def _is_dealt(game: type[Game]) -> bool:
    """Return whether a class draws chance: in ``reset``, or in the moves of a usual opening."""
    rng = Random(0)
    begun = rng.getstate()
    try:
        played = game()
        played.reset(rng)
        for _ in range(OPENING_PLIES):
            if played.seat() is not None:
                played.play(next(iter(played.legal())))
    except Exception:  # noqa: BLE001 - a user's method may raise anything; a table that plays the game reports it
        return False
    return rng.getstate() != begun


def _divisor(scale: Any) -> Any:
    """Return a list or an array of numbers as a tuple."""
    several = isinstance(scale, list | tuple | np.ndarray)
    return tuple(number.item() if isinstance(number, np.generic) else number for number in scale) if several else scale


class GameTable(Table):
    """Table of N games of a ``Game``, each truncated after ``max_moves`` moves.

    Args:
        make: makes a game; called once for each slot.
        spec: the game's description.
        name: what messages call the game.
        slots: N.
        max_moves: the move limit, which counts all seats' moves, forced ones too.
        checker: makes a parity checker; None: games are played again on such a table.
    """

    def __init__(
        self,
        make: Callable[[], Game],
        spec: TableSpec,
        name: str,
        slots: int,
        *,
        max_moves: int | None = None,
        checker: Callable[[], Checker] | None = None,
    ) -> None:
        self.spec, self.checker = spec, checker
        self._name, self._limit = name, max_moves
        self._seeds = [0] * slots
        self._histories: list[list[int]] = [[] for _ in range(slots)]
        self._seats = np.full(slots, FINISHED, dtype=np.int8)
        self._mask = np.zeros((slots, spec.actions), dtype=np.bool_)
        self._returns = np.zeros((slots, spec.players), dtype=np.float32)
        self._truncated = np.zeros(slots, dtype=np.bool_)
        self._games = [self._call(slot, "__init__", make) for slot in range(slots)]

    def reset(self, slots: Indices, seeds: Sequence[int]) -> None:
        """See ``Table.reset``."""
        if len(seeds) != len(slots):
            raise ValueError(f"{len(slots)} slots cannot begin from {len(seeds)} seeds")
        self._returns[slots] = 0
        self._truncated[slots] = False
        for slot, seed in zip(slots.tolist(), seeds, strict=True):
            self._seeds[slot], self._histories[slot] = int(seed), []
            self._call(slot, "reset", self._games[slot].reset, Random(int(seed)))
            self._settle(slot)

    def seats(self) -> Seats:
        """See ``Table.seats``."""
        return self._seats.copy()

    def observe(self, slots: Indices) -> tuple[Observations, Mask]:
        """See ``Table.observe``."""
        return self.view(slots, self._seats[slots]), self._mask[slots]

    def view(self, slots: Indices, seats: Seats) -> Observations:
        """See ``Table.view``."""
        shape = (len(slots), self.spec.observation_size)
        views: NDArray[Any] = np.empty(shape, dtype=self.spec.observation_type)
        with np.errstate(invalid="ignore", over="ignore"):  # numbers that do not fit are reported by _checked
            for row, slot, seat in zip(range(len(slots)), slots.tolist(), seats.tolist(), strict=True):
                observation = self._call(slot, "observe", self._games[slot].observe, seat)
                views[row] = self._checked(slot, seat, observation)
        return views

    def step(self, slots: Indices, actions: NDArray[np.int32]) -> None:
        """See ``Table.step``."""
        moves = list(zip(slots.tolist(), actions.tolist(), strict=True))
        for slot, action in moves:
            if not 0 <= action < self.spec.actions or not self._mask[slot, action]:
                raise IllegalAction(action, slot, np.flatnonzero(self._mask[slot]).tolist())
        for slot, action in moves:
            self._play(slot, action)
            self._settle(slot)

    def copy_from(self, other: Self, sources: Indices, targets: Indices) -> None:
        """See ``Table.copy_from``."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self._games[target] = other._call(source, "__deepcopy__", deepcopy, other._games[source])
            self._seeds[target], self._histories[target] = other._seeds[source], other._histories[source].copy()
        for name in ("_seats", "_mask", "_returns", "_truncated"):
            getattr(self, name)[targets] = getattr(other, name)[sources]

    def returns(self) -> Floats:
        """See ``Table.returns``."""
        return self._returns.copy()

    def truncated(self) -> Mask:
        """See ``Table.truncated``."""
        return self._truncated.copy()

    def history(self, slot: int) -> list[int]:
        """See ``Table.history``. Chance is not in it, because the seed decides chance."""
        return self._histories[slot].copy()

    def _play(self, slot: int, action: int) -> None:
        self._call(slot, "play", self._games[slot].play, action)
        self._histories[slot].append(action)

    def _settle(self, slot: int) -> None:
        """Play forced moves until a seat has a choice, or the end."""
        game = self._games[slot]
        while (seat := self._call(slot, "seat", game.seat)) is not None:
            if not _is_number(seat, self.spec.players):
                hint = f"Return a seat from 0 to {self.spec.players - 1}, or None once the game is over."
                self._fail(slot, "seat()", f"returned {seat!r}", hint)
            if len(self._histories[slot]) == self._limit:
                self._truncated[slot] = True
                break
            if len(self._histories[slot]) >= ENDLESS:
                self._fail(slot, "seat()", "has not returned None", "End the game, or set max_moves.")
            legal = self._legal(slot)
            if len(legal) > 1:
                self._seats[slot] = seat
                self._mask[slot] = False
                self._mask[slot, legal] = True
                return
            self._play(slot, legal[0])
        else:
            self._truncated[slot] = bool(self._call(slot, "cut_off", game.cut_off))
            if not self._truncated[slot]:
                self._returns[slot] = self._outcome(slot)
        self._seats[slot] = FINISHED
        self._mask[slot] = False

    def _legal(self, slot: int) -> list[int]:
        actions = self._call(slot, "legal", lambda: list(self._games[slot].legal()))
        if not actions:
            self._fail(slot, "legal()", "returned no action", "Return at least one, or let seat() return None.")
        plain = set(map(type, actions)) == {int}  # the usual case, checked without a call for each action
        numbers = plain or all(_is_number(action, self.spec.actions) for action in actions)
        if not numbers or not 0 <= min(actions) <= max(actions) < self.spec.actions:
            hint = f"Return the numbers of the legal actions, from 0 to {self.spec.actions - 1}, and no mask."
            self._fail(slot, "legal()", f"returned {actions!r}", hint)
        if len(set(actions)) < len(actions):
            self._fail(slot, "legal()", f"returned {actions!r}", "Return each action once.")
        return actions if plain else [int(action) for action in actions]

    def _checked(self, slot: int, seat: int, observation: Any) -> NDArray[Any]:
        size, kind, call = self.spec.observation_size, self.spec.observation_type, f"observe({seat})"
        try:
            array = np.asarray(observation)
            typed = array.astype(kind).reshape(-1)
        except (TypeError, ValueError) as error:
            self._fail(slot, call, f"returned no numbers ({error})", "Return a list or an array of numbers.")
        if array.size != size:
            self._fail(slot, call, f"returned {array.size} numbers", f"Return {size}, or change observation_size.")
        if kind is np.float32 and not np.isfinite(typed).all():
            index = int(np.isfinite(typed).argmin())
            self._fail(slot, call, f"returned {typed[index]} at index {index}", "Look for divisions by 0.")
        if kind is np.uint8 and array.dtype != np.uint8 and (array.reshape(-1) != typed).any():
            hint = "Return whole numbers from 0 to 255, or set observation_type = numpy.float32."
            self._fail(slot, call, "returned a number that uint8 does not hold", hint)
        return typed

    def _outcome(self, slot: int) -> Floats:
        returns = self._call(slot, "returns", self._games[slot].returns)
        try:
            outcome = np.asarray(returns, dtype=np.float32) / np.float32(self.spec.outcome_scale)
        except (TypeError, ValueError):
            outcome = np.empty(0, dtype=np.float32)
        if outcome.shape != (self.spec.players,):
            self._fail(slot, "returns()", f"returned {returns!r}", f"Return {self.spec.players} numbers, one a seat.")
        if not np.abs(outcome).max() <= 1 + TOLERANCE or abs(outcome.sum()) > TOLERANCE:
            hint = (
                "Their sum has to be 0: subtract their mean. None may be beyond outcome_scale, here "
                f"{self.spec.outcome_scale:g}: set it to the largest possible outcome."
            )
            self._fail(slot, "returns()", f"returned {returns!r}", hint)
        return outcome

    def _call(self, slot: int, method: str, function: Callable[..., R], *arguments: Any) -> R:
        """Call a method of a slot's game. Raises ``BrokenGame`` if the method raises."""
        try:
            return function(*arguments)
        except Exception as error:  # a user's method may raise anything
            words = ", ".join(map(repr, arguments)) if method in ("play", "observe") else ""
            what = f"raised {type(error).__name__}: {located(error)}"
            raise self._broken(slot, f"{method}({words})", what, "Fix the method.") from error

    def _fail(self, slot: int, call: str, what: str, hint: str) -> NoReturn:
        raise self._broken(slot, call, what, hint)

    def _broken(self, slot: int, call: str, what: str, hint: str) -> BrokenGame:
        where = f"after move {len(self._histories[slot])} of the game of seed {self._seeds[slot]}"
        return BrokenGame(f"{self._name}: {call} {what} {where}.", hint=hint)


def _is_number(value: Any, count: int) -> bool:
    """Return whether a value is an integer in [0, ``count``)."""
    return isinstance(value, int | np.integer) and type(value) is not bool and bool(0 <= value < count)
