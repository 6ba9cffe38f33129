"""The batch fits: against choix, against published tables, and what is kept of them."""

from itertools import combinations

import choix
import numpy as np
import pytest
from pydantic import ValidationError
from scipy.optimize import minimize

from app.core import expected_score
from app.league import (
    NotRated,
    PairTotals,
    PlayedGame,
    RatingPrior,
    Ratings,
    find_cycle,
    fit_bradley_terry,
    fit_plackett_luce,
    total,
)
from app.league.choices import choices_of
from app.league.scale import PER_ELO

FLAT = RatingPrior(deviation=1e6)

# Citations among four journals of statistics: Stigler (1994), in A. Agresti, Categorical Data Analysis, 2002, p. 448.
CITED = {
    ("Comm Statist", "Biometrika"): 33, ("JASA", "Biometrika"): 320, ("JRSS-B", "Biometrika"): 284,
    ("Biometrika", "Comm Statist"): 730, ("JASA", "Comm Statist"): 813, ("JRSS-B", "Comm Statist"): 276,
    ("Biometrika", "JASA"): 498, ("Comm Statist", "JASA"): 68, ("JRSS-B", "JASA"): 325,
    ("Biometrika", "JRSS-B"): 221, ("Comm Statist", "JRSS-B"): 17, ("JASA", "JRSS-B"): 142,
}  # fmt: skip


def test_the_published_fit_of_a_published_table() -> None:
    """Estimates and errors as in the vignette of the R package BradleyTerry2 (``citeModel``), Biometrika at zero."""
    pairs = [PairTotals.of_games(cited, citing, count, 0, 0) for (cited, citing), count in CITED.items()]
    ratings = fit_bradley_terry(pairs, anchors={"Biometrika": 0.0}, prior=FLAT)
    published = {"Comm Statist": (-2.94907, 0.10255), "JASA": (-0.47957, 0.06059), "JRSS-B": (0.26895, 0.07083)}
    for journal, (strength, stderr) in published.items():
        rating = ratings.rating(journal)
        assert rating.elo * PER_ELO == pytest.approx(strength, abs=1e-5)
        assert rating.stderr * PER_ELO == pytest.approx(stderr, abs=1e-5)


def test_bradley_terry_agrees_with_choix() -> None:
    rng, strengths = np.random.default_rng(0), np.random.default_rng(1).normal(0, 1, 8)
    duels = []
    for _ in range(600):
        a, b = rng.choice(8, 2, replace=False).tolist()
        won = rng.random() < 1 / (1 + np.exp(strengths[b] - strengths[a]))
        duels.append((a, b) if won else (b, a))
    reference = choix.opt_pairwise(8, duels, tol=1e-12)
    ratings = fit_bradley_terry(
        [PairTotals.of_games(str(a), str(b), 1, 0, 0) for a, b in duels], anchors={"0": 0.0}, prior=FLAT
    )
    assert np.allclose(np.array(ratings.elo) * PER_ELO, reference - reference[0], atol=1e-5)


@pytest.mark.parametrize("players", [2, 3, 5, 7])
def test_plackett_luce_agrees_with_choix(players) -> None:
    rng, strengths = np.random.default_rng(players), np.random.default_rng(1).normal(0, 1, 8)
    rankings, games = [], []
    for _ in range(200):
        seats = rng.choice(8, players, replace=False)
        shown = strengths[seats] + rng.gumbel(size=players)
        rankings.append(seats[np.argsort(-shown)].tolist())
        games.append(PlayedGame.of([str(seat) for seat in seats], shown.tolist()))
    reference = choix.ilsr_rankings(8, rankings, tol=1e-10)
    ratings = fit_plackett_luce(games, anchors={"0": 0.0}, prior=FLAT)
    assert np.allclose(np.array(ratings.elo) * PER_ELO, reference - reference[0], atol=1e-5)


@pytest.mark.parametrize("fit", [fit_bradley_terry, fit_plackett_luce])
def test_without_games_only_anchors_are_rated(fit) -> None:
    assert fit([], anchors={}).agents == ()
    ratings = fit([], anchors={"random": 0.0, "anchor": 300.0})
    assert (ratings.agents, ratings.elo) == (("anchor", "random"), (300.0, 0.0))


