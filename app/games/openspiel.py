"""Tables of OpenSpiel games, by its fast observers; a state is asked for its legal actions once."""

from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import version
from itertools import chain
from math import prod
from random import Random
from typing import Any, Literal, Self

import numpy as np
import pyspiel
from numpy.typing import NDArray
from open_spiel.python.observation import make_observation

from flyball.app.games.codec import Codec, identical
from flyball.app.games.openspiel_samples import is_cooperative, states_told_apart
from flyball.app.games.table import (
    FINISHED,
    TOLERANCE,
    Floats,
    IllegalAction,
    Indices,
    Mask,
    Observations,
    Seats,
    Table,
    UnknownGame,
)

CHANCE = int(pyspiel.PlayerId.CHANCE)
LARGEST = 10_000
"""Features of the largest information state that is learned from unasked, because larger ones are slow."""

Tensor = Literal["observation", "information_state"]
OBSERVATION: Tensor = "observation"
INFORMATION_STATE: Tensor = "information_state"


def players_of(game: str) -> int | None:
    """Return an OpenSpiel game's number of players, None if it does not load."""
    if game.partition("(")[0] not in pyspiel.registered_names():
        return None
    try:
        count: int = pyspiel.load_game(game).num_players()
    except Exception:  # noqa: BLE001 - ``load_game`` says what is wrong
        return None
    return count


def load_game(game: str, players: int) -> Any:
    """Load an OpenSpiel game. Raises ``UnknownGame`` if it cannot be played here."""
    name, registered = game.partition("(")[0], pyspiel.registered_names()
    if name not in registered:  # OpenSpiel's own error lists all of its games
        near = get_close_matches(name, registered)
        url = "https://openspiel.readthedocs.io/en/latest/games.html"
        raise UnknownGame(
            f"OpenSpiel has no game {name!r}.", hint=f"Did you mean {' or '.join(near)}?" if near else f"See {url}"
        )
    try:
        loaded = pyspiel.load_game(game)
    except Exception as error:  # SpielError, but IndexError or RuntimeError for some missing parameters
        parameters = ", ".join(_parameters(name))
        raise UnknownGame(
            f"OpenSpiel does not load {game!r}: {' '.join(str(error).split()).rstrip('.')}.",
            hint=f"Correct the game string; {name} takes {parameters}." if parameters else f"Write it as {name!r}.",
        ) from error
    if loaded.num_players() != players:
        raise UnknownGame(
            f"{game!r} is played by {loaded.num_players()}, the configuration says {players}.",
            hint="Set players and the end of the key accordingly, or the number of players in the game string, for "
            "instance 'maedn(players=4)'. Games for 2 to 7 can be played.",
        )
    _check_suited(loaded, game)
    return loaded


def _parameters(name: str) -> list[str]:
    return next(([*kind.parameter_specification] for kind in pyspiel.registered_games() if kind.short_name == name), [])


def _check_suited(loaded: Any, game: str) -> None:
    """Refuse a game whose moves, tensors or utilities cannot be learned from."""
    kind = loaded.get_type()
    if kind.dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS:
        string = game if "(" in game else f"{game}()"
        raise UnknownGame(
            f"{game!r} cannot be played here as it is: its moves are simultaneous.",
            hint=f"Write 'turn_based_simultaneous_game(game={string})': seats move in turn, without seeing the others' "
            "moves.",
        )
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        raise UnknownGame(f"{game!r} is a mean field game.", hint="Choose a game whose seats move in turn.")
    if not (kind.provides_observation_tensor or kind.provides_information_state_tensor):
        raise UnknownGame(
            f"{game!r} has no tensor to learn from.", hint="Choose a game with an observation or information state."
        )
    if is_cooperative(str(loaded)):
        raise UnknownGame(
            f"{game!r} is cooperative: all seats get the same, and seats learn here to get more than the others.",
            hint="Choose a game that one seat can win.",
        )


