"""Online Elo, compared with two naive versions."""

from collections import Counter

import numpy as np
import pytest

from app.core import expected_score
from app.league import (
    EloTable,
    PairTotals,
    PlayedGame,
    UnequalSeats,
    UnratedAgent,
    elo_changes,
    fit_bradley_terry,
    total,
)


def table(**ratings: float) -> EloTable:
    return EloTable(ratings=ratings, fixed=frozenset())


def duels(first: str, second: str, wins: int, losses: int, seed: int = 0) -> list[PlayedGame]:
    scores = np.random.default_rng(seed).permutation([1.0] * wins + [0.0] * losses)
    return [PlayedGame.duel(first, second, score) for score in scores.tolist()]


def by_mean_score(ratings: dict[str, float], first: str, second: str, results: list[str], k: float = 32.0) -> None:
    """Update both players by the mean score of a match."""
    ra, rb, n = ratings[first], ratings[second], len(results)
    sa = (results.count("agent_win") + results.count("draw") / 2) / n
    sb = 1 - sa
    ratings[first] = ra + k * (sa - expected_score(ra - rb))
    ratings[second] = rb + k * (sb - expected_score(rb - ra))


def by_pairs(game_results: dict[str, float], elo_ratings: dict[str, float], k: float = 32.0) -> dict[str, float]:
    """Update all players pair by pair, with K divided by 6."""
    new_elos = dict(elo_ratings)
    agents = list(game_results)
    for i, a in enumerate(agents):
        for b in agents[i + 1 :]:
            actual = (game_results[a] > game_results[b]) + (game_results[a] == game_results[b]) / 2
            delta = (k / 6) * (actual - expected_score(elo_ratings[a] - elo_ratings[b]))
            new_elos[a] += delta
            new_elos[b] -= delta
    return new_elos


def test_one_game_is_elos_rule() -> None:
    changes = elo_changes({"a": 1500.0, "b": 1600.0}, PlayedGame.duel("a", "b", 1.0))
    assert changes == pytest.approx({"a": 32 * 0.640065, "b": -32 * 0.640065}, abs=1e-4)
    assert elo_changes({"a": 1500.0, "b": 1600.0}, PlayedGame.duel("a", "b", 0.5))["a"] > 0


