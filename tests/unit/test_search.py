"""Tree search: proofs, determinism and recorded results."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import flyball.app.play.search
from flyball.app.config import GAMES, GameConfig, SearchSettings
from flyball.app.games import FINISHED, Game, open_table
from flyball.app.play.match_statistics import match_statistics
from flyball.app.play.matches import MatchPlan, play_match
from flyball.app.play.own_players import Turn
from flyball.app.play.players import RandomPlayer
from flyball.app.play.search import SearchPlayer, Unsearchable
from flyball.app.play.selfplay import play_recorded, selfplay_schedule
from flyball.app.play.tree import considered_visits, plant, with_room

# The paper's weight of values in board games, which is large, so that proved values decide.
CONNECT_FOUR = GAMES["connect_four_2p"].replace(search=SearchSettings(value_scale=1.0, playing_value_scale=1.0))
TIC_TAC_TOE = GAMES["tic_tac_toe_2p"]


class Uninformed:
    """A network without knowledge that counts the positions it evaluates."""

    def __init__(self, actions: int) -> None:
        self.actions, self.seen = actions, 0

    def outputs(self, obs):
        self.seen += len(obs)
        return np.zeros((len(obs), self.actions + 1), dtype=np.float32)


class Hashed(Uninformed):
    """A network whose outputs depend on every feature of the position. They depend on nothing else."""

    def outputs(self, obs):
        weights = np.random.default_rng(7).normal(size=(obs.shape[1], self.actions + 1))
        return np.tanh(obs @ weights).astype(np.float32)


def turn_after(config, *games: list[int]) -> Turn:
    slots = np.arange(len(games))
    table = open_table(config, len(games))
    table.reset(slots, [0] * len(games))
    for slot, moves in enumerate(games):
        for move in moves:
            table.step(np.array([slot]), np.array([move], dtype=np.int32))
    return Turn(*table.observe(slots), table, slots)


def searched(config, turn: Turn, simulations: int, temperature: float = 0.0, network: Uninformed | None = None):
    player = SearchPlayer(network or Uninformed(turn.mask.shape[1]), config, simulations, temperature)
    return player.search(turn, np.linspace(0, 1, len(turn.slots), endpoint=False))


def test_search_solves_positions_of_connect_four() -> None:
    found = searched(CONNECT_FOUR, turn_after(CONNECT_FOUR, [3, 0, 3, 0, 3, 1]), simulations=16)
    assert found.action.tolist() == [3]
    assert found.policy[0, 3] > 0.99
    assert found.value[0] > 0.99
    found = searched(CONNECT_FOUR, turn_after(CONNECT_FOUR, [0, 3, 0, 3, 1, 3]), simulations=400)
    assert found.action.tolist() == [3]
    found = searched(CONNECT_FOUR, turn_after(CONNECT_FOUR, [6, 2, 6, 3, 5, 1]), simulations=400)
    assert found.value[0] < -0.8


def test_search_tells_the_seats_apart_where_one_moves_twice() -> None:
    """The table plays Othello's passes, so seats decide twice in a row."""
    config, schedule = GAMES["othello_2p"], selfplay_schedule(8, 2, [], (1.0,), 3)
    hero = SearchPlayer(Hashed(65), config, 8, 1.0)
    played, _ = play_recorded(config, [hero], schedule, model="m", seed=3, worker="w", in_flight=8)
    by_game = [played.seat[played.game == game][np.argsort(played.step[played.game == game])] for game in range(8)]
    assert any((seats[1:] == seats[:-1]).any() for seats in by_game)


def test_search_of_perfect_play_in_tic_tac_toe_draws() -> None:
    network = Uninformed(9)
    hero = SearchPlayer(network, TIC_TAC_TOE, 300)
    games = play_match(TIC_TAC_TOE, hero, RandomPlayer(), MatchPlan(40, 1, 1.0))
    figures = match_statistics(games, 2)
    assert figures.losses == 0
    assert figures.wins > 20


class Race(Game):
    """A game whose three seats add 1 to 3 to a sum. The seat that reaches 12 wins against both others."""

    version, players, actions, observation_size, searchable = 1, 3, 3, 1, True

    def reset(self, rng):
        self.sum = self.moves = 0

    def seat(self):
        return self.moves % 3 if self.sum < 12 else None

    def legal(self):
        return range(min(3, 12 - self.sum))

    def play(self, action):
        self.sum, self.moves = self.sum + action + 1, self.moves + 1

    def observe(self, seat):
        return [self.sum]

    def returns(self):
        return [1.0 if seat == (self.moves - 1) % 3 else -0.5 for seat in range(3)]


