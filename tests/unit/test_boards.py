"""Drawings of positions with known content."""

from xml.etree import ElementTree as ET

import numpy as np
import pytest

from app.config import GAMES
from app.dashboard.boards import counts, draw, side_names
from app.dashboard.boards.shogi import CHARACTERS
from app.games.board_table import EMPTY
from app.games.positions import BoardPosition, HeartsPosition, NinePosition, ShogiPosition, TextPosition
from app.games.shogi.variant import MINISHOGI, PAWN, ROOK, SHOGI

SVG = "{http://www.w3.org/2000/svg}"


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)


def elements(text: str, class_: str) -> list[ET.Element]:
    return [one for one in parsed(text).iter() if class_ in one.get("class", "").split()]


def description(text: str) -> str:
    return parsed(text).findtext(f"{SVG}desc") or ""


def board(game: str, rows: list[str], *last: tuple[int, int]) -> BoardPosition:
    """Return a position from rows of 0, 1 and dots."""
    values = {"0": 0, "1": 1, ".": EMPTY}
    return BoardPosition(game, np.array([[values[cell] for cell in row] for row in rows], dtype=np.int8), last)


def test_drawing_says_what_it_is_and_shows():
    root = parsed(draw(board("go", ["..", "0."])))
    assert root.get("role") == "img"
    title, text = (root.find(f"{SVG}{name}") for name in ("title", "desc"))
    assert (root.get("aria-labelledby"), root.get("aria-describedby")) == (title.get("id"), text.get("id"))
    assert title.text == "Go, 2 by 2"


def test_tic_tac_toe_draws_crosses_noughts_and_the_last_move():
    drawn = draw(board("tic_tac_toe", ["01.", "...", "..0"], (0, 1)))
    assert len(elements(drawn, "cross")) == 2 * 2
    assert len(elements(drawn, "nought")) == 1
    assert len(elements(drawn, "last-square")) == 1
    assert description(drawn) == "X: row 1 column 1, row 3 column 3. O: row 1 column 2."


def test_ultimate_tic_tac_toe_marks_boards_won_and_to_play_on():
    cells = np.full((9, 9), EMPTY, dtype=np.int8)
    cells[0, :3] = 0
    cells[4, 4] = 1
    owners = (0, *[EMPTY] * 8)
    drawn = draw(NinePosition(cells, owners, 4, ((4, 4),)))
    assert len(elements(drawn, "large")) == 2  # the strokes of a cross
    assert len(elements(drawn, "forced")) == 1
    assert len(elements(drawn, "small-board")) == 9
    assert "X has won board 1." in description(drawn)
    assert description(drawn).endswith("To play on board 5.")
    assert not elements(draw(NinePosition(cells, owners, None, ())), "forced")


def test_connect_four_draws_a_hole_per_cell_and_a_token_per_disc():
    drawn = draw(board("connect_four", ["...", "1..", "01."], (1, 0)))
    assert len(elements(drawn, "hole")) == 9
    assert len(elements(drawn, "token-0")) == 2  # each with an inner ring
    assert len(elements(drawn, "token-1")) == 4
    assert [(one.get("cx"), one.get("cy")) for one in elements(drawn, "last-dot")] == [("40", "130")]
    assert description(drawn) == "Yellow: column 1 row 1. Red: column 1 row 2, column 2 row 1."


def test_othello_numbers_rows_from_the_top():
    drawn = draw(board("othello", ["0.......", *["........"] * 6, ".......1"], (7, 7)))
    assert (len(elements(drawn, "black-rim")), len(elements(drawn, "white-rim"))) == (1, 1)
    assert description(drawn) == "Black: a1. White: h8."


def test_go_numbers_rows_from_below_and_leaves_out_the_i():
    rows = ["........0", *["........."] * 7, "1........"]
    drawn = draw(board("go", rows, (0, 8)))
    assert description(drawn) == "Black: j9. White: a1."
    assert len(elements(drawn, "dot")) == 9
    (ring,) = elements(drawn, "last-ring")
    (stone,) = elements(drawn, "black-rim")
    assert (ring.get("cx"), ring.get("cy")) == (stone.get("cx"), stone.get("cy"))


