import numpy as np
import pytest

from flyball.app.config import GAMES, GameConfig
from flyball.app.games import open_table
from flyball.app.play import matches as match
from flyball.app.play.match_statistics import MatchStatistics, match_statistics
from flyball.app.play.matches import MatchPlan, play_match
from flyball.app.play.players import Player, RandomPlayer
from flyball.app.play.rollout import Rollout, Schedule


class Fixed:
    """Always prefers the action that comes first in ``order``."""

    def __init__(self, actions: int, order) -> None:
        self._preference = np.full(actions, -30.0, dtype=np.float32)
        self._preference[order] = -np.arange(len(order), dtype=np.float32)

    def forward(self, obs, mask, temperature=1.0):
        return np.where(mask, self._preference, np.float32(-1e9)), np.zeros(len(mask), dtype=np.float32)


def summed(config: GameConfig, hero: Player, opponent: Player, plan: MatchPlan) -> MatchStatistics:
    return match_statistics(play_match(config, hero, opponent, plan), config.players)


COLUMN = Fixed(7, [0])  # wins by stacking the first column unless it is stopped
FILLER = Fixed(7, [6, 5])
CONFIG = GAMES["connect_four_2p"]


def test_match_won_by_first_seats_scores_one_half() -> None:
    match = summed(CONFIG, FILLER, COLUMN, MatchPlan(games=10, seed=0, temperature=0.0))
    assert (match.wins, match.draws, match.losses, match.stderr) == (5, 0, 5, 0)
    blocker = Fixed(7, [0, 1, 2])
    match = summed(CONFIG, COLUMN, Fixed(7, [1, 2, 3]), MatchPlan(games=4, seed=0, temperature=0.0))
    assert match.wins == 2  # each side stacks its own column: whoever begins is first
    assert summed(CONFIG, blocker, blocker, MatchPlan(games=2, seed=0, temperature=0.0)).score.mean == 0.5


def test_match_same_plan_repeats_games_other_seed_differs() -> None:
    def played(seed):
        return summed(CONFIG, RandomPlayer(), COLUMN, MatchPlan(games=40, seed=seed, temperature=1.0))

    assert played(1) == played(1)
    assert len({played(seed).mean_length for seed in range(4)}) > 1


def test_the_random_bot_is_even_with_itself_at_any_table() -> None:
    for key in ("tic_tac_toe_2p", "oh_hell_3p", "hearts_4p"):
        config = GAMES[key]
        plan = MatchPlan(games=30 * config.players, seed=2, temperature=1.0)
        match = summed(config, RandomPlayer(), RandomPlayer(), plan)
        assert match.score.lower < 0.5 < match.score.upper, key


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_truncated_games_are_counted_apart_from_draws(temperature: float) -> None:
    config = GAMES["chinese_checkers_3p"].replace(max_moves=10)
    match = summed(config, RandomPlayer(), RandomPlayer(), MatchPlan(6, 0, temperature))
    assert (match.truncated, match.wins, match.draws, match.losses) == (6, 0, 0, 0)
    assert match.score.mean == 0.5


def openings(seeds, plies, key="connect_four_2p"):
    """Return the first moves of a self-play game for each seed."""
    games = len(seeds)
    seating = np.tile(np.array([0, 1], dtype=np.int8), (games, 1))
    schedule = Schedule(seeds, seating, (0.0, 0.0), seed=1, openings=np.full(games, plies))
    filler = Fixed(9, list(range(9))) if key == "tic_tac_toe_2p" else FILLER
    played = Rollout(open_table(GAMES[key], games), [filler, filler], schedule).run()
    return [tuple(history[:plies]) for history in played.histories]


def test_an_opening_is_drawn_from_the_seed_of_the_deal() -> None:
    drawn = openings(range(400), 2)
    assert {len(opening) for opening in drawn} == {2}
    assert len(set(drawn)) == 49  # each of 7 x 7, so all legal moves are drawn
    assert openings([5, 5], 4)[0] == openings([7, 5], 4)[1]
    assert all(5 <= len(opening) <= 9 for opening in openings(range(50), 9, "tic_tac_toe_2p")), "a game may end in it"
    # Greedy players: an opening has one continuation, so the two seatings of equals give the same game.
    for plies, distinct in ((4, 20), (0, 1)):
        assert summed(CONFIG, FILLER, FILLER, MatchPlan(40, 3, 0.0, plies)).distinct_games == distinct


def test_a_match_in_parts_or_few_at_once_has_the_same_games(monkeypatch: pytest.MonkeyPatch) -> None:
    def played(games: int, first: int = 0):
        return play_match(CONFIG, RandomPlayer(), COLUMN, MatchPlan(games, 3, 1.0, 4, first))

    parts = [played(20), played(14, 20), played(6, 34)]
    whole = played(40)
    assert parts[0].plus(parts[1]).plus(parts[2]) == whole
    monkeypatch.setattr(match, "IN_FLIGHT", 7)
    assert played(40) == whole