def test_a_match_is_rated_game_by_game_and_comes_near_the_gap_that_explains_it() -> None:
    """75 of 100 are 191 Elo. The document moves 16, as for one game of that score; times the games it moves 1,600."""
    gaps = []
    for seed in range(200):
        rated = table(a=0.0, b=0.0).after(duels("a", "b", 75, 25, seed)).ratings
        gaps.append(rated["a"] - rated["b"])
    assert np.mean(gaps) == pytest.approx(191, abs=15)
    averaged, at_once = {"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0}
    results = ["agent_win"] * 75 + ["opponent_win"] * 25
    by_mean_score(averaged, "a", "b", results)
    by_mean_score(at_once, "a", "b", results, k=32.0 * 100)
    assert averaged["a"] - averaged["b"] == pytest.approx(16)
    assert at_once["a"] - at_once["b"] == pytest.approx(1600)
    fit = fit_bradley_terry([PairTotals.of_games("a", "b", 75, 0, 25)], anchors={"b": 0.0})
    assert fit.difference("a", "b").elo == pytest.approx(191, abs=2)


def test_the_order_of_games_counts() -> None:
    games = duels("a", "b", 10, 0) + duels("a", "b", 0, 10)
    forth, back = (table(a=0.0, b=0.0).after(played).ratings["a"] for played in (games, games[::-1]))
    assert forth < 0 < back


def test_an_agent_is_not_its_own_opponent() -> None:
    """In the document a champion that beats itself in every game loses: its second entry overwrites the first."""
    assert elo_changes({"run": 1500.0}, PlayedGame.duel("run", "run", 1.0)) == {"run": 0.0}
    document = {"run": 1500.0}
    by_mean_score(document, "run", "run", ["agent_win"] * 20)
    assert document["run"] < 1500
    with pytest.raises(ValueError, match="its own opponent"):
        PairTotals.of_games("run", "run", 20, 0, 0)


def test_each_opponent_is_rated_from_its_own_games() -> None:
    """The hero beats one and loses to the other. The document rates both from all games together: nobody moves."""
    rated = table(hero=0.0, weak=0.0, strong=0.0).after(duels("hero", "weak", 20, 0) + duels("strong", "hero", 20, 0))
    assert rated.ratings["weak"] < -100
    assert rated.ratings["strong"] > 100
    document = {"hero": 0.0, "weak": 0.0, "strong": 0.0}
    for opponent in ("weak", "strong"):
        by_mean_score(document, "hero", opponent, ["agent_win"] * 20 + ["opponent_win"] * 20)
    assert document == {"hero": 0.0, "weak": 0.0, "strong": 0.0}
    together = total([PairTotals.of_games("hero", "weak", 20, 0, 0), PairTotals.of_games("strong", "hero", 20, 0, 0)])
    fit = fit_bradley_terry(together, anchors={"hero": 0.0})
    assert fit.rating("weak").elo < -300 < 300 < fit.rating("strong").elo


SEVEN = ("austria", "england", "france", "germany", "italy", "russia", "turkey")


def test_seats_are_mapped_to_agents() -> None:
    """The document looks powers up among the agents."""
    agents = ("hero", "old", "old", "old", "bot", "bot", "bot")
    outcome = tuple(float(place) for place in range(7, 0, -1))
    with pytest.raises(KeyError, match="austria"):
        by_pairs(dict(zip(SEVEN, outcome, strict=True)), dict.fromkeys(agents, 1000.0))
    changes = elo_changes(dict.fromkeys(agents, 1000.0), PlayedGame.of(agents, outcome))
    assert changes.keys() == {"hero", "old", "bot"}
    assert changes["hero"] > 0 > changes["bot"]


def test_clones_are_not_rated_against_each_other() -> None:
    """A table of one agent says nothing. The document, powers mapped, lets the seat that is named first gain."""
    assert elo_changes({"a": 0.0}, PlayedGame.of(("a",) * 7, range(7))) == {"a": 0.0}
    by_seat = by_pairs(dict(zip(SEVEN, range(7), strict=True)), dict.fromkeys(SEVEN, 0.0))
    assert max(by_seat.values()) == pytest.approx(16)
    clones = PlayedGame.of(("a", "a", "b"), (2.0, 0.0, 1.0))
    assert elo_changes({"a": 0.0, "b": 0.0}, clones) == pytest.approx({"a": 0.0, "b": 0.0})


def test_clones_are_compared_seat_by_seat_and_not_by_their_mean() -> None:
    """The hero beats two of three clones. Against their mean, which one good seat lifts, it loses."""
    game = PlayedGame.of(("hero", "old", "old", "old"), (5.0, 4.0, 3.0, 100.0))
    change = elo_changes({"hero": 0.0, "old": 0.0}, game)["hero"]
    assert change == pytest.approx(32 / 3 * (2 - 3 * 0.5))
    means = {"hero": 5.0, "old": (4.0 + 3.0 + 100.0) / 3}
    assert by_pairs(means, {"hero": 0.0, "old": 0.0})["hero"] < 0 < change


@pytest.mark.parametrize("players", [2, 3, 4, 7])
def test_the_weight_of_a_pair_follows_the_number_of_players(players) -> None:
    """A win over equals is worth K / 2, whatever their number. The document divides by 6 at every table."""
    agents = [f"a{number}" for number in range(players)]
    outcome = [1.0] + [0.0] * (players - 1)
    equals = dict.fromkeys(agents, 0.0)
    assert elo_changes(equals, PlayedGame.of(agents, outcome))["a0"] == pytest.approx(16)
    document = by_pairs(dict(zip(agents, outcome, strict=True)), equals)["a0"]
    assert (document == pytest.approx(16)) == (players == 7)


def test_anchors_do_not_move() -> None:
    anchored = EloTable(ratings={"random": 0.0, "a": 0.0}, fixed=frozenset({"random"}))
    rated = anchored.after(duels("a", "random", 50, 0)).ratings
    assert rated["random"] == 0
    assert rated["a"] > 200


def test_an_agent_joins_once_and_plays_only_then() -> None:
    joined = table(a=0.0).joined("b", 1200.0)
    assert joined.joined("b", 5.0).ratings["b"] == 1200
    with pytest.raises(UnratedAgent, match="join the table"):
        table(a=0.0).after([PlayedGame.duel("a", "b", 1.0)])


@pytest.mark.parametrize(("agents", "returns"), [(("a",), (1.0,)), (("a", "b"), (1.0,)), ((), ())])
def test_a_game_has_an_outcome_for_every_seat(agents, returns) -> None:
    with pytest.raises(UnequalSeats, match="outcome of each"):
        PlayedGame.of(agents, returns)


def test_ratings_survive_a_restart_bit_for_bit() -> None:
    rated = table(a=0.1, b=1 / 3).after(duels("a", "b", 31, 17))
    assert EloTable.model_validate_json(rated.model_dump_json()) == rated


def test_a_constant_player_wanders_by_more_than_decisions_bear() -> None:
    """Why nothing is decided by online Elo: the strength never changes, its rating does by some 50 Elo."""
    rng, rated, seen = np.random.default_rng(0), table(a=100.0, b=0.0), []
    for _ in range(4000):
        rated = rated.after([PlayedGame.duel("a", "b", float(rng.random() < expected_score(100)))])
        seen.append(rated.ratings["a"] - rated.ratings["b"])
    assert 30 < np.std(seen[200:]) < 90
    assert Counter(np.sign(np.array(seen) - 100))[1.0] > 1000
