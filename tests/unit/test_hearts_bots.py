"""Hearts bots: no peeking, moons, and a strict order of levels."""

from math import sqrt

import numpy as np
import pytest
from hearts_games import bits, play, random_choice
from hearts_games import cards_of as cards

from flyball.app.games.hearts import bots
from flyball.app.games.hearts.bots import deal_hidden, recall
from flyball.app.games.hearts.normal import cannot_be_stopped, look, normal_choice
from flyball.app.games.hearts.play import GAME, legal
from flyball.app.games.hearts.rules import HeartsRules
from flyball.app.games.hearts.table import HeartsTable
from flyball.app.play.players import HeuristicPlayer, RandomPlayer
from flyball.app.play.rollout import Rollout, Schedule

RULES = HeartsRules()
OPTIONS = RULES.option_set


def positions(games: int, seed: int = 0, rules: HeartsRules = RULES):
    """Return positions from hands played at random. Each is (game record, seat to move, observation, mask)."""
    table, found = HeartsTable(rules, games), []

    def watch(slots, seats, obs, mask, _actions):
        found.extend(zip(table._games[slots].copy(), seats.tolist(), obs, mask, strict=True))

    play(table, range(seed, seed + games), random_choice(np.random.default_rng(seed)), watch)
    return found


def test_the_normal_bot_is_unaffected_by_what_the_others_hold() -> None:
    rng = np.random.default_rng(3)
    for game, seat, _, _ in positions(10):
        choice = normal_choice(game, legal(game))
        others = [other for other in range(4) if other != seat]
        hidden = [card for other in others for card in range(52) if game["hand"][other] >> card & 1]
        sizes = [int(game["hand"][other]).bit_count() for other in others]
        for _ in range(3):
            parts = np.split(rng.permutation(hidden), np.cumsum(sizes)[:-1])
            swapped = game.copy()
            for other, dealt in zip(others, parts, strict=True):
                swapped["hand"][other] = sum(1 << int(card) for card in dealt)
                swapped["given"][other] = rng.integers(1 << 52)
            swapped["deck"] = rng.permutation(52)
            swapped["passes"] = rng.integers(0, 52, 12)
            assert normal_choice(swapped, legal(game)) == choice


def test_bots_play_from_observations_as_they_would_at_the_table() -> None:
    found = positions(12, seed=7)
    obs, mask = np.stack([row[2] for row in found]), np.stack([row[3] for row in found])
    chosen = bots.normal(RULES)(obs, mask).argmax(axis=1)
    at_the_table = [normal_choice(game, legal(game)) for game, *_ in found]
    assert chosen.tolist() == at_the_table


def test_an_observation_is_recalled_as_the_game_the_seat_knows() -> None:
    for game, seat, obs, mask in positions(20, seed=50):
        known = recalled(obs)
        assert known["hand"][0] == game["hand"][seat]
        assert not known["hand"][1:].any()
        assert legal(known) == bits(mask[None])[0]
        for name in ("played", "cards_played", "direction", "broken"):
            assert known[name] == game[name]
        assert known["points"].tolist() == np.roll(game["points"], -seat).tolist()
        assert known["voids"][1:].tolist() == np.roll(game["voids"], -seat)[1:].tolist()
        count = int(game["cards_played"])
        first = count - count % 4
        assert known["plays"][first:count].tolist() == game["plays"][first:count].tolist()
        assert known["leader"] == (game["leader"] - seat) % 4 or game["leader"] < 0
    for game, _, obs, _ in positions(3, rules=HeartsRules(hands=3)):
        assert not (game["scores"].any() and recalled(obs)["points"].any()), "in a match they are not guessed"


def recalled(obs: np.ndarray) -> np.void:
    known = np.zeros(1, dtype=GAME)[0]
    recall(obs, OPTIONS, known)
    return known


def test_hidden_cards_are_dealt_as_the_seat_knows_them_to_lie() -> None:
    table_hands = 0
    for game, seat, obs, _ in positions(20, seed=90):
        known = recalled(obs)
        first, again = known.copy(), known.copy()
        for dealt in (first, again):
            deal_hidden(dealt, 5)
        assert first["hand"].tolist() == again["hand"].tolist()
        hands = [int(hand) for hand in first["hand"]]
        assert sum(hand.bit_count() for hand in hands) == int(np.bitwise_or.reduce(first["hand"])).bit_count()
        sizes = [int(game["hand"][(seat + k) % 4]).bit_count() for k in range(1, 4)]
        if game["cards_passed"] == 0 or game["cards_played"]:
            assert [hand.bit_count() for hand in hands[1:]] == sizes
        for k in range(1, 4):
            for suit in range(4):
                assert not (known["voids"][k] >> suit & 1 and hands[k] >> 13 * suit & 0x1FFF)
        table_hands += hands[1:] == [int(game["hand"][(seat + k) % 4]) for k in range(1, 4)]
    assert table_hands < 100  # those with a card or two left: the true hands are not known otherwise


def test_the_hard_bot_depends_on_the_position_and_its_seed_alone() -> None:
    found = [row for row in positions(6, seed=4) if row[0]["cards_played"] > 20][:12]
    obs, mask = np.stack([row[2] for row in found]), np.stack([row[3] for row in found])
    chosen = bots.hard(RULES, deals=8)(obs, mask).argmax(axis=1)
    assert np.take_along_axis(mask, chosen[:, None], axis=1).all()
    alone = [bots.hard(RULES, deals=8)(obs[[k]], mask[[k]]).argmax() for k in range(len(obs))]
    assert chosen.tolist() == alone
    backwards = bots.hard(RULES, deals=8)(obs[::-1], mask[::-1]).argmax(axis=1)
    assert backwards[::-1].tolist() == alone