def test_for_two_players_both_fits_are_one() -> None:
    """Draws included, but for the errors: one knows how many there were of each pair, the other only their variance."""
    rng, pairs, games = np.random.default_rng(3), [], []
    for first, second in combinations(("random", "a", "b", "c"), 2):
        won, drawn, lost = (int(count) for count in rng.multinomial(400, (0.4, 0.3, 0.3)))
        pairs.append(PairTotals.of_games(first, second, won, drawn, lost))
        for score, count in ((1.0, won), (0.5, drawn), (0.0, lost)):
            games += [PlayedGame.duel(first, second, score)] * count
    one, other = fit_bradley_terry(pairs), fit_plackett_luce(games)
    assert one.elo == pytest.approx(other.elo, abs=1e-6)
    assert one.covariance == pytest.approx(other.covariance, rel=0.05)


def brute_force(game: PlayedGame, strengths: dict[str, float]) -> float:
    """Return the mean logarithm of the chances of all strict orders that a ranking with ties leaves open."""
    rng, found = np.random.default_rng(0), []
    for _ in range(20_000):
        broken = np.array(game.returns) + 1e-6 * rng.random(len(game.agents))
        ordered = [np.exp(strengths[game.agents[seat]]) for seat in np.argsort(-broken)]
        found.append(sum(np.log(ordered[i] / sum(ordered[i:])) for i in range(len(ordered))))
    return float(np.mean(found))


def test_a_tie_is_all_orders_in_equal_shares() -> None:
    """The rating of most likelihood, found by trying, for one game with ties of three and of two."""
    game = PlayedGame.of(("a", "random", "b", "random", "a", "a"), (3.0, 3.0, 3.0, 1.0, 1.0, 0.0))
    strengths = {"random": 0.0, "a": 0.4, "b": 0.9}
    members, shares = choices_of((3, 2, 1)).members, choices_of((3, 2, 1)).shares
    by_place = np.array([strengths[agent] for agent in ("a", "random", "b", "random", "a", "a")])
    totals = np.log(np.where(members, np.exp(by_place), 0.0).sum(axis=1))
    assert by_place.sum() - shares @ totals == pytest.approx(brute_force(game, strengths), abs=0.01)


def test_the_fit_is_the_posterior_mode() -> None:
    """Against a general optimiser, with the prior, ties and clones."""
    rng, names = np.random.default_rng(5), ("random", "a", "b", "c")
    games = [
        PlayedGame.of([names[i] for i in rng.integers(0, 4, 3)], rng.integers(0, 3, 3).astype(float)) for _ in range(60)
    ]
    prior = RatingPrior(mean=50.0, deviation=200.0)
    ratings = fit_plackett_luce(games, prior=prior)

    def loss(elo: np.ndarray) -> float:
        strengths = dict(zip(names, [0.0, *(elo * PER_ELO)], strict=True))
        value = sum(((one - prior.mean) / prior.deviation) ** 2 / 2 for one in elo)
        for game in games:
            order = np.argsort(-np.array(game.returns), kind="stable")
            sizes = tuple(np.unique(-np.array(game.returns), return_counts=True)[1].tolist())
            by_place, choices = np.array([strengths[game.agents[seat]] for seat in order]), choices_of(sizes)
            totals = np.log(np.where(choices.members, np.exp(by_place), 0.0).sum(axis=1))
            value -= by_place.sum() - choices.shares @ totals
        return float(value)

    best = minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-9}).x
    assert [ratings.rating(name).elo for name in names[1:]] == pytest.approx(best.tolist(), abs=0.05)


def test_half_wins_keep_the_meaning_of_elo() -> None:
    """70% of the points are 147 Elo, with few draws or many. The odds of the decided games would say 147 or 280."""
    for won, drawn, lost in ((700, 0, 300), (500, 400, 100)):
        ratings = fit_bradley_terry([PairTotals.of_games("a", "random", won, drawn, lost)], prior=FLAT)
        assert expected_score(ratings.rating("a").elo) == pytest.approx(0.7)


def test_draws_and_shared_openings_make_ratings_surer() -> None:
    decided = PairTotals.of_games("a", "random", 60, 0, 40)
    drawn = PairTotals.of_games("a", "random", 30, 60, 10)
    split = PairTotals.of_rotations("a", "random", (0, 0, 40, 0, 10))
    repeated = PairTotals.of_rotations("a", "random", (20, 0, 0, 0, 30))
    errors = [fit_bradley_terry([pair]).rating("a").stderr for pair in (split, drawn, decided, repeated)]
    assert errors == sorted(errors)
    assert errors[3] > 1.3 * errors[2] > 1.3**2 * errors[1]


def test_a_perfect_score_is_finite_and_uncertain() -> None:
    rating = fit_bradley_terry([PairTotals.of_games("a", "random", 200, 0, 0)]).rating("a")
    assert 800 < rating.elo < 1600
    assert rating.stderr > 200


