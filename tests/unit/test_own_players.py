"""The user's own Python players: three forms, and unusable answers."""

from typing import Any

import numpy as np
import pytest

from flyball.app.config import GAMES, BotSettings, GameConfig
from flyball.app.core import ConfigKey, UnknownPlugin
from flyball.app.games import bots_of, open_table
from flyball.app.games.table import UnknownGame
from flyball.app.play.matches import MatchPlan, play_match
from flyball.app.play.own_players import OwnDecider, OwnPolicy, Turn, UnusablePlayer
from flyball.app.play.players import RandomPlayer, load_player
from flyball.app.play.rollout import Rollout, Schedule
from flyball.app.play.selfplay import play_recorded, selfplay_schedule
from flyball.app.store import MemoryStore

TIC_TAC_TOE = GAMES[ConfigKey("tic_tac_toe_2p")]


class First:
    def choose(self, obs, mask, points):
        obs[:], legal = 0, mask.copy()  # the arguments are copies, so the player may change them
        mask[:] = False
        return legal.argmax(axis=1)


class Drawing:
    def choose(self, obs, mask, points):
        return [np.flatnonzero(row)[int(point * row.sum())] for row, point in zip(mask, points, strict=True)]


class Evenly:
    def forward(self, obs, mask, temperature):
        return -np.log(mask.sum(axis=1, keepdims=True)) + np.where(mask, 0, -1e9), np.full(len(mask), 0.25)


class Historian:
    def decide(self, turn, points):
        played = [len(turn.table.history(slot)) for slot in turn.slots]
        return [np.flatnonzero(row)[moves % row.sum()] for row, moves in zip(turn.mask, played, strict=True)]


class Silent:
    pass


class Shouting:
    def choose(self, obs, mask, points):
        raise RuntimeError("no idea")


PLAYERS = {
    "first": First,
    "drawing": Drawing,
    "evenly": Evenly,
    "historian": Historian,
    "silent": Silent,
    "shouting": Shouting,
}


def build(config: GameConfig, options: dict[str, Any]) -> Any:
    """Return the player that the options name, and try to change them."""
    assert config.key == "tic_tac_toe_2p"
    return PLAYERS[options.pop("name")]()


CONFIG = TIC_TAC_TOE.replace(
    bots={name: BotSettings(player=f"{__name__}:build", options={"name": name}) for name in (*PLAYERS, "absent")}
)


def loaded(name: str, config: GameConfig = CONFIG) -> Any:
    return load_player(MemoryStore(), name, open_table(config, 0).spec, config=config)


def played(config: GameConfig) -> Any:
    about = {"model": "a" * 64, "seed": 1, "worker": "w", "in_flight": 4}
    return play_recorded(config, [loaded("first", config)], selfplay_schedule(4, 2, [], (1.0,), 5), **about)


def test_chooser_plays_and_changes_only_its_copies() -> None:
    plan = MatchPlan(6, seed=1, temperature=0.3, opening_plies=2)
    assert len(play_match(CONFIG, loaded("first"), RandomPlayer(), plan).scores) == 6
    shard, _ = played(CONFIG)
    assert shard.mask.any(axis=1).all()
    assert (shard.action == shard.mask.argmax(axis=1)).all()
    assert shard.obs.any()
    assert not shard.log_prob.any()
    shard, outcomes = played(CONFIG.replace(max_moves=3))
    assert outcomes.truncated.all()
    assert not shard.bootstrap.any(), "truncated games of a chooser have no value"


