"""Rules of Shogi and minishogi: perft, rulings and simple reference rules."""

import random

import numpy as np
import pytest
from plain_shogi import PlainShogi

from flyball.app.games.shogi.replay import Replay
from flyball.app.games.shogi.rules import WORKSPACE, legal_moves, move
from flyball.app.games.shogi.sfen import parse_sfen, write_sfen
from flyball.app.games.shogi.variant import MINISHOGI, SHOGI, VARIANTS, Variant
from flyball.app.games.table import FINISHED

MOST = "R8/2K1S1SSk/4B4/9/9/9/9/9/1L1L1L3 b RBGSNLP3g3n17p 1"
"""The known position with the most legal moves."""
CROWDED = "l6nl/5+P1gk/2np1S3/p1p4Pp/3P2Sp1/1PPb2P1P/P5GS1/R8/LN4bKL w RGgsn5p 1"
"""A middle game with drops, checks and pins, often used to compare generators."""

PERFT = [
    *((SHOGI, SHOGI.sfen, depth, nodes) for depth, nodes in enumerate((30, 900, 25_470, 719_731), 1)),
    *((MINISHOGI, MINISHOGI.sfen, depth, nodes) for depth, nodes in enumerate((14, 181, 2_512, 35_401), 1)),
    (SHOGI, MOST, 1, 593),
    (SHOGI, MOST, 2, 105_677),
    (SHOGI, CROWDED, 1, 207),
    (SHOGI, CROWDED, 2, 28_684),
    pytest.param(SHOGI, SHOGI.sfen, 5, 19_861_490, marks=pytest.mark.slow),
    pytest.param(MINISHOGI, MINISHOGI.sfen, 6, 8_276_188, marks=pytest.mark.slow),
    pytest.param(SHOGI, CROWDED, 3, 4_809_015, marks=pytest.mark.slow),
]
"""Counts of the first positions, confirmed by Fairy-Stockfish 11.1."""


def perft(variant: Variant, position: np.void, depth: int, work: np.void) -> int:
    out = np.zeros(600, dtype=np.int32)
    count = legal_moves(variant.tables, position, work, out)
    if depth == 1:
        return count
    total = 0
    for action in out[:count].tolist():
        child = position.copy()
        move(variant.tables, child, action)
        total += perft(variant, child, depth - 1, work)
    return total


def count(variant: Variant, sfen: str, depth: int) -> int:
    return perft(variant, parse_sfen(sfen, variant), depth, np.zeros(1, dtype=WORKSPACE)[0])


@pytest.mark.parametrize(("variant", "sfen", "depth", "nodes"), PERFT)
def test_perft(variant: Variant, sfen: str, depth: int, nodes: int) -> None:
    assert count(variant, sfen, depth) == nodes


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=list(VARIANTS))
def test_positions_of_random_games_agree_with_plain_rules(variant: Variant) -> None:
    """The compared texts include hands, promotions and the side to move."""
    rng, compared = random.Random(1), 0
    while compared < 60:
        game = Replay(variant, limit=300)
        while not game.over:
            if rng.random() < 0.03:
                plain = PlainShogi(write_sfen(game.position, variant))
                assert game.moves.keys() == plain.legal().keys()
                assert bool(game.position["checked"]) == plain.checked[0]
                compared += 1
            game.play(rng.choice(game.legal.tolist()))


def test_random_games_of_minishogi_end_as_by_plain_rules() -> None:
    for seed in range(6):
        rng, ours, plain = random.Random(seed), Replay(MINISHOGI, limit=150), PlainShogi(MINISHOGI.sfen)
        while not ours.over:
            assert plain.outcome() is None
            text = rng.choice(sorted(ours.moves))
            ours.play(ours.moves[text])
            plain.play(text)
            assert PlainShogi(write_sfen(ours.position, MINISHOGI)).key() == plain.key()
        expected = plain.outcome()
        assert ours.position["truncated"] == (expected is None)
        assert ours.returns[ours.seat] == (expected or 0)


def after(sfen: str, *moves: str, variant: Variant = SHOGI) -> Replay:
    game = Replay(variant, sfen)
    for text in moves:
        game.play(game.moves[text])
    return game


@pytest.mark.parametrize("sfen", ["8k/9/6NG1/9/9/9/9/9/4K4 w - 1", "4k4/9/9/9/9/9/9/2+r6/K8 b - 1"])
def test_seat_without_a_move_has_lost(sfen: str) -> None:
    game = after(sfen)
    assert not game.position["checked"]
    assert game.over
    assert game.winner == 1 - game.seat