class Rules:
    """A loaded game: its rules, codec and scale of outcomes.

    Args:
        game: as ``load_game`` returns it.
        name: the game string.
        codec: None for OpenSpiel's own tensors and action numbers.
        scale: the outcome that counts as 1, in the game's units; None for the codec's, or the largest that the game
            declares.
        tensor: which of OpenSpiel's tensors to learn from; None for the codec's, or the information state if something
            is hidden.
    """

    def __init__(
        self, game: Any, name: str, codec: Codec | None, scale: float | None = None, tensor: Tensor | None = None
    ) -> None:
        self.game, self._name = game, name
        kind = game.get_type()
        self.recalls = _recalls(game, name, codec, tensor)
        self._observer = make_observation(
            game, pyspiel.IIGObservationType(perfect_recall=True) if self.recalls else None
        )
        # The observer without its Python wrapper, because the wrapper doubles the time.
        self._fill = getattr(self._observer, "_observation", self._observer).set_from
        size = self._observer.tensor.size
        self._raw = np.empty((0, size), dtype=np.float32)
        unchanged = identical(game.num_players(), game.num_distinct_actions())
        self.codec = codec or Codec(
            size,
            lambda raw, _: raw.astype(np.float32),
            unchanged,
            kind=np.float32,
            planes=None if self.recalls else _planes(game, size),
        )
        no_chance = kind.chance_mode == pyspiel.GameType.ChanceMode.DETERMINISTIC
        perfect = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
        self._zero_sum = kind.utility == pyspiel.GameType.Utility.ZERO_SUM
        low, high = game.min_utility(), game.max_utility()
        board, won_or_lost = no_chance and perfect, self._zero_sum and (low, high) == (-1, 1)
        if not self._zero_sum:  # the range of a lead
            low, high = low - high, high - low
        self._scale = scale or self.codec.scale or max(-low, high)
        encoding = INFORMATION_STATE if self.recalls and kind.provides_observation_tensor else ""
        self.spec = self.codec.spec(
            f"openspiel-{version('open_spiel')}:{name}" + (encoding and f"+{encoding}"),
            encoding,
            searchable=board,
            decisive=board and won_or_lost and game.num_players() == 2,
            outcomes=(self._scale, max(low / self._scale, -1.0), min(high / self._scale, 1.0)),
        )

    def outcome(self, state: Any) -> Floats:
        """Return the outcome [P] of a finished game.

        It is in [-1, 1] and sums to 0. A zero-sum game's returns are divided by ``spec.outcome_scale``. Other games
        give each seat's lead over the mean of the others, divided alike. Raises ``UnknownGame`` beyond [-1, 1].
        """
        utility = np.asarray(state.returns())
        if not self._zero_sum:
            utility = utility - (utility.sum() - utility) / (len(utility) - 1)
        outcome: Floats = (utility / self._scale).astype(np.float32)
        if np.abs(outcome).max() > 1 + TOLERANCE:
            raise UnknownGame(
                f"A game of {self._name!r} ended with the outcomes {utility.tolist()}, beyond outcome_scale = "
                f"{self._scale:g}.",
                hint=f"Set outcome_scale to the largest possible outcome, at least {np.abs(utility).max():g}.",
            )
        return outcome

    def observe(self, states: Sequence[Any], seats: Seats) -> Observations:
        """Return the observations [K, D] of ``seats`` [K] in ``states`` [K]."""
        tensor, fill = self._observer.tensor, self._fill
        if len(states) > len(self._raw):  # memory is reused, because new pages cost as much as filling them
            self._raw = np.empty((len(states), tensor.size), dtype=np.float32)
        source, sink = tensor.data.cast("B"), self._raw.data.cast("B")
        ends = range(tensor.nbytes, (len(states) + 1) * tensor.nbytes, tensor.nbytes)
        for end, state, seat in zip(ends, states, seats.tolist(), strict=True):
            fill(state, seat)
            sink[end - tensor.nbytes : end] = source
        return self.codec.encode(self._raw[: len(states)], seats)

    def told_apart(self, seed: int) -> tuple[int, int] | None:
        """Return how many states of a sample are told apart, of how many.

        None if the game does not name its information states, or nothing is hidden: then states are told apart by
        what lies on the board, not by how it came there.
        """
        if self.game.get_type().information == pyspiel.GameType.Information.PERFECT_INFORMATION:
            return None

        def see(state: Any) -> bytes:
            return self.observe([state], np.array([state.current_player()], dtype=np.int8)).tobytes()

        return states_told_apart(self.game, see, seed)

    def masks(self, legal: Sequence[Sequence[int]], seats: Seats) -> Mask:
        """Return masks [K, A] of the legal actions of ``seats`` [K]. ``legal`` has the game's own numbers."""
        counts = list(map(len, legal))
        flat = np.fromiter(chain.from_iterable(legal), dtype=np.int64, count=sum(counts))
        rows = np.repeat(np.arange(len(legal)), counts)
        mask = np.zeros((len(legal), self.spec.actions), dtype=np.bool_)
        mask[rows, self.codec.from_game[seats[rows], flat]] = True
        return mask