@pytest.mark.parametrize("name", ["drawing", "historian", "evenly"])
def test_own_player_same_games_in_any_batch(name: str) -> None:
    seating = np.array([[0, 1], [1, 0]] * 4, dtype=np.int8)
    schedule = Schedule(list(range(8)), seating, (1.0, 1.0), seed=3)

    def histories(slots: int) -> list[list[int]]:
        return Rollout(open_table(CONFIG, slots), [loaded(name), RandomPlayer()], schedule).run().histories

    assert histories(8) == histories(3) == histories(1)
    assert len({tuple(history) for history in histories(8)}) > 1


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("silent", "bot silent is made by .*:build, which returned a Silent that cannot play.*forward, choose"),
        ("absent", "bot absent failed: .*:build raised KeyError: 'absent'"),
    ],
)
def test_factory_without_a_player_is_refused(name: str, what: str) -> None:
    with pytest.raises(UnusablePlayer, match=what):
        loaded(name)


def test_factories_are_called_with_options_that_stay() -> None:
    assert loaded("first") is not loaded("first")
    assert CONFIG.bots["first"].options == {"name": "first"}
    config = TIC_TAC_TOE.replace(bots={"x": BotSettings(player="nowhere:build")})
    with pytest.raises(UnknownPlugin):
        loaded("x", config)
    hearts = GAMES[ConfigKey("hearts_4p")].replace(bots={"easy": BotSettings(player="x:y")})
    with pytest.raises(UnknownGame, match=r"has a bot 'easy' of its own. Rename games.hearts_4p.bots.easy"):
        bots_of(hearts)
    assert bots_of(CONFIG)[:2] == ("random", "first")


def test_player_that_raises_is_named() -> None:
    with pytest.raises(UnusablePlayer, match=r"bot shouting failed: choose raised RuntimeError: no idea"):
        play_match(CONFIG, loaded("shouting"), RandomPlayer(), MatchPlan(2, seed=1, temperature=0.3))


class Attached:
    """An array that NumPy cannot convert. A PyTorch tensor that requires a gradient is one example."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("detach it first")


MASK = np.array([[True, True, False], [False, True, True]])


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        ([0, 0], r"chose action 0 in row 1, where \[1, 2\] are legal"),
        ([0, 3], "chose action 3 in row 1"),
        ([0, -1], "chose action -1 in row 1"),
        ([0], r"returned int64 \(1,\), not integers \(2,\)"),
        ([0.0, 1.0], r"returned float64 \(2,\), not integers"),
        ([[0], [1, 2]], "did not return an array"),
        (Attached(), r"did not return an array \(detach it first\)"),
        (None, r"returned object \(\), not integers"),
    ],
)
def test_unusable_choice_is_refused(answer: Any, what: str) -> None:
    table = open_table(CONFIG, 2)
    turn = Turn(np.zeros((2, 4), dtype=np.float32), MASK, table, np.arange(2))
    with pytest.raises(UnusablePlayer, match=rf"bot x failed: its decide {what}"):
        OwnDecider("x", lambda turn, points: answer).decide(turn, np.array([0.1, 0.2]))


ROWS, VALUES = np.zeros((2, 3)), np.zeros(2)


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (ROWS, "returned arrays of shapes"),
        (None, "did not return two arrays"),
        ((Attached(), VALUES), r"did not return two arrays of numbers \(detach it first\)"),
        ((ROWS, VALUES, VALUES), "did not return two arrays"),
        ((ROWS[:1], VALUES), r"returned arrays of shapes \(1, 3\) and \(2,\), not \(2, 3\) and \(2,\)"),
        ((ROWS, VALUES * np.nan), "returned a value that is not finite"),
        ((ROWS * np.nan, VALUES), "returned only infinite or NaN log-probabilities of the legal actions in row 0"),
        (
            (np.array([[0, 0, 0], [0, -np.inf, -np.inf]]), VALUES),
            "returned only infinite or NaN log-probabilities of the legal actions in row 1",
        ),
    ],
)
def test_unusable_probabilities_are_refused(answer: Any, what: str) -> None:
    with pytest.raises(UnusablePlayer, match=rf"bot x failed: its forward {what}"):
        OwnPolicy("x", lambda obs, mask, temperature: answer).forward(np.zeros((2, 4), dtype=np.float32), MASK)
