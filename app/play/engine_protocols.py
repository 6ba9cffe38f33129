"""Engine protocols: how to ask about a position and read the answer.

Sources: Go Text Protocol, version 2 (https://www.lysator.liu.se/~gunnar/gtp); UCI, April 2006
(https://backscattering.de/chess/uci); USI (http://shogidokoro.starfree.jp/usi.html). Before each question the engine's
memory is cleared, so that its answer does not depend on other games.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple, Protocol

from flyball.app.config import BotSettings, EngineProtocol
from flyball.app.core import FlyballError
from flyball.app.games.notation import EnginePosition

RESIGNED = "resign"
"""The move of an engine that resigns."""


class EngineFault(FlyballError):
    """An engine that ended, answered too late, or broke its protocol."""


class Exchange(NamedTuple):
    """Commands for an engine, and how to read its answer."""

    commands: tuple[str, ...]
    last: tuple[str, ...]  # the answer's last line begins with one of these words
    read: Callable[[Sequence[str]], str]  # returns the answer's content; raises ``EngineFault``


class EngineSpeech(Protocol):
    """A protocol, configured by a bot's settings."""

    @property
    def start(self) -> tuple[Exchange, ...]:
        """The exchanges that follow an engine's start."""

    def question(self, position: EnginePosition, point: float) -> Exchange:
        """Return the exchange that asks for a move; ``point`` in [0, 1) seeds the engine, if the protocol can."""


class Gtp:
    """Go Text Protocol; ``game`` holds the game's options. Commands and their answers are numbered."""

    def __init__(self, settings: BotSettings, game: Mapping[str, Any]) -> None:
        self._board: tuple[str, ...] = (f"boardsize {game['board_size']}", "clear_board", f"komi {game['komi']:g}")
        if settings.seconds is not None:
            self._board += (f"time_settings 0 {ceil(settings.seconds)} 1",)
        options = (f"{name} {_written(value)}" for name, value in settings.options.items())
        self.start = (_numbered_exchange(("protocol_version", *options)),)

    def question(self, position: EnginePosition, point: float) -> Exchange:
        """See ``EngineSpeech.question``."""
        played = [f"play {'bw'[number % 2]} {move}" for number, move in enumerate(position.moves)]
        request = f"genmove {'bw'[len(played) % 2]}"
        # The engine may refuse the seed command, because it is common but not part of the standard.
        return _numbered_exchange(
            (f"set_random_seed {int(point * 2**31)}", *self._board, *played, request), may_refuse=1
        )


def _numbered_exchange(commands: tuple[str, ...], may_refuse: int = 0) -> Exchange:
    """Return an exchange of GTP commands, numbered from 1. The engine may refuse the first ``may_refuse`` of them."""

    def read(lines: Sequence[str]) -> str:
        for line in lines:
            number, _, reason = line[1:].partition(" ")
            if line.startswith("?") and not (number.isdecimal() and int(number) <= may_refuse):
                refused = commands[int(number) - 1] if number.isdecimal() and int(number) <= len(commands) else line
                raise EngineFault(f"it refused {refused!r}: {reason.strip()}")
        return lines[-1].partition(" ")[2].strip().lower()

    last = len(commands)
    numbered = tuple(f"{number} {command}" for number, command in enumerate(commands, 1))
    return Exchange(numbered, (f"={last}", f"?{last}"), read)


class Uci:
    """Universal Chess Interface."""

    hello, ready, new_game = "uci", "uciok", "ucinewgame"

    def __init__(self, settings: BotSettings, game: Mapping[str, Any]) -> None:  # noqa: ARG002 - as of ``Gtp``
        self._options = settings.options
        self._limits = self.limits(settings)
        chosen = (f"setoption name {name} value {_written(value)}" for name, value in settings.options.items())
        self.start = (
            Exchange((self.hello,), (self.ready,), self._check_options),
            Exchange((*chosen, "isready"), ("readyok",), lambda lines: lines[-1]),
        )

    def limits(self, settings: BotSettings) -> str:
        """Return the search limits, as arguments of ``go``."""
        nodes = [] if settings.nodes is None else [f"nodes {settings.nodes}"]
        return " ".join([*nodes, *([] if settings.seconds is None else [self.time(settings.seconds)])])

    def time(self, seconds: float) -> str:
        """Return the time limit for one move."""
        return f"movetime {ceil(1000 * seconds)}"

    def question(self, position: EnginePosition, point: float) -> Exchange:  # noqa: ARG002 - engines draw by themselves
        """See ``EngineSpeech.question``."""
        moves = f" moves {' '.join(position.moves)}" if position.moves else ""
        commands = (self.new_game, f"position startpos{moves}", f"go {self._limits}")
        return Exchange(commands, ("bestmove",), _best_move)

    def _check_options(self, lines: Sequence[str]) -> str:
        """Raise ``EngineFault`` for an option that the engine lacks. An engine would ignore an unknown option."""
        offered = [line.split(" type ")[0].removeprefix("option name ") for line in lines if line.startswith("option ")]
        unknown = {name.lower() for name in self._options} - {name.lower() for name in offered}
        if unknown:
            raise EngineFault(f"it has no option {min(unknown)!r}, but {', '.join(offered) or 'none'}")
        return lines[-1]


class Usi(Uci):
    """Universal Shogi Interface."""

    hello, ready, new_game = "usi", "usiok", "usinewgame"

    def time(self, seconds: float) -> str:
        """See ``Uci.time``."""
        return f"btime 0 wtime 0 byoyomi {ceil(1000 * seconds)}"


def _best_move(lines: Sequence[str]) -> str:
    words = lines[-1].split()
    if len(words) < 2:
        raise EngineFault(f"it answered {lines[-1]!r} without a move")
    return words[1]


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


SPEECHES: dict[EngineProtocol, Callable[[BotSettings, Mapping[str, Any]], EngineSpeech]] = {
    "gtp": Gtp,
    "uci": Uci,
    "usi": Usi,
}