def endgame(hand: str, trick: str, out: str, points) -> np.ndarray:
    """Return a game [1] with four cards left to each seat, at seat 0's turn; others hold ``out`` and the trick."""
    mine, lying = cards(hand), cards(trick)
    gone = [card for card in range(52) if card not in mine + cards(out)]
    assert len(gone) == 36
    game = np.zeros(1, dtype=GAME)
    game["hand"][0, 0] = sum(1 << card for card in mine)
    game["played"] = sum(1 << card for card in gone + lying)
    game["plays"][0, : 36 + len(lying)] = gone + lying
    game["cards_played"], game["cards_passed"], game["direction"], game["options"] = 36 + len(lying), 12, 1, OPTIONS
    game["leader"], game["points"], game["broken"] = -len(lying) % 4, [points], True
    game["choices"] = legal(game[0])
    return game


def choice(hand: str, trick: str, out: str, points) -> int:
    """Return what the normal bot plays in an endgame."""
    table = HeartsTable(RULES, 1)
    table._games[:] = endgame(hand, trick, out, points)
    return int(bots.normal(RULES)(*table.observe(np.array([0]))).argmax())


CLUBS_AND_DIAMONDS = "9C TC JC QC 6C 9D TD JD QD 5D"


def test_moons_that_nobody_can_stop_are_shot_and_others_are_not() -> None:
    """In the last cases my right-hand neighbour leads and has all points so far; my heart would be one more."""
    out = f"{CLUBS_AND_DIAMONDS} JH QH"
    assert choice("AH KH AC KC", "", out, (24, 0, 0, 0)) in cards("AH AC")
    for hand, trick, points, sure in (
        ("AH KH AC KC", "", (24, 0, 0, 0), True),
        ("AH KH AC KC", "QC", (24, 0, 0, 0), True),
        ("AH KH AC KC", "", (23, 1, 0, 0), False),  # somebody has a point
        ("AH KH AC 8C", "", (24, 0, 0, 0), False),  # the eight may lose a trick
        ("AH KH 8C 7C", "QC", (24, 0, 0, 0), False),  # and so it does here
    ):
        game = endgame(hand, trick, out, points)[0]
        assert cannot_be_stopped(game, look(game)) == sure
    out, ace = f"{CLUBS_AND_DIAMONDS} KC KH", cards("AH")[0]
    assert choice("AH 6D 7D 8D", "9C", out, (0, 0, 0, 24)) != ace
    assert choice("AH 6D 7D 8D", "9C", out, (0, 12, 0, 12)) == ace


def points_of(outcome: np.ndarray) -> np.ndarray:
    """Return the points [G, 4] behind outcomes [G, 4] of hands."""
    moon = outcome.max(axis=1, keepdims=True) > 0.99
    return np.where(moon, np.where(outcome > 0.99, 0, 26), (26 - 78 * outcome) / 4)


PLAYERS = {
    "random": RandomPlayer,
    "easy": lambda: HeuristicPlayer(bots.LEVELS["easy"](RULES)),
    "normal": lambda: HeuristicPlayer(bots.normal(RULES)),
    "hard": lambda: HeuristicPlayer(bots.hard(RULES)),
}


def level(hero: str, others: str, deals: int, seed: int = 1) -> tuple[float, float, float, float]:
    """Return a hero's points a hand, and those less the mean of three others', each with 1.96 standard errors.

    Every deal is played four times, with the hero in each seat, and is one observation.
    """
    games = deals * 4
    seating = np.ones((games, 4), dtype=np.int8)
    seating[np.arange(games), np.arange(games) % 4] = 0
    schedule = Schedule([seed * 10**9 + game // 4 for game in range(games)], seating, (1.0, 1.0), seed)
    table = HeartsTable(RULES, min(games, 2048))
    outcomes = Rollout(table, [PLAYERS[hero](), PLAYERS[others]()], schedule).run()
    points = points_of(outcomes.returns)
    assert set(points.sum(axis=1).round().tolist()) <= {26, 78}
    own = points[np.arange(games), np.arange(games) % 4]
    lead = own - (points.sum(axis=1) - own) / 3
    own, lead = own.reshape(-1, 4).mean(axis=1), lead.reshape(-1, 4).mean(axis=1)
    error = 1.96 / sqrt(deals)
    return own.mean(), error * own.std(ddof=1), lead.mean(), error * lead.std(ddof=1)


def test_each_level_beats_the_one_below() -> None:
    for hero, others in (("normal", "random"), ("normal", "easy")):
        _, _, lead, error = level(hero, others, 150)
        assert lead + error < -4
    _, _, lead, error = level("hard", "normal", 60)
    assert lead - error < 0  # too few hands to prove it; test_the_levels_by_4_000_hands does


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("hero", "others", "least"),
    [("normal", "random", 5.0), ("normal", "easy", 4.0), ("hard", "normal", 0.5), ("random", "random", -1.0)],
)
def test_the_levels_by_4_000_hands(hero: str, others: str, least: float) -> None:
    own, own_error, lead, error = level(hero, others, 1000)
    print(f"{hero} v. three {others}: {own:.2f} ± {own_error:.2f} points, {lead:+.2f} ± {error:.2f} to the others")  # noqa: T201
    assert lead + error < -least
