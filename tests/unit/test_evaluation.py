import numpy as np
import pytest
from chained_ratings import OpponentScore, performance_rating

from flyball.app.config import EvaluationSettings
from flyball.app.core import Elo, ModelHash
from flyball.app.league.ratings import RatingPrior
from flyball.app.play.gauntlet import plan_gauntlet
from flyball.app.play.inspection import ShardStatistics, quality_score
from flyball.app.play.match_statistics import (
    MatchGames,
    NoGames,
    game_scores,
    match_games,
    match_statistics,
    seat_wins,
    win_margin,
)

A, B, C, D = (ModelHash(letter * 64) for letter in "abcd")
SETTINGS = EvaluationSettings(random_games=200, model_games=100)


@pytest.mark.parametrize(
    ("players", "bots", "candidates", "games"),
    [
        (2, ("random",), {"champion": B, "recent": C}, {"random": 200, "champion": 100, "recent": 50}),
        (2, ("random",), {"champion": A, "recent": B}, {"random": 200, "recent": 50}),  # never the hero itself
        (2, ("random",), {"champion": B, "recent": A}, {"random": 200, "champion": 100}),
        (2, ("random",), {"champion": B, "recent": B}, {"random": 200, "champion": 100}),  # never one model twice
        (2, ("random",), {"champion": None, "recent": None}, {"random": 200}),
        (3, ("random",), {"champion": B, "recent": None}, {"random": 201, "champion": 102}),  # as many for each seat
        (
            4,
            ("heuristic", "random"),
            {"anchor_1": C, "anchor_2": D, "champion": B, "recent": B},
            {"random": 200, "heuristic": 52, "anchor_1": 100, "anchor_2": 52, "champion": 100},
        ),
    ],
)
def test_gauntlet_has_each_model_once_and_every_seat_alike(players, bots, candidates, games) -> None:
    plan = plan_gauntlet(A, list(candidates.items()), bots, SETTINGS, players=players)
    assert [(one.name, one.games) for one in plan] == list(games.items())
    for one in plan:
        assert (one.kind, one.model) == (
            ("model", candidates[one.name]) if one.name in candidates else (one.name, None)
        )


def test_scores_are_opponents_beaten_or_linear_in_outcomes() -> None:
    third = -1 / 3
    returns = np.array([[1, third, third, third], [third, 1, third, third], [0, 0, 0, 0]], dtype=np.float32)
    scores = game_scores(returns, np.array([0, 2, 3]), win_margin(returns))
    assert scores.tolist() == [1, 1 / 3, 0.5]  # exactly, although 1/3 is no float32
    outcomes = np.array([[x, -x] for x in (-1, -0.5, 0, 0.25, 1)], dtype=np.float32)
    scores = game_scores(outcomes, np.zeros(5, dtype=np.int64), margin=1.0)
    assert scores.tolist() == [-0.5, 0, 0.5, 0.75, 1.5]
    assert win_margin(np.array([[1, -1], [0, 0], [-1, 1]], dtype=np.float32)) == 2
    returns = np.array([[1, -1], [0, 0], [-1, 1], [0, 0]], dtype=np.float32)
    assert seat_wins(returns, np.array([False, False, False, True])) == ((1, 1), 1)


def test_match_of_graded_games_says_its_mean_outcome() -> None:
    # 1 chip in 8 of 10 games, otherwise -10: the mean is -1.2 chips, although 80% of the games are won.
    chips = [1, -10, 1, 1, 1, 1, 1, 1, 1, -10]
    returns = [[chip / 11, -chip / 11] for chip in chips for _ in range(2)]
    swapped = [pair if game % 2 == 0 else pair[::-1] for game, pair in enumerate(returns)]
    match = statistics(swapped, [0, 1] * 10, unit=11)
    assert match.outcome is not None
    assert match.outcome.mean == pytest.approx(-1.2)
    assert match.outcome.stderr == pytest.approx(np.std(chips, ddof=1) / 10**0.5)
    assert (match.won.mean, match.wins) == (0.8, 16)
    assert match.score.mean < 0.5
    assert match.rotations == ()
    assert match.graded is not None
    assert match.graded.rotations == 10


def statistics(returns, heroes, truncated=None, histories=None, unit=1.0):
    cut = np.zeros(len(returns), dtype=bool) if truncated is None else np.array(truncated)
    played = histories or [[game] for game in range(len(returns))]
    lengths = np.full(len(returns), 10)
    outcomes = np.array(returns, dtype=np.float32)
    ended = outcomes, np.array(heroes), cut, lengths, played
    games = match_games(*ended, openings=np.zeros_like(lengths), margin=win_margin(outcomes), unit=unit)
    return match_statistics(games, outcomes.shape[1])


