"""Random openings of evaluations: where there are any, and what they leave to the players."""

from random import Random

import numpy as np
import pytest

from flyball import Game
from flyball.app.config import EvaluationSettings, GameConfig
from flyball.app.config.games import GAMES
from flyball.app.core import ConfigKey
from flyball.app.language.rollout import TextPlayer, TextSchedule, play_texts
from flyball.app.language.text_games import open_text_table
from flyball.app.play.match_statistics import match_statistics
from flyball.app.play.matches import MatchPlan, play_match, play_rotations
from flyball.app.play.players import RandomPlayer

KUHN = GameConfig(key=ConfigKey("kuhn_2p"), game="kuhn_poker", players=2)
DEALT = ("kuhn_poker", "leduc_poker", "backgammon", "phantom_ttt", "pettingzoo:connect_four_v3", "pig:Pig")
KNOWN = ("tic_tac_toe", "nim:Nim", "nim_table:nim", "y(board_size=5)")


def named(game: str) -> GameConfig:
    return GameConfig(key=ConfigKey("some_2p"), game=game, players=2)


@pytest.mark.parametrize("game", [*DEALT, *KNOWN])
def test_openings_by_default_are_none_where_games_are_dealt(game: str) -> None:
    outcomes, _ = play_rotations(
        named(game), RandomPlayer(), RandomPlayer(), MatchPlan(20, 1, 1.0, named(game).evaluation.opening_plies)
    )
    assert set(outcomes.openings.tolist()) == {0 if game in DEALT else 4}


def test_openings_leave_decisions_in_any_game() -> None:
    outcomes, _ = play_rotations(KUHN, RandomPlayer(), RandomPlayer(), MatchPlan(400, 1, 1.0, opening_plies=4))
    assert set(outcomes.lengths.tolist()) == {2, 3}
    assert (outcomes.openings < outcomes.lengths).all()
    rotations = outcomes.openings.reshape(-1, 2)
    assert (rotations[:, 0] == rotations[:, 1]).all()
    config = GAMES[ConfigKey("tic_tac_toe_text_2p")]
    schedule = TextSchedule(range(20), range(20), [9] * 20, np.zeros((20, 2), dtype=np.int8), seed=1)
    outcomes, _ = play_texts(open_text_table(config, 8), [TextPlayer(bot="random")], schedule, None, most_tokens=8)
    assert (outcomes.openings < outcomes.lengths).all()
    assert outcomes.openings.min() >= 4
    settings = EvaluationSettings(opening_plies=2)
    assert [settings.openings(dealt=dealt) for dealt in (True, False)] == [2, 2]


class Coin(Game):
    """Half of the games end when they are dealt."""

    version, players, actions, observation_size = 1, 2, 2, 1

    def reset(self, rng: Random) -> None:
        self.moves = rng.randrange(2)

    def seat(self):
        return 0 if self.moves else None

    def legal(self):
        return [0, 1]

    def play(self, action):
        self.moves -= 1

    def observe(self, seat):
        return [1.0]

    def returns(self):
        return (1.0, -1.0)


def test_match_counts_games_that_nobody_decided() -> None:
    games = play_match(named(f"{__name__}:Coin"), RandomPlayer(), RandomPlayer(), MatchPlan(200, 1, 1.0))
    counted = match_statistics(games, 2)
    assert counted.undecided == games.lengths.count(0)
    assert 60 < counted.undecided < 140
