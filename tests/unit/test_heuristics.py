"""Built-in heuristic players: what they see, and clear wins over random."""

import numpy as np
import pytest
from board_games import SLOT, after
from hearts_games import QUEEN
from hearts_games import cards_of as cards

from flyball.app.config import GAMES
from flyball.app.core import HEURISTIC, RANDOM
from flyball.app.games import open_table
from flyball.app.play.match_statistics import match_statistics
from flyball.app.play.matches import MatchPlan, play_match
from flyball.app.play.players import HeuristicPlayer, NoHeuristic, RandomPlayer, load_player
from flyball.app.store import MemoryStore

WITH_HEURISTIC = (
    "connect_four_2p", "breakthrough6_2p", "chinese_checkers_3p", "hearts_4p", "minishogi_2p", "shogi_2p",
)  # fmt: skip


def heuristic(key):
    return load_player(MemoryStore(), HEURISTIC, open_table(GAMES[key], 0).spec)


def seen_after(key, *actions):
    return after(open_table(GAMES[key], 1), *actions).observe(SLOT)


def chances(key, *actions):
    return given(key, *seen_after(key, *actions))


def given(key, obs, mask):
    """Return the probability of every action at an observation."""
    return np.exp(heuristic(key).forward(obs, mask)[0][0])


@pytest.mark.parametrize(
    ("key", "least"),
    [("connect_four_2p", 0.93), ("breakthrough6_2p", 0.93), ("chinese_checkers_3p", 0.6), ("hearts_4p", 0.7)],
)
def test_it_beats_the_random_bot_clearly(key, least) -> None:
    plan = MatchPlan(games=400, seed=7, temperature=1.0, opening_plies=GAMES[key].evaluation.opening_plies)
    match = match_statistics(play_match(GAMES[key], heuristic(key), RandomPlayer(), plan), GAMES[key].players)
    assert match.score.lower > least
    assert match.distinct_games > 390  # it does not play the same game over and over


@pytest.mark.parametrize("key", WITH_HEURISTIC)
def test_a_yardstick_plays_the_same_at_any_temperature(key) -> None:
    obs, mask = seen_after(key)
    cold, _ = heuristic(key).forward(obs, mask, 0.1)
    hot, values = heuristic(key).forward(obs, mask, 10.0)
    assert np.array_equal(cold, hot)
    assert not values.any()
    assert np.exp(hot[mask]).sum() == pytest.approx(1, abs=1e-5)
    assert (np.exp(hot[~mask]) == 0).all()


BY_NETWORKS = {key for key, config in GAMES.items() if config.backend != "language"}


@pytest.mark.parametrize("key", sorted(BY_NETWORKS - set(WITH_HEURISTIC)))
def test_a_game_without_one_says_so(key) -> None:
    with pytest.raises(NoHeuristic, match=r"no heuristic player of (openspiel|flyball)-.*Leave 'heuristic' out"):
        heuristic(key)
    assert isinstance(load_player(MemoryStore(), RANDOM, open_table(GAMES[key], 0).spec), RandomPlayer)


@pytest.mark.parametrize(
    ("moves", "column"),
    [
        ((0, 6, 0, 6, 0, 6), 0),  # wins upwards rather than stop the other
        ((0, 6, 0, 6, 0), 0),  # stops the other from doing so
        ((0, 6, 1, 6, 2), 3),  # stops a row
        ((1, 0, 2, 0, 4, 0), 3),  # fills the gap of a row and wins
    ],
)
def test_connect_four_wins_and_stops(moves, column) -> None:
    assert chances("connect_four_2p", *moves)[column] > 0.999


def test_connect_four_opens_centrally_and_gives_nothing_away() -> None:
    first = chances("connect_four_2p")
    assert first.argmax() == 3
    assert first[:3].tolist() == sorted(first[:3].tolist())
    obs = np.zeros((1, 3, 6, 7), dtype=np.uint8)
    obs[0, 2] = 1
    for row, line in enumerate((".xox..x", ".ooo..x")):  # from the lowest up
        for column, stone in enumerate(line):
            obs[0, ".xo".index(stone) - 1 if stone != "." else 2, row, column] = 1
            obs[0, 2, row, column] = stone == "."
    columns = given("connect_four_2p", obs.reshape(1, -1), np.ones((1, 7), dtype=bool))
    assert columns[[0, 4]].max() < 1e-3  # the other would complete its row above
    moves = (3, 2, 2, 4, 5, 1, 0)
    mirrored = chances("connect_four_2p", *(6 - column for column in moves))
    assert chances("connect_four_2p", *moves) == pytest.approx(mirrored[::-1], rel=1e-4)


def breakthrough_position(mine, theirs, size=6):
    """Return an observation and a mask of all moves. ``mine`` and ``theirs`` are pieces at (row, column)."""
    obs = np.zeros((1, 3, size, size), dtype=np.uint8)
    obs[0, 2] = 1
    for plane, pieces in ((0, mine), (1, theirs)):
        for row, column in pieces:
            obs[0, plane, row, column], obs[0, 2, row, column] = 1, 0
    mask = np.zeros((1, size, size, 3, 2), dtype=bool)
    for row, column in mine:
        for way in range(3):
            to = (row + 1, column + way - 1)
            if 0 <= to[1] < size and to not in mine and not (way == 1 and to in theirs):
                mask[0, row, column, way, int(to in theirs)] = True
    return obs.reshape(1, -1), mask.reshape(1, -1)