def test_hex_draws_a_hexagon_for_each_cell():
    drawn = draw(board("hex", ["0..", ".1.", "..."], (1, 1)))
    assert len(elements(drawn, "hexagon")) == 9
    assert all(len(one.get("points", "").split()) == 6 for one in elements(drawn, "hexagon"))
    assert (len(elements(drawn, "hex-0")), len(elements(drawn, "hex-1"))) == (1, 1)
    assert description(drawn) == "Red, top to bottom: a1. Blue, left to right: b2."


def test_breakthrough_marks_both_squares_of_the_last_move():
    drawn = draw(board("breakthrough", ["0.", "0.", ".1", ".1"], (1, 0), (0, 1)))
    assert len(elements(drawn, "last-square")) == 2
    assert description(drawn) == "Black: a4, a3. White: b2, b1."


def test_clobber_gives_white_to_the_first_seat():
    drawn = draw(board("clobber", ["01", "1."]))
    assert (len(elements(drawn, "white-rim")), len(elements(drawn, "black-rim"))) == (1, 2)
    assert side_names(GAMES["clobber_2p"]) == ("White", "Black")


def test_shogi_draws_pieces_turned_promoted_and_in_hand():
    pieces = np.zeros((9, 9), dtype=np.int8)
    pieces[0, 4], pieces[8, 4], pieces[2, 7] = -8, 8, 14  # kings; Black's dragon at 2c
    drawn = draw(ShogiPosition(SHOGI, pieces, ({PAWN: 3}, {ROOK: 1}), ((2, 7),)))
    shown = {one.text for one in elements(drawn, "kanji")}
    assert shown == {"王", "玉", "龍", "歩", "飛"}
    assert [one.text for one in elements(drawn, "promoted")] == ["龍"]
    turned = [one for one in parsed(drawn).iter() if "rotate(180)" in one.get("transform", "")]
    assert len(turned) == 2  # White's king and the rook in its hand
    assert description(drawn) == "Black: +R 2c, K 5i, 3 P in hand. White: K 5a, 1 R in hand."
    assert "3" in {one.text for one in parsed(drawn).iter(f"{SVG}text")}


def test_every_code_of_shogi_has_a_character_of_its_own():
    assert sorted(CHARACTERS) == list(range(1, 15))
    assert len(set(CHARACTERS.values())) == 14


def test_minishogi_has_no_dots():
    drawn = draw(ShogiPosition(MINISHOGI, np.zeros((5, 5), dtype=np.int8), ({}, {}), ()))
    assert not elements(drawn, "dot")
    assert parsed(drawn).findtext(f"{SVG}title") == "Minishogi"


HAND = HeartsPosition(
    hands=((0, 13), (36,), (51,), ()),
    passing="nobody",
    given=((), (), (), ()),
    trick=((1, 38), (2, 39), (3, 26), (0, 37)),
    taker=1,
    points=(0, 1, 0, 0),
    scores=(0, 0, 0, 0),
)


def test_hearts_draws_all_cards_and_who_takes_the_trick():
    drawn = draw(HAND)
    assert len(elements(drawn, "card")) == 4 + 4
    assert len(elements(drawn, "taken")) == 1
    red = {one.text for one in elements(drawn, "card-red")}
    assert {"♦", "♥"} <= red
    assert not {"♣", "♠"} & red
    assert "Seat 1 holds Q♠." in description(drawn)
    assert "Seat 1 takes it. Points: 0, 1, 0, 0." in description(drawn)
    assert any(one.text == "seat 1: 1 point" for one in parsed(drawn).iter(f"{SVG}text"))


def test_printed_positions_keep_spaces_and_are_escaped():
    drawn = draw(TextPosition("  a <b> & c\n\nd\n"))
    shown = [one.text for one in elements(drawn, "printed")]
    assert shown == ["\N{NO-BREAK SPACE}" * 2 + "a\N{NO-BREAK SPACE}<b>\N{NO-BREAK SPACE}&\N{NO-BREAK SPACE}c", "d"]


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (board("othello", ["01", "00"]), "On the board: Black 3, White 1"),
        (board("clobber", ["01", "1."]), "On the board: White 1, Black 2"),
        (board("tic_tac_toe", ["0..", "...", "..."]), ""),
        (HAND, ""),
    ],
)
def test_counts_tell_pieces_where_they_matter(position, expected):
    assert counts(position) == expected
