"""PettingZoo environments as games: agreement with ours, rewards, truncation, errors."""

from functools import partial

import numpy as np
import pytest
from chips_environment import Chips
from gymnasium.spaces import Box, Dict, Discrete

from flyball.app.config import GAMES, GameConfig
from flyball.app.core import FlyballError, UnknownPlugin
from flyball.app.games import FINISHED, UnknownGame, open_table
from flyball.app.games import pettingzoo as adapter
from flyball.app.games.game import BrokenGame
from flyball.app.games.game_check import check_game

CONNECT_FOUR = "pettingzoo:connect_four_v3"
CONFIG = GameConfig(key="foreign_2p", game=CONNECT_FOUR, players=2)
PLAYED = 200


@pytest.mark.parametrize(
    ("game", "rows"), [(CONNECT_FOUR, slice(None, None, -1)), ("plain_connect_four:ConnectFour", slice(None))]
)
def test_connect_four_is_the_game_that_ours_is(game: str, rows: slice) -> None:
    """Compare random games with ours move for move. Seats, masks, positions, outcomes and histories are equal."""
    ours, theirs = open_table(GAMES["connect_four_2p"], PLAYED), open_table(CONFIG.replace(game=game), PLAYED)
    for table in (ours, theirs):
        table.reset(np.arange(PLAYED), range(PLAYED))
    rng = np.random.default_rng(1)
    while len(live := np.flatnonzero(ours.seats() != FINISHED)):
        assert np.array_equal(ours.seats(), theirs.seats())
        (seen, mask), (shown, legal) = ours.observe(live), theirs.observe(live)
        assert np.array_equal(mask, legal)
        pieces = seen.reshape(-1, 3, 6, 7)[:, :2, rows]  # own and opponent's; PettingZoo shows the top row first
        assert np.array_equal(pieces, shown.reshape(-1, 2, 6, 7))
        actions = (rng.random(mask.shape) * mask).argmax(axis=1).astype(np.int32)
        ours.step(live, actions)
        theirs.step(live, actions)
    assert (theirs.seats() == FINISHED).all()
    assert np.array_equal(ours.returns(), theirs.returns())
    assert [ours.history(slot) for slot in range(PLAYED)] == [theirs.history(slot) for slot in range(PLAYED)]
    assert {row[0] for row in theirs.returns().tolist()} >= {-1.0, 1.0}


@pytest.mark.parametrize("name", ["connect_four_v3", "tictactoe_v3"])
def test_check_of_an_environment_finds_nothing(name: str) -> None:
    assert check_game(CONFIG.replace(game=f"pettingzoo:{name}")) == []


def chips(monkeypatch: pytest.MonkeyPatch, make=Chips, **changes) -> GameConfig:
    """Return a configuration of the environment for three agents. PettingZoo has no environment of this name."""
    monkeypatch.setattr(adapter, "_maker", lambda game, name: make)
    adapter._environment.cache_clear()
    name = f"pettingzoo:chips_{make.__name__ if isinstance(make, type) else 'cut'}"
    return GameConfig(key="chips_3p", game=name, players=3, **changes)


def played(config: GameConfig, *actions: int):
    table, slot = open_table(config, 1), np.zeros(1, dtype=np.int64)
    table.reset(slot, [3])
    for action in actions:
        table.step(slot, np.array([action], dtype=np.int32))
    return table


def test_outcomes_are_scaled_and_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokenGame, match=r"returned \[-5.0, 0.0, 5.0\] after move 4") as refused:
        played(chips(monkeypatch), 1, 0, 1, 0)
    assert "outcome_scale, here 1" in refused.value.hint
    table = played(chips(monkeypatch, outcome_scale=10), 1, 0, 1)
    assert table.seats()[0] == 0
    assert not table.returns().any()
    table.step(np.zeros(1, dtype=np.int64), np.array([0], dtype=np.int32))
    assert table.seats()[0] == FINISHED
    assert table.returns()[0].tolist() == [-0.5, 0.0, 0.5]  # -5, 0, +5, divided by 10
    assert not table.truncated()[0]
    monkeypatch.setattr("chips_environment.STAKE", 0.25)
    assert played(chips(monkeypatch), 1, 0, 1, 0).returns()[0].tolist() == [-0.25, 0.0, 0.25]


def test_general_rewards_are_refused_or_sum_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Team(Chips):
        def step(self, action):
            super().step(action)
            self.rewards = dict.fromkeys(self.agents, 0.5)

    with pytest.raises(UnknownGame, match="is cooperative: all agents get the same"):
        open_table(chips(monkeypatch, Team), 0)

    class Gifts(Chips):
        def step(self, action):
            super().step(action)
            if action is not None and self.moves == 1:
                self._cumulative_rewards = {one: value + 0.1 for one, value in self._cumulative_rewards.items()}

    table = played(chips(monkeypatch, Gifts), 0, 0)
    assert table.seats()[0] == FINISHED
    assert table.returns()[0].tolist() == pytest.approx([0, 0, 0], abs=1e-6)


