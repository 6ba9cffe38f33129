"""SFEN, USI and KIF: written, read again, and refused."""
# ruff: noqa: RUF001 - records have full-width colons

import doctest

import pyspiel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shogi_games import random_histories

from flyball.app.config import GAMES
from flyball.app.games import open_table, shogi
from flyball.app.games.notation import notation_of
from flyball.app.games.shogi.kif import parse_kif, write_kif
from flyball.app.games.shogi.parity import openspiel_actions
from flyball.app.games.shogi.replay import Replay
from flyball.app.games.shogi.sfen import BadNotation, parse_move, parse_sfen, write_move, write_sfen
from flyball.app.games.shogi.variant import MINISHOGI, SHOGI, VARIANTS, Variant

GAME = """# made by hand
開始日時：1999/07/15(木) 19:07:12
手合割：平手
先手：甲
後手：乙
手数----指手---------消費時間--
*comment
   1 ７六歩(77)   ( 0:16/00:00:16)
   2 ３四歩(33)   ( 0:00/00:00:00)+
   3 ２二角成(88) ( 0:03/00:00:19)
&mark
   4 同　銀(31)
   5 ５五角打
   6 投了
まで5手で先手の勝ち
変化：4手
   4 何か
"""
MOVES = "7g7f 3c3d 8h2b+ 3a2b B*5e"
PARSED = pytest.mark.parametrize("variant", VARIANTS.values(), ids=list(VARIANTS))
START = SHOGI.sfen.partition(" ")[0]


def game_of(history: list[int], variant: Variant = SHOGI) -> Replay:
    game = Replay(variant)
    for action in history:
        game.play(action)
    return game


@PARSED
def test_sfen_and_usi_of_random_games_are_read_again(variant: Variant) -> None:
    for history in random_histories(variant.name, 3, seed=5):
        game = Replay(variant)
        for number, action in enumerate(history):
            sfen = write_sfen(game.position, variant, number + 1)
            assert write_sfen(parse_sfen(sfen, variant), variant, number + 1) == sfen
            assert parse_move(write_move(action, game.seat, variant), game.seat, variant) == action
            game.play(action)


def test_openspiel_reads_the_same_texts() -> None:
    (history,) = random_histories("shogi", 1, seed=8)
    game, state = Replay(SHOGI), pyspiel.load_game("shogi").new_initial_state()
    for action in history[:200]:
        theirs = int(openspiel_actions()[game.seat, action])
        assert state.action_to_string(theirs) == write_move(action, game.seat, SHOGI)
        assert pyspiel.load_game("shogi").new_initial_state(write_sfen(game.position, SHOGI)).legal_actions()
        state.apply_action(theirs)
        game.play(action)


@pytest.mark.parametrize(
    ("sfen", "complaint"),
    [
        ("", "it does not have squares"),
        (f"{START} x - 1", "it does not have squares"),
        (f"{START} b - 0", "'0' is no number of a move"),
        (f"{START} b - x", "'x' is no number of a move"),
        (f"{START}/9 b - 1", "it has 10 rows, not 9"),
        (START.replace("1r5b1", "1r5b") + " b - 1", "has 8 squares, not 9"),
        (START.replace("ppppppppp", "pppppppp+") + " b - 1", "'+' is no piece"),
        (START.replace("k", "x") + " b - 1", "'x' is no piece"),
        (START.replace("k", "+k") + " b - 1", "'+k' is no piece"),
        (START.replace("k", "1") + " b - 1", "White has 0 kings"),
        (f"{START} b 2P 1", "20 pieces P, not at most 18"),
        (f"{START} b PP 1", "a hand has 'P' twice"),
        (f"{START} b P-x 1", "unreadable from '-x'"),
        (f"{START} b K 1", "unreadable from 'K'"),
        ("4k4/4P4/4P4/9/9/9/9/9/4K4 b - 1", "Black has two pawns in a file"),
        ("4k3P/9/9/9/9/9/9/9/4K4 b - 1", "Black has a piece P that could never move"),
        ("4k4/9/9/9/9/9/9/n8/4K4 b - 1", "White has a piece N that could never move"),
        ("4k4/9/9/9/4R4/9/9/9/4K4 b - 1", "could capture the king"),
    ],
)
def test_bad_sfen_says_why(sfen: str, complaint: str) -> None:
    with pytest.raises(BadNotation) as refused:
        parse_sfen(sfen, SHOGI)
    assert complaint in refused.value.message


@pytest.mark.parametrize("text", ["", "7g", "7g7g", "7g7f++", "0a1a", "P7f", "K*5e", "P*5j", "7g7f=", "resign", "5f6f"])
def test_bad_move_is_refused(text: str) -> None:
    with pytest.raises(BadNotation, match="no move of minishogi"):
        parse_move(text, 0, MINISHOGI)