def test_drops_and_steps_that_give_mate_are_allowed() -> None:
    moves = after("4k4/9/9/9/9/9/P1+P6/9/4K4 b P 1").moves
    drops = {text[2] for text in moves if text.startswith("P*")}
    assert drops == set("12345678")  # file 7 has only a promoted pawn
    assert after("7lk/9/8G/9/9/9/9/9/4K4 b L 1", "L*1b").winner == 0
    assert after("7lk/9/7GP/9/9/9/9/9/4K4 b - 1", "1c1b").winner == 0


@pytest.mark.parametrize(
    ("sfen", "drop", "allowed"),
    [
        ("7lk/9/8G/9/9/9/9/9/4K4 b P 1", "P*1b", False),
        ("8k/9/8G/9/9/9/9/9/4K4 b P 1", "P*1b", True),  # the king escapes
        ("7sk/9/8G/9/9/9/9/9/4K4 b P 1", "P*1b", True),  # the silver takes the pawn
        ("R6sk/9/8G/9/9/9/9/9/4K4 b P 1", "P*1b", False),  # it would, but is pinned
        ("4k4/9/9/9/9/9/8g/9/7LK w p 1", "P*1h", False),
    ],
)
def test_pawn_may_not_be_dropped_for_mate(sfen: str, drop: str, allowed: bool) -> None:
    assert (drop in after(sfen).moves) == allowed


THERE_AND_BACK = ("2h3h", "8b7b", "3h2h", "7b8b")


def test_repetition_counts_positions_with_their_hands() -> None:
    assert not after(SHOGI.sfen, *THERE_AND_BACK * 2).over
    game = after(SHOGI.sfen, *THERE_AND_BACK * 3)
    assert (game.over, game.winner, bool(game.position["truncated"])) == (True, FINISHED, False)
    sfen = "4k4/9/9/9/9/9/9/9/4K4 b 2P 1"
    game = after(sfen, "P*5b", "5a5b", "5i5h", "5b4a", "5h5i", "4a5a")
    assert write_sfen(game.position, SHOGI) == sfen.replace("2P", "Pp")
    assert game.position["occurrences"] == 1
    sfen, checks = "4k4/9/9/9/5R3/9/9/9/K8 b - 1", ("4e5e", "5a4a", "5e4e", "4a5a")
    quiet = ("4e3e", "5a4a", "3e4e", "4a5a")
    game = after(sfen, *checks, *quiet, *checks)
    assert (game.over, game.winner) == (True, FINISHED)


@pytest.mark.parametrize(
    ("sfen", "checks", "winner"),
    [
        ("4k4/9/9/9/5R3/9/9/9/K8 b - 1", ("4e5e", "5a4a", "5e4e", "4a5a"), 1),
        ("k8/9/9/9/5r3/9/9/9/4K4 w - 1", ("4e5e", "5i4i", "5e4e", "4i5i"), 0),
    ],
)
def test_perpetual_check_loses(sfen: str, checks: tuple[str, ...], winner: int) -> None:
    assert not after(sfen, *checks * 2).over
    assert after(sfen, *checks * 3).winner == winner


@pytest.mark.parametrize(
    ("sfen", "declares"),
    [
        ("K+P+P+P+P+P+P+P+P/+P+P7/9/9/9/9/9/9/4k4 b 2RB3L 1", True),
        ("K+P+P+P+P+P+P+P+P/+P+P7/9/9/9/9/9/9/4k4 b 2RB2L 1", False),  # 27 points
        ("4K4/9/9/9/9/9/9/7+p+p/+p+p+p+p+p+p+p+pk w 2rb2l 1", True),
        ("4K4/9/9/9/9/9/9/7+p+p/+p+p+p+p+p+p+p+pk w 2rbl 1", False),  # 26 points
        ("K+P+P+P+P+P+P+P+P/+P8/9/9/9/9/9/9/4k4 b 2R2B 1", False),  # 9 pieces
        ("K+P+P+P+P+P+P+P+P/+P8/9/+P8/9/9/9/9/4k4 b 2R2B 1", False),  # the tenth is outside the camp
        ("1+P+P+P+P+P+P+P+P/+P+P7/9/K8/9/9/9/9/4k4 b 2RB3L 1", False),  # and so is the king
        ("K+P+P+P+P+P+P+P+P/+P1+P6/2b6/9/9/9/9/9/4k4 b 2RB3L 1", False),  # in check
    ],
)
def test_declaration_ends_the_game(sfen: str, declares: bool) -> None:
    game = after(sfen)
    assert PlainShogi(sfen).declares() == declares
    assert (game.over, game.winner) == ((True, game.seat) if declares else (False, FINISHED))


def test_nobody_declares_in_minishogi() -> None:
    assert not after("K+P+SGG/4+P/5/5/4k b 2R2B 1", variant=MINISHOGI).over
