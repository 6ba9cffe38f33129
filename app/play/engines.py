"""Players that are engines: external programs that speak GTP, UCI or USI."""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from flyball.app.config import BotSettings, GameConfig
from flyball.app.core import FlyballError
from flyball.app.engine.guard import find_program
from flyball.app.games.notation import EnginePosition, notation_of
from flyball.app.play.engine_process import EngineProcess
from flyball.app.play.engine_protocols import RESIGNED, SPEECHES, EngineFault
from flyball.app.play.own_players import DecidingPlayer, Turn

ATTEMPTS = 3
"""Attempts at one move; each fault ends the process, so the next attempt starts a new one."""


class EngineFailed(FlyballError):
    """An engine that cannot be started, or failed repeatedly."""


class EnginePlayer(DecidingPlayer):
    """A bot that is an external engine.

    Its process starts at the first move, and again after each fault. Raises ``EngineFailed`` for a program that does
    not exist, and ``NoNotation`` for a game without a notation in the engine's protocol.
    """

    def __init__(self, name: str, settings: BotSettings, config: GameConfig, folder: str) -> None:
        assert settings.command is not None
        assert settings.protocol is not None
        self._name, self._settings, self._folder = name, settings, folder
        self._notation = notation_of(config, settings.protocol)
        self._speech = SPEECHES[settings.protocol](settings, self._notation.options)
        self._process: EngineProcess | None = None
        self._lock = Lock()  # jobs in threads share players
        if find_program(settings.command[0], Path(folder)) is None:
            raise EngineFailed(
                f"The bot {name} has no program {settings.command[0]!r}.",
                hint=f"Install it, or write its path in games.{config.key}.bots.{name}.command.",
            )

    def decide(self, turn: Turn, points: NDArray[np.float64]) -> NDArray[np.int32]:
        """See ``DecidingPlayer.decide``. The engine is asked about one position after another."""
        with self._lock:
            moves = [
                self._move(self._notation.position(turn.table.history(slot)), point)
                for slot, point in zip(turn.slots.tolist(), points.tolist(), strict=True)
            ]
        return np.array(moves, dtype=np.int32)

    def _move(self, position: EnginePosition, point: float) -> int:
        """Return the engine's move. Raises ``EngineFailed`` after ``ATTEMPTS`` consecutive faults."""
        faults: list[str] = []
        while len(faults) < ATTEMPTS:
            try:
                return self._ask_engine(position, point)
            except EngineFault as fault:
                faults.append(fault.message)
                self.close()
            except BaseException:  # interrupted: otherwise the next question would read the rest of this answer
                self.close()
                raise
        command = " ".join(self._settings.command or ())
        raise EngineFailed(
            f"The engine of bot {self._name} failed {ATTEMPTS} times in a row, at last because {faults[-1]}.",
            hint=f"Try it by hand: {command}",
        )

    def _ask_engine(self, position: EnginePosition, point: float) -> int:
        if self._process is None:
            settings = self._settings
            self._process = EngineProcess(settings.command or (), self._folder, settings.answer_seconds)
            for exchange in self._speech.start:
                self._process.exchange(exchange)
        move = self._process.exchange(self._speech.question(position, point))
        if move == RESIGNED:  # games have no such move, and are played to their end
            actions: Sequence[int] = sorted(position.legal.values())
            return actions[int(point * len(actions))]
        if move not in position.legal:
            raise EngineFault(f"it answered {move!r}, which is not a legal move after {' '.join(position.moves)!r}")
        return position.legal[move]

    def close(self) -> None:
        """End the process; the next move starts a new one."""
        if self._process is not None:
            self._process.end()
            self._process = None