def test_what_no_game_connects_to_an_anchor_keeps_its_prior() -> None:
    ratings = fit_bradley_terry([PairTotals.of_games("a", "b", 50, 0, 50)])
    assert ratings.rating("a").elo == pytest.approx(0, abs=1e-6)
    assert ratings.rating("a").stderr > 500 > 40 > ratings.difference("a", "b").stderr


def test_several_anchors_hold_together() -> None:
    pairs = [PairTotals.of_games("a", "random", 50, 0, 50), PairTotals.of_games("a", "heuristic", 50, 0, 50)]
    ratings = fit_bradley_terry(pairs, anchors={"random": 0.0, "heuristic": 200.0})
    assert ratings.rating("heuristic") == (200, 0)
    assert ratings.rating("a").elo == pytest.approx(100, abs=2)


def test_the_order_and_the_side_of_totals_change_nothing() -> None:
    rng = np.random.default_rng(0)
    names = ("random", *"abcdef")
    pairs = [PairTotals.of_games(a, b, *rng.integers(1, 50, 3)) for a, b in combinations(names, 2)]
    mixed = [pair.flipped if rng.random() < 0.5 else pair for pair in rng.permutation(np.array(pairs, dtype=object))]
    assert fit_bradley_terry(mixed) == fit_bradley_terry(pairs)


def test_hundreds_of_agents_are_rated_at_once() -> None:
    rng, truth = np.random.default_rng(0), np.random.default_rng(1).normal(300, 200, 300)
    pairs = [PairTotals.of_games("random", "0", 50, 0, 50)]
    for a in range(300):
        for b in rng.choice(300, 6, replace=False).tolist():
            won = int(rng.binomial(100, expected_score(truth[a] - truth[b])))
            pairs += [PairTotals.of_games(str(a), str(b), won, 0, 100 - won)] if a != b else []
    ratings = fit_bradley_terry(pairs)
    assert len(ratings.agents) == 301
    fitted = np.array([ratings.rating(str(a)).elo for a in range(300)])
    assert np.std(fitted - truth) < 25
    assert find_cycle(pairs) is None


class TestKeeping:
    RATINGS = fit_bradley_terry([PairTotals.of_games("a", "random", 7, 1, 3), PairTotals.of_games("b", "a", 3, 0, 1)])

    def test_ratings_survive_a_restart_bit_for_bit(self) -> None:
        assert Ratings.model_validate_json(self.RATINGS.model_dump_json()) == self.RATINGS

    def test_who_was_not_rated_is_not_asked_for(self) -> None:
        with pytest.raises(NotRated, match="c has no rating"):
            self.RATINGS.rating("c")

    def test_a_difference_has_a_sign_and_the_covariance_is_symmetric(self) -> None:
        forth, back = self.RATINGS.difference("a", "b"), self.RATINGS.difference("b", "a")
        assert (forth.elo, forth.stderr) == (-back.elo, back.stderr)
        assert self.RATINGS.difference("a", "random") == self.RATINGS.rating("a")
        assert self.RATINGS.difference("a", "a") == (0, 0)

    @pytest.mark.parametrize(
        "damage", [{"agents": ("b", "a", "random")}, {"agents": ("a", "b")}, {"elo": (0.0,)}, {"covariance": (1.0,)}]
    )
    def test_damaged_ratings_are_refused(self, damage) -> None:
        with pytest.raises(ValidationError):
            Ratings.model_validate({**dict(self.RATINGS), **damage})


class TestTotals:
    def test_rotations_of_one_game_each_are_games(self) -> None:
        """Pairs whose second game mirrors the first hold as much as half as many games."""
        games, pairs = PairTotals.of_games("a", "b", 6, 2, 4), PairTotals.of_rotations("a", "b", (4, 0, 2, 0, 6))
        assert (pairs.games, pairs.rotations, pairs.score) == (24, 12, 14)
        assert pairs.dispersion == pytest.approx(2 * games.dispersion, rel=0.25)

    def test_totals_of_the_same_two_are_added_up_from_either_side(self) -> None:
        parts = [PairTotals.of_games("b", "a", 1, 2, 3), PairTotals.of_games("a", "b", 10, 0, 0)]
        assert total(parts) == (PairTotals.of_games("a", "b", 13, 2, 1),)

    def test_few_observations_have_the_variance_of_single_games(self) -> None:
        assert PairTotals.of_games("a", "b", 3, 0, 0).dispersion == 1
        assert PairTotals.of_games("a", "b", 0, 100, 0).dispersion < 0.05