def _recalls(game: Any, name: str, codec: Codec | None, tensor: Tensor | None) -> bool:
    """Return whether to learn from information states."""
    kind = game.get_type()
    has = {OBSERVATION: kind.provides_observation_tensor, INFORMATION_STATE: kind.provides_information_state_tensor}
    if tensor is not None and codec is not None:
        raise UnknownGame(f"{name!r} has an encoding of Flyball's own.", hint="Leave observation out.")
    if tensor is not None and not has[tensor]:
        raise UnknownGame(f"{name!r} has no tensor {tensor!r} in OpenSpiel.", hint="Leave observation out.")
    if tensor is None:
        hidden = kind.information != pyspiel.GameType.Information.PERFECT_INFORMATION
        suits = hidden and has[INFORMATION_STATE] and game.information_state_tensor_size() <= LARGEST
        return not has[OBSERVATION] or (suits and codec is None)
    return tensor == INFORMATION_STATE


def _planes(game: Any, size: int) -> tuple[int, int, int] | None:
    """Return the shape of a game's observations if they are planes of ``size`` numbers, otherwise None."""
    shape = game.observation_tensor_shape()
    grid = len(shape) == 3 and game.observation_tensor_layout() == pyspiel.TensorLayout.CHW and prod(shape) == size
    return (shape[0], shape[1], shape[2]) if grid else None


class OpenSpielTable(Table):
    """N games of OpenSpiel at once, each truncated after ``max_moves`` moves of the players; forced moves count."""

    def __init__(self, rules: Rules, slots: int, max_moves: int | None = None) -> None:
        self.spec = rules.spec
        self._rules = rules
        self._limit = max_moves
        self._states: list[Any] = [None] * slots
        self._legal: list[list[int]] = [[]] * slots
        self._chance: list[Random] = [Random(0)] * slots
        self._moves = [0] * slots
        self._seats = np.full(slots, FINISHED, dtype=np.int8)
        self._returns = np.zeros((slots, self.spec.players), dtype=np.float32)
        self._truncated = np.zeros(slots, dtype=np.bool_)

    def told_apart(self, seed: int) -> tuple[int, int] | None:
        """See ``Rules.told_apart``."""
        return self._rules.told_apart(seed)

    def reset(self, slots: Indices, seeds: Sequence[int]) -> None:
        """See ``Table.reset``."""
        self._returns[slots] = 0
        self._truncated[slots] = False
        for slot, seed in zip(slots.tolist(), seeds, strict=True):
            self._states[slot] = self._rules.game.new_initial_state()
            self._chance[slot] = Random(seed)
            self._moves[slot] = 0
        self._settle(slots)

    def seats(self) -> Seats:
        """See ``Table.seats``."""
        return self._seats.copy()

    def observe(self, slots: Indices) -> tuple[Observations, Mask]:
        """See ``Table.observe``."""
        seats = self._seats[slots]
        legal = [self._legal[slot] for slot in slots.tolist()]
        return self.view(slots, seats), self._rules.masks(legal, seats)

    def view(self, slots: Indices, seats: Seats) -> Observations:
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
            self._moves[slot] += 1
        self._settle(slots)

    def copy_from(self, other: Self, sources: Indices, targets: Indices) -> None:
        """See ``Table.copy_from``."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self._states[target] = other._states[source].clone()
            self._legal[target], self._moves[target] = other._legal[source], other._moves[source]
        for name in ("_seats", "_returns", "_truncated"):
            getattr(self, name)[targets] = getattr(other, name)[sources]

    def returns(self) -> Floats:
        """See ``Table.returns``."""
        return self._returns.copy()

    def truncated(self) -> Mask:
        """See ``Table.truncated``."""
        return self._truncated.copy()

    def history(self, slot: int) -> list[int]:
        """See ``Table.history``."""
        return [int(action) for action in self._states[slot].history()]

    def _settle(self, slots: Indices) -> None:
        """Play chance and forced moves until a seat has a choice, or the game is over or at its limit."""
        moves, limit, seats = self._moves, self._limit, []
        for slot in slots.tolist():
            state = self._states[slot]
            while True:
                seat: int = state.current_player()
                legal: list[int] = state.legal_actions()
                if seat == CHANCE:
                    state.apply_action(self._draw(slot, state, legal))
                elif seat < 0 or moves[slot] == limit:
                    if seat < 0:
                        self._returns[slot] = self._rules.outcome(state)
                    else:
                        self._truncated[slot] = True
                    seat, legal = FINISHED, []
                    break
                elif len(legal) > 1:
                    break
                else:
                    state.apply_action(legal[0])
                    moves[slot] += 1
            self._legal[slot] = legal
            seats.append(seat)
        self._seats[slots] = seats

    def _draw(self, slot: int, state: Any, legal: list[int]) -> int:
        point = self._chance[slot].random()
        if self._rules.codec.uniform_chance:
            return legal[int(point * len(legal))]
        for action, probability in state.chance_outcomes():
            point -= probability
            if point < 0:
                return int(action)
        return legal[-1]
