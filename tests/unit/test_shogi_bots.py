"""Heuristic, searching and sampling players of Shogi and minishogi."""

import numpy as np
import pytest
from shogi_games import random_histories

from flyball.app.config import GAMES, GameConfig
from flyball.app.core import HEURISTIC, RANDOM
from flyball.app.games import open_table
from flyball.app.games.mcts import OpenSpielSearch, tree_search
from flyball.app.games.shogi.playouts import best_move
from flyball.app.games.shogi.replay import Replay
from flyball.app.games.shogi.sfen import write_move
from flyball.app.games.shogi.table import ShogiTable, parse_rules
from flyball.app.games.shogi.variant import MINISHOGI, SHOGI, Variant
from flyball.app.play.match_statistics import match_statistics
from flyball.app.play.matches import MatchPlan, play_match
from flyball.app.play.players import HeuristicPlayer, Player, RandomPlayer

SLOT = np.array([0])
LEVELS = [HEURISTIC, "mate", "search"]


def weights(level: str, sfen: str, game: str = "shogi") -> dict[str, float]:
    """Return the log-weights of the legal moves in a position."""
    rules = parse_rules(game)
    table = ShogiTable(rules, 1, 500, sfen)
    table.reset(SLOT, [0])
    obs, mask = table.observe(SLOT)
    found = table.spec.levels[level](obs, mask)[0]
    action, seat = rules.numbering.action, int(table.seats()[0])
    legal = np.flatnonzero(mask[0]).tolist()
    return {write_move(int(action[number]), seat, rules.variant): float(found[number]) for number in legal}


def best(level: str, sfen: str, game: str = "shogi") -> str:
    moves = weights(level, sfen, game)
    return max(moves, key=lambda text: moves[text])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("sfen", "text"),
    [
        ("4k4/9/9/9/4r4/9/9/4L4/4K4 b - 1", "5h5e"),
        ("4k4/4l4/9/9/4R4/9/9/9/4K4 w - 1", "5b5e"),
        ("4k4/9/9/3s5/3P5/9/9/9/4K4 b - 1", "6e6d"),
    ],
)
def test_every_level_takes_what_is_free(level: str, sfen: str, text: str) -> None:
    assert best(level, sfen) == text


@pytest.mark.parametrize("level", LEVELS)
def test_no_level_gives_a_rook_for_a_defended_pawn(level: str) -> None:
    moves = weights(level, "4k4/9/3s5/4p4/9/9/9/4R4/4K4 b - 1")
    assert moves["5h5d"] < max(moves.values())


@pytest.mark.parametrize("level", ["mate", "search"])
@pytest.mark.parametrize(
    "sfen", ["7lk/9/8G/9/9/9/9/9/4K4 b L 1", "k8/9/1G7/9/9/9/9/9/4K4 b G 1", "4k4/9/9/9/9/9/1g7/9/K8 w g 1"]
)
def test_mate_in_one_is_given(level: str, sfen: str) -> None:
    game = Replay(SHOGI, sfen)
    mover = game.seat
    game.play(game.moves[best(level, sfen)])
    assert game.over
    assert game.winner == mover


def test_search_finds_a_mate_in_three() -> None:
    """Every defence to the first move allows a mate. The heuristic alone does not see it."""
    sfen = "8k/9/6G2/9/9/9/9/9/4K4 b 2G 1"
    game = Replay(SHOGI, sfen)
    game.play(game.moves[best("search", sfen)])
    for reply in game.moves.values():
        after = Replay(SHOGI, sfen)
        for action in (*game.history, reply):
            after.play(action)
        mates = []
        for action in after.legal.tolist():
            last = Replay(SHOGI, sfen)
            for played in (*after.history, action):
                last.play(played)
            mates.append(last.over)
        assert any(mates)


def score(config: GameConfig, hero: str, opponent: str, games: int) -> float:
    levels = open_table(config, 0).spec.levels
    players: dict[str, Player] = {RANDOM: RandomPlayer(), **{name: HeuristicPlayer(levels[name]) for name in levels}}
    played = play_match(config, players[hero], players[opponent], MatchPlan(games, 1, 1.0, 2))
    return match_statistics(played, 2).score.mean


@pytest.mark.parametrize(("hero", "opponent"), [(HEURISTIC, RANDOM), ("mate", HEURISTIC), ("search", "mate")])
def test_each_level_is_stronger_than_the_one_before(hero: str, opponent: str) -> None:
    assert list(open_table(GAMES["minishogi_2p"], 0).spec.levels) == LEVELS
    assert score(GAMES["minishogi_2p"], hero, opponent, 200) > 0.52


def test_levels_play_in_either_numbering() -> None:
    config = GAMES["minishogi_2p"].replace(game="minishogi(repetition_planes=true,direction_actions=true)")
    assert score(config, "search", HEURISTIC, 20) > 0.9
    assert MINISHOGI.name in config.game


LIMIT = 500


def found(sfen: str, playouts: int, seed: int = 0, variant: Variant = SHOGI) -> str:
    game = Replay(variant, sfen, LIMIT)
    texts = {action: text for text, action in game.moves.items()}
    return texts[best_move(game, playouts, exploration=2.0, seed=seed)]


@pytest.mark.parametrize(
    ("sfen", "mates"), [("4k4/9/4P4/9/9/9/9/9/4K4 b G 1", {"G*5b"}), ("4k4/9/9/9/9/9/4p4/9/4K4 w g 1", {"G*5h"})]
)
def test_a_mate_is_found_for_either_seat(sfen: str, mates: set[str]) -> None:
    for seed in range(5):
        assert found(sfen, 300, seed) in mates


def test_search_proves_wins_and_avoids_mates() -> None:
    assert found("4k4/9/4P4/9/9/9/9/9/4K4 b G 1", 100_000_000) == "G*5b"
    game = Replay(SHOGI, "4k4/9/9/9/9/9/4p4/9/4K3R b g 1", LIMIT)
    action = best_move(game, 3000, exploration=2.0, seed=1)
    game.play(action)
    assert "G*5h" not in game.moves or not mates(game, "G*5h")


def mates(game: Replay, move: str) -> bool:
    game.play(game.moves[move])
    return game.over


def test_the_same_seed_gives_the_same_move() -> None:
    moves = [found(SHOGI.sfen, 50, seed) for seed in (1, 1, 2, 3, 4)]
    assert moves[0] == moves[1]
    assert len(set(moves)) > 1


@pytest.mark.parametrize("text", ["shogi", "minishogi", "shogi(direction_actions=true)"])
def test_moves_after_a_history_are_legal_for_the_seat(text: str) -> None:
    config = GAMES["shogi_2p"].replace(game=text)
    rules, search = parse_rules(text), tree_search(config, 5)
    for seed, history in enumerate(random_histories(text, 6, seed=1)):
        game = Replay(rules.variant)
        for number in history[: len(history) // 2]:
            game.play(int(rules.numbering.action[number]))
        action = rules.numbering.action[search.move(history[: len(history) // 2], seed)]
        assert action in game.legal


def test_openspiel_searches_where_its_own_rules_are_played() -> None:
    config = GAMES["shogi_2p"].replace(engine="openspiel")
    assert isinstance(tree_search(config, 5), OpenSpielSearch)
