"""The check of own players: each faulty player has a finding."""

from itertools import count
from typing import Any

import numpy as np
import pytest

from flyball.app.config import GAMES, BotSettings, GameConfig
from flyball.app.core import ConfigKey
from flyball.app.play.check_player import check_player

TIC_TAC_TOE = GAMES[ConfigKey("tic_tac_toe_2p")]
LOADED = count()


class Sound:
    """Chooses by the points; ``options`` of the bot spoil it."""

    def __init__(self, fault: str) -> None:
        self.fault, self.calls, self.number = fault, 0, next(LOADED)

    def choose(self, obs, mask, points):
        self.calls += 1
        match self.fault:
            case "raises":
                raise ValueError("too hard")
            case "illegal":
                return np.zeros(len(mask), dtype=int)
            case "counts":
                points = (points + self.calls / 7) % 1
            case "mixes":
                points = (points + points.sum()) % 1
            case "differs":
                points = (points + self.number / 7) % 1
        return np.array([np.flatnonzero(row)[int(p * row.sum())] for row, p in zip(mask, points, strict=True)])


class Probable:
    def __init__(self, fault: str) -> None:
        self.fault = fault

    def forward(self, obs, mask, temperature):
        logits = np.where(mask, obs[:, : mask.shape[1]] + np.arange(mask.shape[1]), -1e9)
        logits = logits * temperature if self.fault == "heats" else logits / temperature
        if self.fault == "logits":
            return logits, np.zeros(len(mask))
        total = np.log(np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True))
        return logits - logits.max(axis=1, keepdims=True) - total, np.zeros(len(mask))


def sound(config: GameConfig, options: dict[str, Any]) -> Any:
    return Sound(options.get("fault", ""))


def probable(config: GameConfig, options: dict[str, Any]) -> Any:
    return Probable(options.get("fault", ""))


def configured(factory: str, fault: str = "", base: GameConfig = TIC_TAC_TOE) -> GameConfig:
    return base.replace(bots={"mine": BotSettings(player=f"{__name__}:{factory}", options={"fault": fault})})


@pytest.mark.parametrize("key", ["tic_tac_toe_2p", "connect_four_2p", "oh_hell_3p", "hearts_4p"])
@pytest.mark.parametrize("factory", ["sound", "probable"])
def test_check_of_a_sound_player_finds_nothing(key: str, factory: str) -> None:
    assert check_player("mine", configured(factory, base=GAMES[ConfigKey(key)])) == []


@pytest.mark.parametrize(
    ("factory", "fault", "where", "what"),
    [
        ("sound", "raises", "moves", "The bot mine failed: choose raised ValueError: too hard ("),
        ("sound", "illegal", "moves", "its choose chose action 0 in row"),
        ("sound", "counts", "repeat", "The same positions and points gave other moves"),
        ("sound", "mixes", "batch", "A position alone gave another move"),
        ("sound", "differs", "load", "Loaded again, it makes other moves."),
        ("probable", "logits", "forward", "The probabilities of row"),
        ("probable", "heats", "temperature", "At a lower temperature the best move is less probable."),
        ("absent", "", "load", "cannot be imported"),
    ],
)
def test_check_of_a_faulty_player_names_the_fault(factory: str, fault: str, where: str, what: str) -> None:
    (finding,) = check_player("mine", configured(factory, fault))
    assert finding.where == where
    assert what in finding.what
    assert finding.hint
    (unknown,) = check_player("yours", configured(factory, fault))
    assert (unknown.where, unknown.hint) == ("settings", "There are: mine.")