@pytest.mark.parametrize(
    ("mine", "theirs", "wanted"),
    [
        ([(4, 2), (1, 0)], [(1, 1), (5, 5)], [(4, 2)]),  # reaches the last row rather than stop one about to do so
        ([(0, 2), (3, 3)], [(1, 1), (4, 4)], [(0, 2, 0, 1)]),  # stops it rather than take another
        ([(2, 2), (2, 4)], [(3, 3), (5, 0)], [(2, 2, 2, 1), (2, 4, 0, 1)]),  # takes what stands alone
        ([(3, 0), (1, 4)], [(5, 5)], [(3, 0)]),  # runs when nobody can meet it
        ([(2, 2), (1, 5)], [(4, 1), (4, 2), (4, 3), (5, 5)], [(1, 5)]),  # goes nowhere where it is just taken
    ],
)
def test_breakthrough_reaches_stops_takes_runs_and_takes_care(mine, theirs, wanted) -> None:
    """Moves are (row, column, way, capture)."""
    chance = given("breakthrough6_2p", *breakthrough_position(mine, theirs)).reshape(6, 6, 3, 2)
    assert sum(chance[move].sum() for move in wanted) > 0.9


def test_chinese_checkers_finishes_where_random_players_do_not() -> None:
    config = GAMES["chinese_checkers_3p"]
    plan = MatchPlan(games=30, seed=7, temperature=1.0, opening_plies=config.evaluation.opening_plies)
    races = match_statistics(play_match(config, heuristic(config.key), heuristic(config.key), plan), config.players)
    aimless = match_statistics(play_match(config, RandomPlayer(), RandomPlayer(), plan), config.players)
    assert (races.truncated, aimless.truncated) == (0, 30)
    assert races.distinct_games == 30
    steps = chances(config.key).reshape(-1)[:726].reshape(121, 6)
    assert steps[:, 4:].sum() > 0.9 > steps[:, :2].sum(), "it moves ahead rather than behind"
    assert steps[:6, 4:].sum() > 0.9, "it jumps from behind the first row; all others are single steps"


def hearts_position(hand, trick=(), seen=(), *, passing=False):
    """Return an observation and mask of a seat; ``trick`` is in the order of play, and ``seen`` was played before."""
    obs = np.zeros((1, 270), dtype=np.float32)
    obs[0, list(hand)] = 1
    obs[0, [52 + card for card in (*seen, *trick)]] = 1
    for place, card in enumerate(trick):
        obs[0, 108 + 17 * place + card // 13] = obs[0, 108 + 17 * place + 4 + card % 13] = 1
    if trick:
        obs[0, 104 + trick[0] // 13] = 1
    obs[0, 176:178] = len(trick) / 4
    obs[0, 185] = obs[0, 186] = passing  # to the left
    following = [card for card in hand if trick and card // 13 == trick[0] // 13]
    mask = np.zeros((1, 52), dtype=bool)
    mask[0, following or list(hand)] = True
    return obs, mask


@pytest.mark.parametrize(
    ("hand", "trick", "choice"),
    [
        ("QS 2S 5S", "KS", "QS"),  # under a higher spade, get rid of the queen
        ("QS 2S 5S", "3S", "2S 5S"),  # and keep it otherwise
        ("TC 4C 9D", "JC", "TC"),  # ducks with the highest that loses
        ("KC 4C 9D", "QC 3C QS", "4C"),  # takes no points when it need not
        ("KC AC 9D", "QC 3C 5C", "AC"),  # has to take: with the highest, as nobody plays after it
        ("QS AH 9D", "2C", "QS"),  # void: the queen first
        ("AH 2H KD", "2C", "AH"),  # then hearts, the highest first
        ("AS 2D KD", "2C", "AS"),  # a spade that the queen could fall under
        ("AS 2C 3D", "", "2C 3D"),  # leads low
        ("5S AC", "", "5S"),  # looks for the queen
    ],
)
def test_hearts_ducks_discards_and_leads_low(hand, trick, choice) -> None:
    chance = given("hearts_4p", *hearts_position(cards(hand), cards(trick)))
    assert chance.argmax() in cards(choice)
    assert chance[cards(choice)].sum() > 0.5


def test_hearts_passes_the_queen_and_fears_it_until_it_is_gone() -> None:
    hand = cards("QS KS 2S 3S 2C 5C 7C 9C 2D 4D 6D 8D AH")
    chance = given("hearts_4p", *hearts_position(hand, passing=True))
    assert chance.argmax() == QUEEN
    assert chance[cards("2S 3S 2C")].max() < 1e-3
    hand, trick = cards("AS 3S"), cards("5S")
    out, gone = (given("hearts_4p", *hearts_position(hand, trick, seen=seen)) for seen in ([], [QUEEN]))
    assert gone[cards("AS")].sum() > 5 * out[cards("AS")].sum()
    assert isinstance(heuristic("hearts_4p"), HeuristicPlayer)
