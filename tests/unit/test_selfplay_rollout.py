import numpy as np
import pytest
import torch
from shard_rows import META

from flyball.app.config import GAMES, NetworkSettings
from flyball.app.core import NetworkShape
from flyball.app.games import checker_for, open_table
from flyball.app.learning.inference import NoLegalAction, Policy
from flyball.app.learning.network import init_policy
from flyball.app.play.inspection import game_record
from flyball.app.play.players import HeuristicPlayer, RandomPlayer
from flyball.app.play.recording import ShardRecorder
from flyball.app.play.rollout import GREEDY, HERO, Rollout, Schedule, ask, choose
from flyball.app.play.selfplay import selfplay_schedule

CONFIG = GAMES["tic_tac_toe_2p"]


class Counting(RandomPlayer):
    """A random bot that records the batch size of each call. Its values are 0.25 higher than the random bot's."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def forward(self, obs, mask, temperature=1.0):
        self.asked.append(len(obs))
        log_probs, values = super().forward(obs, mask, temperature)
        return log_probs, values + 0.25


def roll(config, players, seating, *, slots=8, recorder=None, temperature=1.0, seed=3):
    schedule = Schedule(
        list(range(len(seating))), np.asarray(seating, dtype=np.int8), (temperature,) * len(players), seed
    )
    return Rollout(open_table(config, slots), players, schedule, recorder).run()


def shard_of(recorder, outcomes):
    return recorder.shard(outcomes, META)


def test_choices_follow_the_probabilities_of_the_legal_actions() -> None:
    probabilities = np.array([0.0, 0.2, 0.0, 0.5, 0.3, 0.0])
    logits = np.tile(np.log(np.maximum(probabilities, 1e-45)), (10_000, 1)).astype(np.float32)
    logits[:, [0, 2, 5]] = 7.0  # illegal, and therefore no matter
    mask = np.tile(probabilities > 0, (10_000, 1))
    chosen, log_probs = choose(logits, mask, 1.0, (np.arange(10_000) + 0.5) / 10_000)
    np.testing.assert_allclose(np.bincount(chosen, minlength=6) / 10_000, probabilities, atol=2e-4)
    np.testing.assert_allclose(np.exp(log_probs), probabilities[chosen], rtol=1e-5)
    best, log_probs = choose(logits, mask, 1.0, np.full(10_000, GREEDY))
    assert (best == 3).all()
    np.testing.assert_allclose(np.exp(log_probs), 0.5, rtol=1e-5)


def test_log_probs_of_choices_at_any_temperature_equal_torch_s() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (200, 30)).astype(np.float32)
    mask = rng.random((200, 30)) < 0.3
    mask[:, 4] = True
    for temperature in (0.3, 1.0, 2.5):
        chosen, log_probs = choose(logits, mask, 1 / temperature, rng.random(200))
        masked = torch.from_numpy(np.where(mask, logits / temperature, -1e9))
        expected = torch.distributions.Categorical(logits=masked).log_prob(torch.from_numpy(chosen))
        np.testing.assert_allclose(log_probs, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("point", [0.0, np.nextafter(1, 0)])
def test_the_ends_of_the_unit_interval_choose_legal_actions(point: float) -> None:
    rng = np.random.default_rng(0)
    mask = rng.random((500, 30)) < 0.2
    mask[:, 7] = True
    chosen, _ = choose(np.zeros((500, 30), dtype=np.float32), mask, 1.0, np.full(500, point))
    assert mask[np.arange(500), chosen].all()


def fresh(hidden: int, shape: NetworkShape) -> Policy:
    settings = NetworkSettings(hidden=(hidden,))
    return Policy(settings, shape, init_policy(settings, shape, seed=0))


def test_illegal_positions_are_refused_and_logits_suffice() -> None:
    mask = np.ones((3, 4), dtype=bool)
    mask[1] = False
    policy = fresh(8, NetworkShape(5, 4))
    with pytest.raises(NoLegalAction, match="Row 1"):
        ask(policy, np.zeros((3, 5), dtype=np.float32), mask, 1.0, np.zeros(3))

    class Own:
        def outputs(self, obs: np.ndarray) -> np.ndarray:
            return np.tile(np.array([0, 9, 50, 0.25], dtype=np.float32), (len(obs), 1))

        def forward(self, obs, mask, temperature=1.0):
            raise AssertionError("logits suffice")

    mask = np.array([[True, True, False], [True, False, False]])
    choices = ask(Own(), np.zeros((2, 4), dtype=np.float32), mask, 1.0, np.full(2, 0.5))
    assert choices.action.tolist() == [1, 0]
    assert choices.value.tolist() == [0.25, 0.25]


def test_a_policy_is_asked_for_what_its_forward_pass_says() -> None:
    policy, rng = fresh(16, NetworkShape(5, 9)), np.random.default_rng(1)
    obs, mask = rng.random((50, 5), dtype=np.float32), rng.random((50, 9)) < 0.5
    mask[:, 0] = True
    log_probs, values = policy.forward(obs, mask, 0.7)
    choices = ask(policy, obs, mask, 0.7, rng.random(50))
    np.testing.assert_allclose(choices.log_prob, log_probs[np.arange(50), choices.action], atol=1e-5)
    np.testing.assert_array_equal(choices.value, values)
    greedy = ask(policy, obs, mask, 0.0, rng.random(50))
    assert np.array_equal(greedy.action, log_probs.argmax(axis=1))
    np.testing.assert_allclose(greedy.log_prob, policy.forward(obs, mask)[0].max(axis=1), atol=1e-5)


def test_every_game_begun_is_played_to_its_end_and_counts_once() -> None:
    outcomes = roll(CONFIG, [RandomPlayer()], np.zeros((21, 2)), slots=4)
    assert len(outcomes.histories) == 21
    assert all(5 <= len(history) <= 9 for history in outcomes.histories)
    decisions = [len(history) - (len(history) == 9) for history in outcomes.histories]  # the ninth move is forced
    assert outcomes.lengths.tolist() == decisions
    assert not outcomes.truncated.any()


def test_player_is_asked_once_a_step_for_its_own_seats_only() -> None:
    hero, opponent = Counting(), Counting()
    seating = np.zeros((8, 2))
    seating[:, 1] = 1
    recorder = ShardRecorder()
    outcomes = roll(CONFIG, [hero, opponent], seating, recorder=recorder)
    shard = shard_of(recorder, outcomes)
    assert hero.asked[0] == 8  # all games in one batch
    assert len(hero.asked) + len(opponent.asked) == outcomes.lengths.max()
    assert sum(hero.asked) == shard.rows
    assert sum(opponent.asked) == outcomes.lengths.sum() - shard.rows
    assert set(shard.seat.tolist()) == {HERO}


def test_rows_are_episodes_with_the_outcome_at_their_end() -> None:
    recorder = ShardRecorder()
    outcomes = roll(CONFIG, [Counting()], np.zeros((20, 2)), recorder=recorder, slots=7)
    shard = shard_of(recorder, outcomes)
    assert shard.rows == outcomes.lengths.sum()
    key = np.stack([shard.game, shard.seat, shard.step], axis=1).tolist()
    assert key == sorted(key)
    for game in range(20):
        for seat in (0, 1):
            rows = np.flatnonzero((shard.game == game) & (shard.seat == seat))
            assert shard.step[rows].tolist() == list(range(seat, outcomes.lengths[game], 2))
            assert shard.done[rows].tolist() == [False] * (len(rows) - 1) + [True]
            assert shard.reward[rows].tolist() == [0] * (len(rows) - 1) + [outcomes.returns[game, seat]]
    np.testing.assert_allclose(np.exp(shard.log_prob), 1 / shard.mask.sum(axis=1), rtol=1e-6)
    assert (shard.value == 0.25).all()
    assert not shard.truncated.any()
    assert not shard.bootstrap.any()


def test_a_game_that_was_cut_off_is_bootstrapped_not_rewarded() -> None:
    config = GAMES["chinese_checkers_3p"].replace(max_moves=7)
    recorder = ShardRecorder()
    seating = np.zeros((4, 3))
    seating[3, 0] = 1
    outcomes = roll(config, [Counting(), RandomPlayer()], seating, recorder=recorder)
    shard = shard_of(recorder, outcomes)
    assert outcomes.truncated.all()
    assert not shard.done.any()
    assert not shard.reward.any()
    ends = shard.truncated
    assert ends.sum() == 3 * 3 + 2
    assert (shard.bootstrap[ends] == 0.25).all()
    assert not shard.bootstrap[~ends].any()


class Undecided:
    """A player that prefers no legal action, as a model may."""

    def forward(self, obs, mask, temperature=1.0):
        return RandomPlayer().forward(obs, mask)


def test_players_choose_by_their_own_temperature() -> None:
    first = roll(CONFIG, [Undecided()], np.zeros((3, 2)), temperature=0.0, seed=1)
    other = roll(CONFIG, [Undecided()], np.zeros((3, 2)), temperature=0.0, seed=2)
    assert first.histories == other.histories == [[0, 1, 2, 3, 4, 5, 6]] * 3
    cold, hot = (schedule_of(temperatures) for temperatures in ((0.0, 1.0), (1.0, 0.0)))
    firsts = [{history[0] for history in play.histories} for play in (cold, hot)]
    assert firsts[0] == {0}, "who sits first takes the first of equals"
    assert len(firsts[1]) > 3
    mask = np.array([[True, False, True, True, True]])
    log_probs, values = RandomPlayer().forward(np.zeros((1, 2)), mask, 3.0)
    np.testing.assert_allclose(np.exp(log_probs), [[0.25, 0, 0.25, 0.25, 0.25]])
    assert values.tolist() == [0]


@pytest.mark.parametrize("temperature", [0.0, 0.3, 2.0])
def test_built_in_players_play_alike_at_any_temperature(temperature: float) -> None:
    mask, points = np.ones((400, 5), dtype=np.bool_), np.linspace(0, 1, 400, endpoint=False)
    obs = np.zeros((400, 1), dtype=np.float32)
    taken = ask(RandomPlayer(), obs, mask, temperature, points).action
    assert np.bincount(taken).tolist() == [80] * 5
    halves = HeuristicPlayer(lambda _obs, mask: np.where(np.arange(5) < 2, np.float32(0), np.float32(-40)) + 0 * mask)
    assert np.bincount(ask(halves, obs, mask, temperature, points).action).tolist() == [200, 200]


def test_schedule_seats_heroes_and_opens_at_random() -> None:
    assert not selfplay_schedule(5, 3, [], (1.0,), 0).seating.any()
    seating = selfplay_schedule(8, 3, [((1, 2), 3), ((HERO, 1), 3)], (1.0, 1.0, 1.0), 0).seating
    assert seating.tolist() == [
        *([0, 1, 2], [2, 0, 1], [1, 2, 0]),
        *([0, 0, 1], [1, 0, 0], [0, 1, 0]),
        *([0, 0, 0], [0, 0, 0]),
    ]
    schedule = selfplay_schedule(7000, 2, [], (1.0,), 5, opening_plies=6)
    shares = np.bincount(schedule.openings) / 7000
    assert len(shares) == 7
    assert np.abs(shares - 1 / 7).max() < 0.02
    assert not selfplay_schedule(50, 2, [], (1.0,), 5).openings.any()


class Refusing(RandomPlayer):
    """A random bot that must not be asked about opening moves."""

    def __init__(self, plies: int) -> None:
        self._plies = plies

    def forward(self, obs, mask, temperature=1.0):
        stones = obs[:, :84].sum(axis=1)
        assert (stones >= self._plies).all()
        return super().forward(obs, mask, temperature)


def opened(openings, key="connect_four_2p", player=None):
    recorder, games = ShardRecorder(), len(openings)
    schedule = Schedule(range(games), np.zeros((games, 2), dtype=np.int8), (1.0,), 3, openings=np.array(openings))
    outcomes = Rollout(open_table(GAMES[key], games), [player or RandomPlayer()], schedule, recorder).run()
    return shard_of(recorder, outcomes), outcomes


def test_opening_decisions_are_no_rows_in_any_batch() -> None:
    shard, outcomes = opened([5] * 40, player=Refusing(5))
    first = {int(game): int(shard.step[shard.game == game].min()) for game in np.unique(shard.game)}
    assert set(first.values()) == {5}
    assert shard.rows == sum(map(len, outcomes.histories)) - 40 * 5
    whole = [games_of(opening, slots) for opening in (9, 3) for slots in (30, 4)]
    assert whole[0] == whole[1]
    assert whole[2] == whole[3] != whole[0]


def test_rollout_openings_leave_a_decision_to_the_players() -> None:
    """Tic-tac-toe ends after 5 to 9 moves, and 9 random ones are asked for."""
    shard, outcomes = opened([9] * 30, key="tic_tac_toe_2p", player=Refusing(0))
    assert set(shard.game.tolist()) == set(range(30))
    first = np.array([shard.step[shard.game == game].min() for game in range(30)])
    assert (first == outcomes.openings).all()
    assert (outcomes.openings < outcomes.lengths).all()
    checker = checker_for(GAMES["tic_tac_toe_2p"])
    assert [checker.failures(game_record(shard, game)) for game in range(30)] == [[]] * 30


def games_of(opening, slots):
    schedule = Schedule(range(30), np.zeros((30, 2), dtype=np.int8), (1.0,), 3, openings=np.full(30, opening))
    return Rollout(open_table(GAMES["tic_tac_toe_2p"], slots), [RandomPlayer()], schedule).run().histories


def schedule_of(temperatures):
    """Play 30 games, the hero first, at these temperatures."""
    schedule = Schedule(range(30), np.tile(np.array([[0, 1]], dtype=np.int8), (30, 1)), temperatures, 3)
    return Rollout(open_table(CONFIG, 8), [Undecided(), Undecided()], schedule).run()
