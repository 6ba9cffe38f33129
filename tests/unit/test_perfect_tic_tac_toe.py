"""The perfect player of tic-tac-toe that models are measured by."""

import numpy as np
from perfect_tic_tac_toe import PerfectPlayer, best_moves, worth

from app.config import GAMES
from app.play.match_statistics import match_statistics
from app.play.matches import MatchPlan, play_match
from app.play.players import RandomPlayer

CONFIG = GAMES["tic_tac_toe_2p"]


def match_of(hero, opponent):
    return match_statistics(play_match(CONFIG, hero, opponent, MatchPlan(400, 1, 1.0)), 2)


def test_perfect_player_knows_published_values() -> None:
    none = frozenset()
    assert worth(none, none) == 0
    assert best_moves(none, none) == list(range(9)), "every first move draws"
    assert best_moves(none, frozenset({0})) == [4], "a corner is answered by the centre alone"
    assert worth(frozenset({0, 1}), frozenset({4, 8})) == 1


def test_perfect_player_never_loses_and_punishes_errors() -> None:
    match = match_of(PerfectPlayer(), RandomPlayer())
    assert match.losses == 0
    assert match.wins > 320
    assert match_of(PerfectPlayer(), PerfectPlayer()).draws == 400


def test_perfect_player_takes_only_legal_moves() -> None:
    obs = np.zeros((1, 27), dtype=np.uint8)
    obs[0, [0, 4]] = obs[0, [9 + 8, 9 + 2]] = 1
    mask = np.ones((1, 9), dtype=bool)
    mask[0, [0, 4, 8, 2]] = False
    log_probs, values = PerfectPlayer().forward(obs, mask)
    assert np.flatnonzero(log_probs[0] > -1).tolist() == [5]
    assert values[0] == 0