def test_search_for_three_seats_lets_each_play_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 9 the mover wins; at 8 the next seat will."""
    monkeypatch.setitem(sys.modules, "race", SimpleNamespace(Race=Race))
    config = GameConfig(key="race_3p", game="race:Race", players=3)
    found = searched(config, turn_after(config, [2, 2, 2], [2, 2, 1]), 60, network=Uninformed(3))
    assert found.action[0] == 2
    assert found.value[0] > 0.9
    assert found.value[1] < -0.4


def test_one_position_is_asked_once_and_halved_by_plan() -> None:
    network = Uninformed(7)
    searched(CONNECT_FOUR, turn_after(CONNECT_FOUR, [], [3]), simulations=20, network=network)
    assert network.seen == 2 * 21
    plan = considered_visits(4, 16)
    assert plan[4].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert plan[1].tolist() == list(range(16))
    assert plan[2].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_search_of_a_position_does_not_depend_on_others(temperature: float) -> None:
    games = [[], [3], [3, 3], [0, 1, 2], [6, 6, 6, 5]]
    network = Hashed(7)
    together = searched(CONNECT_FOUR, turn_after(CONNECT_FOUR, *games), 24, temperature, network)
    points = np.linspace(0, 1, len(games), endpoint=False)
    for row, moves in enumerate(games):
        player = SearchPlayer(network, CONNECT_FOUR, 24, temperature)
        alone = player.search(turn_after(CONNECT_FOUR, moves), points[row : row + 1])
        assert alone.action[0] == together.action[row]
        assert np.array_equal(alone.policy[0], together.policy[row])


def test_searches_that_look_far_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searching in turns bounds memory and changes no result."""
    turn = turn_after(CONNECT_FOUR, [], [3], [3, 3])
    together = searched(CONNECT_FOUR, turn, 24, 1.0, Hashed(7))
    for positions in (60, 1):
        monkeypatch.setattr(flyball.app.play.search, "POSITIONS", positions)
        in_turns = searched(CONNECT_FOUR, turn, 24, 1.0, Hashed(7))
        assert all(map(np.array_equal, together, in_turns))


def test_noise_alone_explores_and_the_table_stays() -> None:
    turn = turn_after(CONNECT_FOUR, *[[3, 3, 2]] * 100)
    assert len(set(searched(CONNECT_FOUR, turn, 16, 1.0, Hashed(7)).action.tolist())) >= 3
    assert len(set(searched(CONNECT_FOUR, turn, 16, 0.0, Hashed(7)).action.tolist())) == 1
    assert not searched(CONNECT_FOUR, turn_after(CONNECT_FOUR, [3, 3]), 16, 0.0, Hashed(7)).log_prob.any()
    turn = turn_after(CONNECT_FOUR, [3, 2], [1])
    before = [turn.table.history(slot) for slot in (0, 1)], turn.obs.copy()
    searched(CONNECT_FOUR, turn, 16)
    assert [turn.table.history(slot) for slot in (0, 1)] == before[0]
    assert np.array_equal(turn.table.observe(turn.slots)[0], before[1])


@pytest.mark.parametrize(
    ("simulations", "considered", "temperature"), [(2, 16, 1.0), (8, 16, 1.0), (8, 4, 1.0), (16, 16, 0.5)]
)
def test_evidence_of_copying_is_not_overstated(simulations: int, considered: int, temperature: float) -> None:
    """The expected likelihood ratio of a copy is at most 1."""
    config = CONNECT_FOUR.replace(search=SearchSettings(considered=considered, value_scale=0.5))
    turn = turn_after(config, *[[3, 3, 2]] * 4000)
    player = SearchPlayer(Hashed(7), config, simulations, temperature)
    found = player.search(turn, np.random.default_rng(1).random(4000))
    ratios = [
        float(np.where(found.action == action, np.exp(-found.log_prob), 0).mean())
        for action in range(7)
        if (found.action == action).mean() > 0.1
    ]
    assert len(ratios) >= 3
    assert max(ratios) < 1.15
    assert -found.log_prob.mean() > 0.5  # nats; probabilities of 1 would give no evidence of copying


@pytest.mark.parametrize("key", ["oh_hell_3p", "hearts_4p", "maedn_4p"])
def test_search_of_a_game_with_chance_is_refused(key: str) -> None:
    with pytest.raises(Unsearchable, match="cannot be searched") as refused:
        SearchPlayer(Uninformed(4), GAMES[key], 8)
    assert "policy_gradient" in refused.value.hint


def test_selfplay_by_search_records_policies_and_values() -> None:
    hero = SearchPlayer(Hashed(7), CONNECT_FOUR, 12, 1.0)
    schedule = selfplay_schedule(20, 2, [], (1.0,), 5, opening_plies=3)
    shard, outcomes = play_recorded(CONNECT_FOUR, [hero], schedule, model="m", seed=5, worker="w", in_flight=8)
    policy = np.zeros(shard.mask.shape, dtype=np.float32)
    policy[shard.mask] = shard.policy
    assert np.allclose(policy.sum(axis=1), 1, atol=4e-3)
    assert -20 < shard.log_prob.min() < shard.log_prob.max() <= 0
    assert np.abs(shard.value).max() <= 1
    assert (outcomes.lengths > 0).all()
    table = open_table(CONNECT_FOUR, 1)
    table.reset(np.array([0]), [0])
    for move in shard.history[shard.history_offsets[0] : shard.history_offsets[1]].tolist():
        table.step(np.array([0]), np.array([move], dtype=np.int32))
    assert table.seats()[0] == FINISHED


@pytest.mark.parametrize(("used", "legal", "room"), [(2, 3, 5), (3, 3, 10), (0, 7, 12)])
def test_trees_get_room_for_the_next_node(used: int, legal: int, room: int) -> None:
    """Kernels check no bounds, so a node without room for its edges would overwrite memory."""
    trees = plant(games=2, nodes=3, edges=5, seats=2)
    trees.used[:] = used, 0
    trees.edge["action"] = 9
    mask = np.zeros((2, 8), dtype=np.bool_)
    mask[0, :legal] = True
    wider = with_room(trees, mask)
    assert wider.edge.shape == (2, room)
    assert (wider.edge["action"][:, :5] == 9).all()