@given(st.text(alphabet="lnsgkrbpLNSGKRBP+0123456789/ bw-", max_size=90) | st.text(max_size=30))
def test_any_text_is_a_position_or_refused(text: str) -> None:
    for variant in VARIANTS.values():
        try:
            position = parse_sfen(text, variant)
        except BadNotation:
            continue
        assert write_sfen(position, variant).split()[:3] == write_sfen(parse_sfen(text, variant), variant).split()[:3]


@given(st.integers(0, len(SHOGI.sfen) - 1), st.text(alphabet="lnsgkrbpLNSGKRBP+0123456789/ bw-", max_size=2))
def test_changed_position_is_read_or_refused(place: int, letters: str) -> None:
    text = SHOGI.sfen[:place] + letters + SHOGI.sfen[place + 1 :]
    try:
        game = Replay(SHOGI, text)
    except BadNotation:
        return
    assert game.legal.size or game.over


@given(st.text(alphabet="123456789abcdefghiPLNSGBR*+", max_size=6))
def test_any_text_is_a_move_or_refused(text: str) -> None:
    for seat in range(2):
        try:
            action = parse_move(text, seat, SHOGI)
        except BadNotation:
            continue
        assert write_move(action, seat, SHOGI) == text


def test_kif_is_read_without_comments_and_variations() -> None:
    record = parse_kif(GAME)
    game = Replay(SHOGI)
    for text, action in zip(MOVES.split(), record.actions, strict=True):
        assert game.moves[text] == action
        game.play(action)
    assert (record.names, record.ending) == (("甲", "乙"), "投了")


@PARSED
def test_kif_of_random_games_is_read_again(variant: Variant) -> None:
    endings = set()
    for history in random_histories(variant.name, 8, seed=2):
        text = write_kif(history, ("a", "b"), variant)
        record = parse_kif(text, variant)
        assert (record.actions, record.names) == (history, ("a", "b"))
        endings.add(record.ending)
        assert text.encode("shift_jis")
    assert "詰み" in endings


@pytest.mark.parametrize(("moves", "ending"), [(("2h3h", "8b7b", "3h2h", "7b8b") * 3, "千日手"), (("7g7f",), "中断")])
def test_kif_says_how_a_game_ended(moves: tuple[str, ...], ending: str) -> None:
    game = Replay(SHOGI)
    for text in moves:
        game.play(game.moves[text])
    assert parse_kif(write_kif(game.history)).ending == ending


@pytest.mark.parametrize(
    ("line", "replacement", "complaint"),
    [
        ("手合割：平手", "手合割：角落ち", "Line 3 .* does not begin from the first position"),
        ("   1 ７六歩(77)", "   2 ７六歩(77)", "Line 8 .* move 1 is expected"),
        ("７六歩(77)", "７五歩(77)", "Line 8 .* not legal"),
        ("７六歩(77)", "７六銀(77)", "Line 8 .* no 銀 that could move so"),
        ("７六歩(77)", "同　歩(77)", "Line 8 .* no such square"),
        ("５五角打", "５五金打", "Line 13 .* not legal"),
        ("５五角打", "５五玉打", "Line 13 .* no 玉 that could move so"),
        ("５五角打", "５５角打", "Line 13 .* such as"),
        ("*comment", "something else", "Line 7 .* no move, no heading"),
    ],
)
def test_bad_record_names_the_line(line: str, replacement: str, complaint: str) -> None:
    assert line in GAME
    with pytest.raises(BadNotation, match=complaint):
        parse_kif(GAME.replace(line, replacement))


@given(st.integers(0, len(GAME) - 1), st.text(alphabet="１２一二同歩角成打(77)：: \n1*&|変化", max_size=3))
def test_changed_record_is_read_or_refused(place: int, letters: str) -> None:
    try:
        record = parse_kif(GAME[:place] + letters + GAME[place + 1 :])
    except BadNotation:
        return
    assert game_of(record.actions).history == record.actions


@pytest.mark.parametrize("game", ["shogi", "minishogi", "minishogi(direction_actions=true)"])
def test_engines_are_asked_in_usi(game: str) -> None:
    config = GAMES["shogi_2p"].replace(game=game)
    history = next(iter(random_histories(game, 1, seed=4)))[:60]
    notation, table = notation_of(config, "usi"), open_table(config, 1)
    assert notation.options == {}
    position = notation.position(history)
    assert len(position.moves) == len(history)
    assert all(0 <= action < table.spec.actions for action in position.legal.values())
    assert notation.position([]).moves == ()


def test_documented_example_runs() -> None:
    results = doctest.testmod(shogi)
    assert results.failed == 0
    assert results.attempted > 3
