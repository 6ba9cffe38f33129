"""Many games of Shogi or minishogi at once, by our own rules.

A position is a record of about 100 bytes. Beside it a game keeps its moves, the keys of its positions and the legal
actions of the seat to move; a copy takes only as much of these as is in use. Captured pieces come back by drops, so any
earlier position can occur again, and all keys are kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import pyspiel
from numpy.typing import NDArray

from app.core.kernels import kernel
from app.games.shogi.encode import UNIT, Layout, Numbering, direction_numbers, plain_numbers, see
from app.games.shogi.rules import POSITION, WORKSPACE, Keys, Position, move, settle
from app.games.shogi.sfen import parse_sfen
from app.games.shogi.variant import MOST_LEGAL, VARIANTS, Variant
from app.games.table import FINISHED, Floats, Heuristic, IllegalAction, Indices, Mask, Seats, Table, TableSpec, UnknownGame

VERSION = 1
"""Version of this implementation: raised when the same actions could give another game or observation."""

LONGEST = 4096
"""Largest move limit."""


@dataclass(frozen=True, slots=True)
class ShogiRules:
    """A variant and how it is encoded, named as in game strings."""

    name: str = "shogi"
    repetition_planes: bool = False  # see ``app.games.shogi.encode``
    direction_actions: bool = False  # actions are a square and a way to move; see ``direction_numbers``

    @property
    def variant(self) -> Variant:
        """The board and the pieces."""
        return VARIANTS[self.name]

    @property
    def game(self) -> str:
        """Game string of these rules, without defaults."""
        chosen = [f"{name}=true" for name, value in asdict(self).items() if value is True]
        return f"{self.name}({','.join(chosen)})" if chosen else self.name

    @property
    def numbering(self) -> Numbering:
        """The numbers of actions."""
        return direction_numbers(self.variant) if self.direction_actions else plain_numbers(self.variant)


def parse_rules(game: str) -> ShogiRules:
    """Return the rules of a game string, for instance ``shogi(repetition_planes=true)``.

    Raises ``UnknownGame`` for another game or option.
    """
    try:
        options: dict[str, Any] = pyspiel.game_parameters_from_string(game)
    except pyspiel.SpielError as error:
        raise UnknownGame(f"{game!r} is no game string ({error}).", hint="Write, for instance, 'shogi'.") from error
    known = [name for name in asdict(ShogiRules()) if name != "name"]
    for option, value in options.items():
        if option != "name" and (option not in known or type(value) is not bool):
            raise UnknownGame(
                f"Flyball's own {options['name']} does not understand {option}={value}.",
                hint=f"Its options are {' and '.join(known)}, true or false.",
            )
    return replace(ShogiRules(), **options)


class ShogiTable(Table):
    """N games at once, truncated after ``max_moves`` moves of the players, forced ones included.

    ``history`` holds actions in the numbers of the seats to move. ``sfen`` is the first position, by default the usual
    one. Raises ``UnknownGame`` without a move limit, or ``BadNotation``.
    """

    def __init__(
        self, rules: ShogiRules, levels: Mapping[str, Heuristic], slots: int, max_moves: int | None, sfen: str = ""
    ) -> None:
        if max_moves is None or max_moves > LONGEST:
            raise UnknownGame(
                f"{rules.name} needs a move limit of at most {LONGEST}, because a game could go on for ever.",
                hint="Set max_moves, for instance to 500.",
            )
        variant = rules.variant
        layout, self._numbering = Layout(variant, rules.repetition_planes), rules.numbering
        planes = (layout.planes, variant.side, variant.side)
        self.spec = TableSpec(
            players=2,
            actions=self._numbering.actions,
            observation_size=layout.planes * variant.cells,
            observation_type=np.uint8,
            rules_version=f"flyball-{VERSION}:{rules.game}",
            symmetries=(),  # mirrored, the first position is another one
            levels=levels,
            planes=planes,
            scale=float(UNIT),
            searchable=True,
        )
        self._tables, self._layout, self._limit = variant.tables, layout.tables, max_moves
        self._begun = parse_sfen(sfen or variant.sfen, variant)
        self._games = np.zeros(slots, dtype=POSITION)
        self._games["over"] = True
        self._games["winner"] = FINISHED
        self._moves = np.zeros((slots, max_moves), dtype=np.uint16)
        self._keys = np.zeros((slots, max_moves + 1), dtype=np.uint64)
        self._legal = np.zeros((slots, MOST_LEGAL), dtype=np.uint16)

    def reset(self, slots: Indices, seeds: Sequence[int]) -> None:
        """See ``Table.reset``; seeds are only counted, because no move is random."""
        if len(seeds) != len(slots):
            raise ValueError(f"{len(slots)} slots cannot begin from {len(seeds)} seeds")
        self._games[slots] = self._begun
        _begin(self._tables, self._games, _dense(slots), self._moves, self._keys, self._legal)

    def seats(self) -> Seats:
        """See ``Table.seats``."""
        return np.where(self._games["over"], np.int8(FINISHED), self._games["seat"])

    def observe(self, slots: Indices) -> tuple[NDArray[np.uint8], Mask]:
        """See ``Table.observe``."""
        mask = np.zeros((len(slots), self.spec.actions), dtype=np.bool_)
        _show_legal(self._games, _dense(slots), self._legal, self._numbering.number, mask)
        return self.view(slots, self._games["seat"][slots]), mask

    def view(self, slots: Indices, seats: Seats) -> NDArray[np.uint8]:
        """See ``Table.view``."""
        return see(self._tables, self._layout, self._games, _dense(slots), np.ascontiguousarray(seats), self._limit)

    def step(self, slots: Indices, actions: NDArray[np.int32]) -> None:
        """See ``Table.step``."""
        places, numbers = _dense(slots), _dense(actions)
        inside = (numbers >= 0) & (numbers < self.spec.actions)
        chosen = np.where(inside, self._numbering.action[np.where(inside, numbers, 0)], -1)
        illegal = _first_illegal(self._games, places, self._legal, chosen)
        if illegal >= 0:
            slot = int(slots[illegal])
            legal = self._legal[slot, : self._games["legal"][slot]]
            raise IllegalAction(int(actions[illegal]), slot, np.sort(self._numbering.number[legal]).tolist())
        _play(self._tables, self._games, places, chosen, self._moves, self._keys, self._legal)

    def copy_from(self, other: Self, sources: Indices, targets: Indices) -> None:
        """See ``Table.copy_from``."""
        self._games[targets] = other._games[sources]
        ours, theirs = (self._moves, self._keys, self._legal), (other._moves, other._keys, other._legal)
        _copy_used(self._games, *ours, *theirs, _dense(sources), _dense(targets))

    def returns(self) -> Floats:
        """See ``Table.returns``."""
        winner = self._games["winner"][:, None]
        won = np.where(winner == FINISHED, 0, np.where(winner == np.arange(2), 1, -1))
        return won.astype(np.float32)

    def truncated(self) -> Mask:
        """See ``Table.truncated``."""
        return np.array(self._games["truncated"])

    def history(self, slot: int) -> list[int]:
        """See ``Table.history``."""
        played: list[int] = self._numbering.number[self._moves[slot, : self._games["played"][slot]]].tolist()
        return played

    def position(self, slot: int) -> Position:
        """Return a copy of the position in a slot."""
        return self._games[slot].copy()


def _dense(numbers: NDArray[np.integer]) -> Indices:
    """Return slots or actions as contiguous int64, as the kernels are compiled for."""
    return np.ascontiguousarray(numbers, dtype=np.int64)


_Lists = NDArray[np.uint16]


@kernel
def _begin(
    tables: np.void, games: NDArray[np.void], slots: Indices, moves: _Lists, keys: Keys, legal: _Lists
) -> None:
    work = np.zeros(1, dtype=WORKSPACE)[0]
    for slot in slots:
        settle(tables, games[slot], moves[slot], keys[slot], legal[slot], work)


@kernel
def _play(
    tables: np.void,
    games: NDArray[np.void],
    slots: Indices,
    actions: Indices,
    moves: _Lists,
    keys: Keys,
    legal: _Lists,
) -> None:
    """Play legal actions [K] in slots [K], then forced moves."""
    work = np.zeros(1, dtype=WORKSPACE)[0]
    for k in range(len(slots)):
        slot, game = slots[k], games[slots[k]]
        moves[slot, game["played"]] = actions[k]
        game["played"] += 1
        move(tables, game, actions[k])
        settle(tables, game, moves[slot], keys[slot], legal[slot], work)


@kernel
def _first_illegal(games: NDArray[np.void], slots: Indices, legal: _Lists, actions: Indices) -> int:
    """Return the index of the first illegal action in ``actions`` [K], -1 if all are legal."""
    for k in range(len(slots)):
        for j in range(games[slots[k]]["legal"]):
            if legal[slots[k], j] == actions[k]:
                break
        else:
            return k
    return -1


@kernel
def _show_legal(games: NDArray[np.void], slots: Indices, legal: _Lists, number: Indices, mask: Mask) -> None:
    """Set the legal actions of ``slots`` [K] in an empty mask [K, A]."""
    for k in range(len(slots)):
        for j in range(games[slots[k]]["legal"]):
            mask[k, number[legal[slots[k], j]]] = True


@kernel
def _copy_used(
    games: NDArray[np.void],
    moves: _Lists,
    keys: Keys,
    legal: _Lists,
    from_moves: _Lists,
    from_keys: Keys,
    from_legal: _Lists,
    sources: Indices,
    targets: Indices,
) -> None:
    """Copy what the copied ``games`` use of the arrays."""
    for k in range(len(sources)):
        source, target = sources[k], targets[k]
        played, count = int(games[target]["played"]), int(games[target]["legal"])
        moves[target, :played] = from_moves[source, :played]
        keys[target, : played + 1] = from_keys[source, : played + 1]
        legal[target, :count] = from_legal[source, :count]