def test_match_counts_wins_draws_losses_and_truncations() -> None:
    histories = [[1, 2, 3], [1, 2], [1, 2, 3], [1, 2]]
    match = statistics([[1, -1], [1, -1], [0, 0], [0, 0]], [0, 1, 0, 1], [False, False, False, True], histories)
    assert (match.games, match.wins, match.draws, match.losses, match.truncated) == (4, 1, 1, 1, 1)
    assert (match.score.mean, match.score.n, match.mean_length, match.distinct_games) == (0.5, 4, 10, 2)
    with pytest.raises(NoGames):
        match_statistics(MatchGames(), 2)


def test_the_error_of_a_match_comes_from_its_rotations() -> None:
    # Whoever begins wins: every rotation gives one half, so the mean is certain although single games are not.
    assert statistics([[1, -1]] * 40, [0, 1] * 20).stderr == 0
    # Rotations of 2 and 0 wins: their means have a standard deviation of 0.5129, over the root of 20.
    spread = statistics([[1, -1], [-1, 1], [-1, 1], [1, -1]] * 10, [0, 1, 0, 1] * 10).stderr
    assert spread == pytest.approx(0.5129892 / 20**0.5)
    assert statistics([[1, -1], [1, -1]], [0, 1]).stderr is None


@pytest.mark.parametrize(("score", "elo"), [(0.5, 0), (0.75, 190.85), (1 / 11, -400)])
def test_a_rating_explains_the_score(score: float, elo: float) -> None:
    rating, error = performance_rating([OpponentScore(Elo(100.0), score, 100_000)], RatingPrior(Elo(0.0), 1e6))
    assert rating == pytest.approx(100 + elo, abs=0.1)
    assert error == pytest.approx(400 / np.log(10) / np.sqrt(100_000 * score * (1 - score)), rel=1e-3)


def test_rating_error_follows_from_games_and_opponents() -> None:
    """In a chain, each of 16 models beats its predecessor by 50 Elo: the sum is not known to within 30 Elo."""
    results = [OpponentScore(Elo(0.0), 0.9, 300), OpponentScore(Elo(400.0), 0.5, 100)]
    rating, error = performance_rating(results)
    alone = [performance_rating([result]) for result in results]
    assert alone[1][0] > rating > alone[0][0]
    assert error < min(one[1] for one in alone)
    exact = performance_rating([OpponentScore(Elo(100.0), 0.6, 100)])
    assert performance_rating([OpponentScore(Elo(100.0), 0.6, 100, 0.0)]) == exact
    assert performance_rating([OpponentScore(Elo(100.0), 0.6, 100, 50.0)])[1] > exact[1]
    elo, error = performance_rating([OpponentScore(Elo(0.0), 0.5, 200)])
    first = error
    for _ in range(16):
        elo, error = performance_rating([OpponentScore(elo, 0.57, 100, error)])
    assert error >= 4 * first
    assert elo == pytest.approx(16 * 49, rel=0.1)


def test_a_perfect_score_is_finite_and_uncertain() -> None:
    rating, error = performance_rating([OpponentScore(Elo(0.0), 1.0, 200)])
    assert 800 < rating < 1600
    assert error > 200
    assert performance_rating([OpponentScore(Elo(0.0), 0.0, 200)])[0] == pytest.approx(-rating)
    assert performance_rating([], RatingPrior(Elo(120.0), 300.0)) == pytest.approx((120, 300)), "only the prior"


GOOD = ShardStatistics(
    rows=1000, distinct_positions=800, games=50, distinct_games=50, truncated_games=0, wins=(25, 20), drawn_games=5,
    surprise=1.0, freedom=2.0, mean_length=20, reachable_games=1e9, reachable_positions=1e9,
)  # fmt: skip


def test_good_experience_scores_one() -> None:
    assert quality_score(GOOD).score == 1
    counted = GOOD.replace(wins=(0, 0), drawn_games=0, truncated_games=50)
    assert quality_score(counted).components["balance"] == 1, "games that nobody finished say nothing of balance"


@pytest.mark.parametrize(
    ("component", "change", "value"),
    [
        ("diversity", {"distinct_positions": 100}, 0.3),
        ("originality", {"distinct_games": 5}, 0.2),
        ("completion", {"truncated_games": 10}, 0.8),
        ("completion", {"truncated_games": 50, "wins": (0, 0), "drawn_games": 0}, 0.1),
        ("balance", {"wins": (50, 0), "drawn_games": 0}, 0.1),
        ("balance", {"wins": (49, 1), "drawn_games": 0}, 0.3016),
        ("entropy", {"surprise": 0.02}, 0.1),
        ("entropy", {"surprise": 0.0}, 0.0),
    ],
)
def test_each_fault_lowers_its_component_and_the_score(component: str, change, value: float) -> None:
    quality = quality_score(GOOD.replace(**change))
    assert quality.components[component] == pytest.approx(value, abs=1e-3)
    assert [c for name, c in quality.components.items() if name != component] == [1.0] * 4
    assert quality.score < 0.97


def test_match_without_margins_counts_half_points() -> None:
    match = statistics([[1, -1], [-1, 1], [0, 0], [1, -1]], [0, 1, 0, 1])
    assert match.graded is None
    assert match.rotations == (0, 1, 0, 0, 1)
