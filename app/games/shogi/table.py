"""Many games of Shogi or minishogi at once, by our own rules.

A position is a record of about 100 bytes. Beside it a game keeps its moves, the keys of its positions and the legal
actions of the seat to move; a copy takes only as much of these as is in use. Captured pieces come back by drops, so any
earlier position can occur again, and all keys are kept.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import pyspiel
from numpy.typing import NDArray

from flyball.app.core.kernels import kernel
from flyball.app.games.shogi.bots import levels
from flyball.app.games.shogi.encode import (
    UNIT,
    Layout,
    Numbering,
    arrival_indices,
    direction_numbers,
    plain_numbers,
    see,
)
from flyball.app.games.shogi.replay import LONGEST
from flyball.app.games.shogi.rules import POSITION, WORKSPACE, Lists, new_lists, play, settle
from flyball.app.games.shogi.sfen import parse_sfen
from flyball.app.games.shogi.variant import VARIANTS, Variant
from flyball.app.games.table import (
    FINISHED,
    Floats,
    IllegalAction,
    Indices,
    Mask,
    Seats,
    Table,
    TableSpec,
    UnknownGame,
    dense,
)

VERSION = 1
"""Version of this implementation. It is raised when the same actions could give another game or observation."""


@dataclass(frozen=True, slots=True)
class ShogiRules:
    """A variant and how it is encoded, named as in game strings."""

    name: str = "shogi"
    repetition_planes: bool = False  # see ``flyball.app.games.shogi.encode``
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
    """Return the rules of a game string such as ``shogi(repetition_planes=true)``. Raises ``UnknownGame``."""
    try:
        options: dict[str, Any] = pyspiel.game_parameters_from_string(game)
    except pyspiel.SpielError as error:
        raise UnknownGame(f"{game!r} is no game string ({error}).", hint="Write, for instance, 'shogi'.") from error
    names = [name for name in asdict(ShogiRules()) if name != "name"]
    for option, value in options.items():
        if option != "name" and (option not in names or type(value) is not bool):
            raise UnknownGame(
                f"Flyball's own {options['name']} does not understand {option}={value}.",
                hint=f"Its options are {' and '.join(names)}, true or false.",
            )
    return replace(ShogiRules(), **options)


class ShogiTable(Table):
    """N games at once.

    A game is truncated after ``max_moves`` moves of the players; forced moves count.

    ``history`` holds actions in the numbers of the seats to move. ``sfen`` is the first position, by default the usual
    one. Raises ``UnknownGame`` without a move limit, or ``BadNotation``.
    """

    def __init__(self, rules: ShogiRules, slots: int, max_moves: int | None, sfen: str = "") -> None:
        if max_moves is None or max_moves > LONGEST:
            raise UnknownGame(
                f"{rules.name} needs a move limit of at most {LONGEST}, because a game could go on for ever.",
                hint="Set max_moves, for instance to 500.",
            )
        variant = rules.variant
        layout, self._numbering = Layout(variant, rules.repetition_planes, max_moves), rules.numbering
        planes, (ways, arrivals) = (layout.planes, variant.side, variant.side), arrival_indices(variant)
        self.spec = TableSpec(
            players=2,
            actions=self._numbering.actions,
            observation_size=layout.planes * variant.cells,
            observation_type=np.uint8,
            rules_version=f"flyball-{VERSION}:{rules.game}",
            symmetries=(),  # none, because the mirrored first position is another one
            levels=levels(variant, layout, self._numbering),
            planes=planes,
            scale=float(UNIT),
            decisive=True,
            searchable=True,
            action_planes=ways,
            action_places=arrivals[self._numbering.action],
        )
        self._tables, self._layout = variant.tables, layout.tables
        self._begun = parse_sfen(sfen or variant.sfen, variant)
        self._games = np.zeros(slots, dtype=POSITION)
        self._games["over"] = True
        self._games["winner"] = FINISHED
        self._seats = np.full(slots, FINISHED, dtype=np.int8)  # again, because reading them from all records is slow
        self._lists = new_lists(slots, max_moves)

    def reset(self, slots: Indices, seeds: Sequence[int]) -> None:
        """See ``Table.reset``; seeds are only counted, because no move is random."""
        if len(seeds) != len(slots):
            raise ValueError(f"{len(slots)} slots cannot begin from {len(seeds)} seeds")
        self._games[slots] = self._begun
        _begin(self._tables, self._games, self._lists, dense(slots))
        self._note_seats(slots)

    def seats(self) -> Seats:
        """See ``Table.seats``."""
        return self._seats.copy()

    def observe(self, slots: Indices) -> tuple[NDArray[np.uint8], Mask]:
        """See ``Table.observe``."""
        mask = np.zeros((len(slots), self.spec.actions), dtype=np.bool_)
        _show_legal(self._games, self._lists, dense(slots), self._numbering.number, mask)
        return self.view(slots, self._games["seat"][slots]), mask

    def view(self, slots: Indices, seats: Seats) -> NDArray[np.uint8]:
        """See ``Table.view``."""
        return see(self._tables, self._layout, self._games, dense(slots), np.ascontiguousarray(seats))

    def step(self, slots: Indices, actions: NDArray[np.int32]) -> None:
        """See ``Table.step``."""
        places, numbers = dense(slots), dense(actions)
        inside = (numbers >= 0) & (numbers < self.spec.actions)
        chosen = np.where(inside, self._numbering.action[np.where(inside, numbers, 0)], -1)
        illegal = _first_illegal(self._games, self._lists, places, chosen)
        if illegal >= 0:
            slot = int(slots[illegal])
            legal = self._lists.legal[slot, : self._games["legal"][slot]]
            raise IllegalAction(int(actions[illegal]), slot, np.sort(self._numbering.number[legal]).tolist())
        _play(self._tables, self._games, self._lists, places, chosen)
        self._note_seats(slots)

    def _note_seats(self, slots: Indices) -> None:
        self._seats[slots] = np.where(self._games["over"][slots], FINISHED, self._games["seat"][slots])

    def copy_from(self, other: Self, sources: Indices, targets: Indices) -> None:
        """See ``Table.copy_from``."""
        source = other._games, other._lists
        _copy_games(self._games, self._lists, source, dense(sources), dense(targets))
        self._seats[targets] = other._seats[sources]

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
        played: list[int] = self._numbering.number[self._lists.moves[slot, : self._games["played"][slot]]].tolist()
        return played


@kernel
def _begin(tables: np.void, games: NDArray[np.void], lists: Lists, slots: Indices) -> None:
    """Begin the games in ``slots`` from their present positions."""
    work = np.zeros(1, dtype=WORKSPACE)[0]
    for slot in slots:
        settle(tables, games[slot], lists, slot, work)


@kernel
def _play(tables: np.void, games: NDArray[np.void], lists: Lists, slots: Indices, actions: Indices) -> None:
    """Play legal actions [K] in slots [K], then forced moves."""
    work = np.zeros(1, dtype=WORKSPACE)[0]
    for k in range(len(slots)):
        play(tables, games[slots[k]], lists, slots[k], actions[k])
        settle(tables, games[slots[k]], lists, slots[k], work)


@kernel
def _first_illegal(games: NDArray[np.void], lists: Lists, slots: Indices, actions: Indices) -> int:
    """Return the index of the first illegal action, or -1.

    -1 means that all are legal. ``slots`` and ``actions`` are [K].
    """
    for k in range(len(slots)):
        for j in range(games[slots[k]]["legal"]):
            if lists.legal[slots[k], j] == actions[k]:
                break
        else:
            return k
    return -1


@kernel
def _show_legal(games: NDArray[np.void], lists: Lists, slots: Indices, number: Indices, mask: Mask) -> None:
    """Set the legal actions of ``slots`` in an empty mask [K, A]."""
    for k in range(len(slots)):
        for j in range(games[slots[k]]["legal"]):
            mask[k, number[lists.legal[slots[k], j]]] = True


@kernel
def _copy_games(
    games: NDArray[np.void], lists: Lists, origin: tuple[NDArray[np.void], Lists], sources: Indices, targets: Indices
) -> None:
    """Copy games [K], and as much of their lists as they use."""
    from_games, from_lists = origin
    for k in range(len(sources)):
        source, target = sources[k], targets[k]
        games[target] = from_games[source]
        lists.keys[target, 0] = from_lists.keys[source, 0]
        for ply in range(games[target]["played"]):
            lists.moves[target, ply] = from_lists.moves[source, ply]
            lists.keys[target, ply + 1] = from_lists.keys[source, ply + 1]
        for j in range(games[target]["legal"]):
            lists.legal[target, j] = from_lists.legal[source, j]