def test_truncation_is_the_environments_or_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    table = played(chips(monkeypatch, partial(Chips, most=2)), 1, 1)
    assert (table.seats()[0], bool(table.truncated()[0])) == (FINISHED, True)
    assert not table.returns().any()
    seen = table.view(np.zeros(3, dtype=np.int64), np.arange(3, dtype=np.int8))
    assert seen[:, :3].tolist() == [[5, 5, 0], [5, 0, 5], [0, 5, 5]]
    table = played(chips(monkeypatch, max_moves=3), 1, 1, 1)
    assert table.truncated()[0]
    assert table.view(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int8)).tolist()[0][:3] == [5, 5, 5]


def test_environment_s_chance_comes_from_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_table(chips(monkeypatch), 20)
    table.reset(np.arange(20), range(20))
    first = table.observe(np.arange(20))[0][:, 3]
    table.reset(np.arange(20), range(20))
    assert np.array_equal(table.observe(np.arange(20))[0][:, 3], first)
    assert len(set(first.tolist())) > 10


@pytest.mark.parametrize(("kind", "expected"), [(np.uint8, np.uint8), (np.int16, np.uint8), (np.float32, np.float32)])
def test_small_whole_numbers_are_bytes(monkeypatch: pytest.MonkeyPatch, kind: type, expected: type) -> None:
    typed = type("Typed", (Chips,), {"kind": kind})
    assert open_table(chips(monkeypatch, typed), 0).spec.observation_type is expected


class Uneven(Chips):
    def action_space(self, agent):
        return Discrete(2 + self.possible_agents.index(agent))


class Unmasked(Chips):
    def observation_space(self, agent):
        return Box(0, 200, (4,))


class Nested(Chips):
    def observation_space(self, agent):
        return Dict({"observation": Dict({"cards": Discrete(5)}), "action_mask": Box(0, 1, (2,), np.int8)})


class Continuous(Chips):
    def action_space(self, agent):
        return Box(0, 1, (2,))


@pytest.mark.parametrize("make", [Uneven, Unmasked, Nested, Continuous])
def test_unsuited_environment_is_refused(monkeypatch: pytest.MonkeyPatch, make: type) -> None:
    with pytest.raises(UnknownGame, match="its agents' spaces differ, or lack a box of observations") as refused:
        open_table(chips(monkeypatch, make), 0)
    assert "flyball.Game" in refused.value.hint


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("connect_five_v1", UnknownGame, "PettingZoo has no 'connect_five_v1'"),
        ("", UnknownGame, "PettingZoo has no ''"),
        ("classic.chess", UnknownGame, "PettingZoo has no 'classic.chess'"),
        ("rps_v2", UnknownGame, "an action_mask or numbered actions"),
        ("tictactoe_v3(", UnknownGame, "arguments that cannot be read"),
        ("tictactoe_v3(3)", UnknownGame, "arguments that cannot be read"),
        ("tictactoe_v3(size=open('x'))", UnknownGame, "arguments that cannot be read"),
        ("tictactoe_v3(size=3)", UnknownGame, "unexpected keyword argument 'size'"),
        ("chips_environment:STAKE", BrokenGame, "is a float"),
        ("nowhere:make", UnknownPlugin, "No module named 'nowhere'"),
    ],
)
def test_unknown_or_unusable_environment_is_refused(name: str, error: type[FlyballError], message: str) -> None:
    with pytest.raises(error, match=message) as refused:
        open_table(CONFIG.replace(game=f"pettingzoo:{name}"), 0)
    assert refused.value.hint


def test_environment_is_named_with_its_arguments() -> None:
    small = open_table(CONFIG.replace(game="pettingzoo:go_v5(board_size=5, komi=0.5)"), 0).spec
    assert (small.actions, small.planes[1:]) == (26, (5, 5))
    assert small.rules_version.endswith(":go_v5(board_size=5, komi=0.5)")
    with pytest.raises(UnknownGame, match="is played by 2, the configuration says 3"):
        open_table(CONFIG.replace(key="foreign_3p", players=3), 0)
    spec = open_table(CONFIG, 0).spec
    assert (spec.players, spec.actions, spec.planes, spec.observation_size) == (2, 7, (2, 6, 7), 84)
    assert spec.observation_type is np.uint8
    assert spec.rules_version.startswith("pettingzoo-1.")
    assert spec.rules_version.endswith(":connect_four_v3")


def test_environment_of_a_users_module_is_named() -> None:
    name = "pettingzoo:chips_environment:Chips"
    config = CONFIG.replace(game=name, key="foreign_3p", players=3, outcome_scale=50, scale=(1, 1, 1, 100))
    assert check_game(config) == []
    assert played(config.replace(game=f"{name}(most=2)"), 1, 1).truncated()[0]


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "find_spec", lambda name: None)
    with pytest.raises(UnknownGame, match="needs PettingZoo, which is not installed") as refused:
        open_table(CONFIG.replace(game="pettingzoo:tictactoe_v3"), 0)
    assert "flyball[pettingzoo]" in refused.value.hint
