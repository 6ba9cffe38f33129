"""Monte Carlo tree search by random playouts in Shogi and minishogi."""

import pytest
from shogi_games import random_histories

from app.config import GAMES
from app.games.mcts import OpenSpielSearch, tree_search
from app.games.shogi.playouts import best_move
from app.games.shogi.replay import Replay
from app.games.shogi.table import parse_rules
from app.games.shogi.variant import SHOGI, Variant

LIMIT = 500


def found(sfen: str, playouts: int, seed: int = 0, variant: Variant = SHOGI) -> str:
    """Return the move that a search finds, in USI."""
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
