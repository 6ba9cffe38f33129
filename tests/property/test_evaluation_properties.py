import numpy as np
from chained_ratings import OpponentScore, performance_rating
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from flyball.app.config import GAMES
from flyball.app.core import Elo
from flyball.app.league.ratings import RatingPrior
from flyball.app.play.gauntlet import BatchResult, GauntletSpec, Opponent
from flyball.app.play.inspection import ShardStatistics, quality_score
from flyball.app.play.match_statistics import MatchGames, game_scores, match_games, match_statistics, win_margin

MATCH = st.builds(OpponentScore, st.floats(-1500, 1500).map(Elo), st.floats(0, 1), st.integers(1, 1000), st.just(0.0))
MATCHES = st.lists(MATCH, min_size=1, max_size=5)


@given(MATCHES, st.floats(-500, 500))
def test_ratings_move_with_the_scale(matches, shift) -> None:
    rating, error = performance_rating(matches)
    shifted = [match._replace(elo=Elo(match.elo + shift)) for match in matches]
    moved, same = performance_rating(shifted, RatingPrior(Elo(shift), 800.0))
    assert abs(moved - rating - shift) < 1e-6
    assert abs(same - error) < 1e-6


@given(MATCHES, st.integers(1, 500))
def test_a_win_never_lowers_a_rating(matches, games) -> None:
    rating, error = performance_rating(matches)
    better, surer = performance_rating([*matches, OpponentScore(Elo(0.0), 1.0, games)])
    assert better >= rating - 1e-6
    assert surer > 0
    assert error <= 800 + 1e-9


@given(
    arrays.arrays(
        np.float32, st.tuples(st.integers(1, 8), st.integers(2, 5)), elements=st.sampled_from([-1, 0, 0.5, 1])
    ),
    st.data(),
)
def test_the_scores_of_all_seats_average_to_one_half(returns, data) -> None:
    games, players = returns.shape
    scores = [game_scores(returns, np.full(games, seat), 2.0) for seat in range(players)]
    assert np.allclose(np.mean(scores, axis=0), 0.5)
    heroes = np.array(data.draw(st.lists(st.integers(0, players - 1), min_size=games, max_size=games)))
    cut = data.draw(arrays.arrays(np.bool_, games))
    even = np.where(cut[:, None], np.float32(0), returns)
    lengths, openings = np.ones((2, games), np.int64)
    played = match_games(even, heroes, cut, lengths, [[]] * games, openings=openings, margin=win_margin(even))
    match = match_statistics(played, players)
    assert match.undecided == games
    assert match.wins + match.draws + match.losses + match.truncated == games
    assert match.truncated == cut.sum()
    assert match.score.lower <= match.score.mean <= match.score.upper


VERDICTS = {"won": 1.0, "drawn": 0.5, "lost": 0.0, "truncated": 0.5}


@given(st.lists(st.sampled_from(sorted(VERDICTS)), min_size=1, max_size=40), st.integers(2, 4), st.integers(1, 20))
def test_a_match_in_batches_is_the_match(verdicts, players, batch_games) -> None:
    count = len(verdicts) * players
    whole = MatchGames(
        scores=[VERDICTS[verdict] for verdict in verdicts for _ in range(players)],
        verdicts=[verdict for verdict in verdicts for _ in range(players)],
        lengths=range(count),
        fingerprints=[str(game % 7) for game in range(count)],
    )
    config = next(config for config in GAMES.values() if config.players == players)
    spec = GauntletSpec(
        store="store",
        config=config.replace(evaluation=config.evaluation.replace(batch_games=batch_games)),
        model="a" * 64,
        opponents=[Opponent(name="random", kind="random", games=count)],
        seed=0,
    )
    batches = spec.batches
    parts = [
        BatchResult(
            games={name: values[batch.first : batch.first + batch.games] for name, values in whole}, seconds=1.0
        )
        for batch in batches
    ]
    assert [batch.first for batch in batches] == [sum(one.games for one in batches[:i]) for i in range(len(batches))]
    assert all(batch.games % players == 0 and batch.games <= max(players, batch_games) for batch in batches)
    merged = spec.gather(parts)
    assert dict(match_statistics(whole, players)).items() <= dict(merged.results[0]).items()
    assert merged.lost_games == 0
    assert merged.seconds == len(batches)


@given(st.data())
def test_quality_stays_in_its_range(data) -> None:
    games, rows = data.draw(st.integers(1, 100)), data.draw(st.integers(1, 1000))
    wins = data.draw(st.lists(st.integers(0, games), min_size=2, max_size=4))
    counted = ShardStatistics(
        rows=rows,
        distinct_positions=data.draw(st.integers(1, rows)),
        games=games,
        distinct_games=data.draw(st.integers(1, games)),
        truncated_games=data.draw(st.integers(0, games)),
        wins=tuple(wins),
        drawn_games=data.draw(st.integers(0, games)),
        surprise=data.draw(st.floats(0, 10)),
        freedom=data.draw(st.floats(0.1, 10)),
        mean_length=1.0,
        reachable_games=data.draw(st.floats(1, 1e17)),
        reachable_positions=data.draw(st.floats(1, 1e17)),
    )
    quality = quality_score(counted)
    assert 0 <= quality.score <= 1
    assert all(0 <= value <= 1 for value in quality.components.values())
