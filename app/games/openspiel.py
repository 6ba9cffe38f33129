"""Games of OpenSpiel behind the ``Table`` port, with its fast observers and one list of legal actions a decision."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib.metadata import version
from itertools import chain
from random import Random
from typing import Any

import numpy as np
import pyspiel
from numpy.typing import NDArray
from open_spiel.python.observation import make_observation

from app.games import boards
from app.games.codec import Codec, identical
from app.games.table import FINISHED, Floats, IllegalAction, Indices, Mask, Observations, TableSpec, UnknownGame
from app.games.tricks import hearts, oh_hell

CHANCE = int(pyspiel.PlayerId.CHANCE)


class Rules:
    """A loaded game: its rules, its codec and the scale of its outcomes."""

    def __init__(self, game: str, players: int) -> None:
        self.game = load_game(game, players)
        kind = self.game.get_type()
        recall = None if kind.provides_observation_tensor else pyspiel.IIGObservationType(perfect_recall=True)
        self.observer = make_observation(self.game, recall)
        # Below its wrapper, which takes as long again.
        self._fill = getattr(self.observer, "_observation", self.observer).set_from
        self._raw = np.empty((0, self.observer.tensor.size), dtype=np.float32)
        self.codec: Codec = codec_for(self.game, self.observer.tensor.size)
        self.spec = TableSpec(
            players=players,
            actions=self.codec.to_game.shape[1],
            observation_size=self.codec.size,
            observation_type=self.codec.kind,
            rules_version=f"openspiel-{version('open_spiel')}:{game}",
            symmetries=self.codec.symmetries,
            heuristic=self.codec.heuristic,
        )
        self._zero_sum = kind.utility == pyspiel.GameType.Utility.ZERO_SUM
        low, high = self.game.min_utility(), self.game.max_utility()
        self._scale = self.codec.scale or (max(-low, high) if self._zero_sum else high - low)

    def outcome(self, state: Any) -> Floats:
        """Return the returns of a finished game [P], in [-1, 1] and summing to 0.

        Those of a zero-sum game are divided by the largest one; of any other game, each seat's lead over the mean
        of the others by the range of the utility (in Hearts by 26, the hand's points).
        """
        utility = np.asarray(state.returns())
        if not self._zero_sum:
            others = (utility.sum() - utility) / (len(utility) - 1)
            utility = utility - others
        return (utility / self._scale).astype(np.float32)

    def observe(self, states: Sequence[Any], seats: NDArray[np.int8]) -> Observations:
        """Return what ``seats`` [K] know in ``states`` [K], as [K, D]."""
        tensor, fill = self.observer.tensor, self._fill
        if len(states) > len(self._raw):  # the same memory every time: fresh pages cost as much as filling them
            self._raw = np.empty((len(states), tensor.size), dtype=np.float32)
        source, sink = tensor.data.cast("B"), self._raw.data.cast("B")
        ends = range(tensor.nbytes, (len(states) + 1) * tensor.nbytes, tensor.nbytes)
        for end, state, seat in zip(ends, states, seats.tolist(), strict=True):
            fill(state, seat)
            sink[end - tensor.nbytes : end] = source
        return self.codec.encode(self._raw[: len(states)], seats)

    def masks(self, legal: Sequence[Sequence[int]], seats: NDArray[np.int8]) -> NDArray[np.bool_]:
        """Return the legal actions [K, A] of ``seats``, given the game's own numbers of them."""
        counts = list(map(len, legal))
        flat = np.fromiter(chain.from_iterable(legal), dtype=np.int64, count=sum(counts))
        rows = np.repeat(np.arange(len(legal)), counts)
        mask = np.zeros((len(legal), self.spec.actions), dtype=np.bool_)
        mask[rows, self.codec.from_game[seats[rows], flat]] = True
        return mask


class OpenSpielTable:
    """N games of OpenSpiel at once; see ``Table``.

    Args:
        game: an OpenSpiel game string.
        players: number of seats, which the game string must agree with.
        slots: N.
        max_moves: moves of the players, forced ones included, after which a game is truncated.

    Raises ``UnknownGame``.
    """

    def __init__(self, game: str, players: int, slots: int, max_moves: int | None = None) -> None:
        self._rules = Rules(game, players)
        self._limit = max_moves
        self._states: list[Any] = [None] * slots
        self._legal: list[list[int]] = [[]] * slots
        self._chance: list[Random] = [Random(0)] * slots
        self._moves = np.zeros(slots, dtype=np.int64)
        self._seats = np.full(slots, FINISHED, dtype=np.int8)
        self._returns = np.zeros((slots, players), dtype=np.float32)
        self._truncated = np.zeros(slots, dtype=np.bool_)

    @property
    def spec(self) -> TableSpec:
        """See ``Table.spec``."""
        return self._rules.spec

    def reset(self, slots: Indices, seeds: Sequence[int]) -> None:
        """See ``Table.reset``."""
        self._returns[slots] = 0
        self._truncated[slots] = False
        for slot, seed in zip(slots.tolist(), seeds, strict=True):
            self._states[slot] = self._rules.game.new_initial_state()
            self._chance[slot] = Random(seed)
        self._moves[slots] = 0
        self._settle(slots)

    def seats(self) -> NDArray[np.int8]:
        """See ``Table.seats``."""
        return self._seats.copy()

    def observe(self, slots: Indices) -> tuple[Observations, Mask]:
        """See ``Table.observe``."""
        seats = self._seats[slots]
        legal = [self._legal[slot] for slot in slots.tolist()]
        return self.view(slots, seats), self._rules.masks(legal, seats)

    def view(self, slots: Indices, seats: NDArray[np.int8]) -> Observations:
        """See ``Table.view``."""
        return self._rules.observe([self._states[slot] for slot in slots.tolist()], seats)

    def step(self, slots: Indices, actions: NDArray[np.int32]) -> None:
        """See ``Table.step``."""
        chosen = self._rules.codec.to_game[self._seats[slots], actions].tolist()
        states, legal, moved = self._states, self._legal, slots.tolist()
        for slot, action in zip(moved, chosen, strict=True):
            if action not in legal[slot]:
                raise IllegalAction(action, slot, legal[slot])
        for slot, action in zip(moved, chosen, strict=True):
            states[slot].apply_action(action)
        self._moves[slots] += 1
        self._settle(slots)

    def earned(self, slots: Indices, seats: NDArray[np.int8]) -> Floats:  # noqa: ARG002
        """See ``Table.earned``; only the end is rewarded."""
        return np.zeros(len(slots), dtype=np.float32)

    def returns(self) -> Floats:
        """See ``Table.returns``."""
        return self._returns.copy()

    def truncated(self) -> NDArray[np.bool_]:
        """See ``Table.truncated``."""
        return self._truncated.copy()

    def history(self, slot: int) -> list[int]:
        """See ``Table.history``."""
        return [int(action) for action in self._states[slot].history()]

    def _settle(self, slots: Indices) -> None:
        """Play chance and forced moves until a seat has a choice, or the game is over."""
        states, legal, settled = self._states, self._legal, slots.tolist()
        full = (self._moves[slots] == (-1 if self._limit is None else self._limit)).tolist()
        seats = []
        for slot, at_limit in zip(settled, full, strict=True):
            state = states[slot]
            seat, actions = state.current_player(), state.legal_actions()
            if seat < 0 or at_limit or len(actions) == 1:
                seat, actions = self._advance(slot, state)
            legal[slot] = actions
            seats.append(seat)
        self._seats[slots] = seats

    def _advance(self, slot: int, state: Any) -> tuple[int, list[int]]:
        """Play what nobody chooses; return the seat that has a choice and its actions, or ``FINISHED`` and none."""
        while True:
            seat: int = state.current_player()
            actions: list[int] = state.legal_actions()
            if seat == CHANCE:
                state.apply_action(self._draw(slot, state, actions))
            elif seat < 0 or self._moves[slot] == self._limit:
                if seat < 0:
                    self._returns[slot] = self._rules.outcome(state)
                else:
                    self._truncated[slot] = True
                return FINISHED, []
            elif len(actions) > 1:
                return seat, actions
            else:
                state.apply_action(actions[0])
                self._moves[slot] += 1

    def _draw(self, slot: int, state: Any, legal: list[int]) -> int:
        point = self._chance[slot].random()
        if self._rules.codec.uniform_chance:
            return legal[int(point * len(legal))]
        for action, probability in state.chance_outcomes():
            point -= probability
            if point < 0:
                return int(action)
        return legal[-1]


def load_game(game: str, players: int) -> Any:
    """Load an OpenSpiel game for ``players``. Raises ``UnknownGame`` when it is unknown or cannot be played here."""
    name, known = game.partition("(")[0], pyspiel.registered_names()
    if name not in known:  # OpenSpiel's own error lists all of its games
        near = get_close_matches(name, known)
        url = "https://openspiel.readthedocs.io/en/latest/games.html"
        raise UnknownGame(
            f"OpenSpiel has no game {name!r}.", hint=f"Did you mean {' or '.join(near)}?" if near else f"See {url}"
        )
    try:
        loaded = pyspiel.load_game(game)
    except pyspiel.SpielError as error:
        raise UnknownGame(
            f"OpenSpiel does not load {game!r}: {' '.join(str(error).split()).rstrip('.')}.",
            hint="Correct the game string in the configuration.",
        ) from error
    kind = loaded.get_type()
    if loaded.num_players() != players:
        raise UnknownGame(
            f"{game!r} is played by {loaded.num_players()}, the configuration says {players}.",
            hint="Set the number of players in the game string too, for instance 'maedn(players=4)'.",
        )
    sequential = kind.dynamics == pyspiel.GameType.Dynamics.SEQUENTIAL
    if not sequential or not (kind.provides_observation_tensor or kind.provides_information_state_tensor):
        raise UnknownGame(
            f"{game!r} cannot be played here: its moves are simultaneous, or it has no tensor to learn from.",
            hint="Choose a sequential game with an observation or information state tensor.",
        )
    return loaded


_BUILDERS: dict[str, tuple[Callable[..., Codec], tuple[str, ...]]] = {
    "breakthrough": (boards.breakthrough, ("rows", "columns")),
    "chinese_checkers": (boards.chinese_checkers, ("players",)),
    "clobber": (boards.clobber, ("rows", "columns")),
    "connect_four": (boards.connect_four, ("rows", "columns")),
    "go": (boards.go, ("board_size",)),
    "hearts": (hearts, ("qs_breaks_hearts",)),
    "hex": (boards.hex_board, ("board_size",)),
    "maedn": (boards.maedn, ("players",)),
    "oh_hell": (oh_hell, ("players",)),
    "othello": (boards.othello, ()),
    "tic_tac_toe": (boards.tic_tac_toe, ()),
    "ultimate_tic_tac_toe": (boards.ultimate_tic_tac_toe, ()),
}
"""Codecs by game, with the options that change their layout; any other game is seen as OpenSpiel shows it."""

_HARMLESS = frozenset(
    {
        *("handicap", "komi", "max_game_length", "max_moves", "string_rep", "twoPlayersOpposite", "x_in_row"),
        *("off_bid_penalty", "points_per_trick"),
        *("avoid_all_tricks_bonus", "can_lead_any_club", "can_lead_hearts_instead_of_qs", "jd_bonus"),
        *("must_break_hearts", "no_pts_on_first_trick", "pass_cards"),
    }
)
"""Options that change neither the actions nor where OpenSpiel shows what. With any other, a game is seen as it does."""


def codec_for(game: Any, tensor_size: int) -> Codec:
    """Return the codec of an OpenSpiel game whose observer's tensor has ``tensor_size`` features."""
    name = game.get_type().short_name
    if name in _BUILDERS:
        builder, wanted = _BUILDERS[name]
        parameters = game.get_parameters()
        layout = {key: parameters[key] for key in wanted if key in parameters}
        usual = pyspiel.load_game(name, layout).get_parameters()
        if all(value == usual[key] for key, value in parameters.items() if key not in _HARMLESS):
            return builder(**layout)
    unchanged = identical(game.num_players(), game.num_distinct_actions())
    return Codec(tensor_size, lambda raw, _seats: raw.astype(np.float32), unchanged, kind=np.float32)
