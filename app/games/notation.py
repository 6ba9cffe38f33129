"""Positions in the notation of an engine's protocol, from a game's history."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyspiel

from flyball.app.config import EngineProtocol, GameConfig
from flyball.app.core import FlyballError
from flyball.app.games.catalogue import openspiel_rules, own_shogi
from flyball.app.games.shogi.replay import Replay
from flyball.app.games.shogi.sfen import write_move
from flyball.app.games.shogi.table import ShogiRules

MoveText = Callable[[Any, int], str]
"""Function that writes an OpenSpiel state's legal action as the protocol does."""


class NoNotation(FlyballError):
    """A game that a protocol's engines do not play with these options."""


@dataclass(frozen=True, slots=True)
class EnginePosition:
    """A position as an engine reads it."""

    moves: tuple[str, ...]  # from the start of the game
    legal: dict[str, int]  # the number of each legal action, by its move


def _vertex(state: Any, action: int) -> str:
    text: str = state.action_to_string(action)  # 'B d4': the colour, and a vertex as in GTP
    return text.partition(" ")[2].lower()


def _squares(state: Any, action: int) -> str:
    text: str = pyspiel.chess.action_to_move(action, state.board()).to_lan()
    return text


def _usi(state: Any, action: int) -> str:
    text: str = state.action_to_string(action)
    return text


NOTATIONS: dict[tuple[str, EngineProtocol], MoveText] = {
    ("go", "gtp"): _vertex,
    ("chess", "uci"): _squares,
    ("shogi", "usi"): _usi,
}
"""Writers of moves, by OpenSpiel's name of the game and protocol. A seat's actions have the game's own numbers."""

_VARIABLE = frozenset({"board_size", "komi", "max_game_length"})
"""Game options that engines are given, or need not know."""


class Notation(Protocol):
    """Writes positions of a configuration's game."""

    options: dict[str, Any]
    """The game's options, such as ``board_size``."""

    def position(self, history: Sequence[int]) -> EnginePosition:
        """Return the position after a history of actions, as ``Table.history`` returns it."""


def notation_of(config: GameConfig, protocol: EngineProtocol) -> Notation:
    """Return the notation of a configuration's game. Raises ``NoNotation`` or ``UnknownGame``."""
    shogi = own_shogi(config)
    return ShogiNotation(shogi) if shogi is not None and protocol == "usi" else OpenSpielNotation(config, protocol)


class ShogiNotation(Notation):
    """Positions of our own Shogi and minishogi in USI."""

    def __init__(self, rules: ShogiRules) -> None:
        self.options = {}
        self._variant, self._numbering = rules.variant, rules.numbering

    def position(self, history: Sequence[int]) -> EnginePosition:
        """See ``Notation.position``."""
        game, moves = Replay(self._variant), []
        for number in history:
            action = int(self._numbering.action[number])
            moves.append(write_move(action, game.seat, self._variant))
            game.play(action)
        return EnginePosition(
            tuple(moves), {text: int(self._numbering.number[action]) for text, action in game.moves.items()}
        )


class OpenSpielNotation(Notation):
    """Positions of OpenSpiel's games. Raises ``NoNotation`` or ``UnknownGame``."""

    def __init__(self, config: GameConfig, protocol: EngineProtocol) -> None:
        self._game = openspiel_rules(config).game
        name = self._game.get_type().short_name
        if (name, protocol) not in NOTATIONS:
            spoken_games = ", ".join(f"{game} by {spoken}" for game, spoken in NOTATIONS)
            raise NoNotation(
                f"Engines that speak {protocol} are not asked about {config.game}.",
                hint=f"They play {spoken_games}. A Python player plays any game.",
            )
        self._text = NOTATIONS[name, protocol]
        self.options = self._game.get_parameters()
        usual = pyspiel.load_game(name).get_parameters()
        for option, value in self.options.items():
            if option not in _VARIABLE and value != usual[option]:
                raise NoNotation(
                    f"Engines are not asked about {name} with {option} = {value}.",
                    hint=f"Leave {option} out of the configuration's game.",
                )

    def position(self, history: Sequence[int]) -> EnginePosition:
        """See ``Notation.position``."""
        state, moves = self._game.new_initial_state(), []
        for action in history:
            moves.append(self._text(state, action))
            state.apply_action(action)
        return EnginePosition(tuple(moves), {self._text(state, action): action for action in state.legal_actions()})
