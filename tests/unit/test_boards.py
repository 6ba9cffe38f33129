"""Drawings of positions with known content."""

from xml.etree import ElementTree as ET

import numpy as np
import pytest

from flyball.app.config import GAMES
from flyball.app.dashboard.boards import counts, draw, side_names
from flyball.app.dashboard.boards.shogi import CHARACTERS
from flyball.app.games.board_table import EMPTY
from flyball.app.games.positions import BoardPosition, HeartsPosition, NinePosition, ShogiPosition, TextPosition
from flyball.app.games.shogi.variant import MINISHOGI, PAWN, ROOK, SHOGI

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


@pytest.mark.parametrize(
    ("position", "shapes", "words"),
    [
        (
            board("tic_tac_toe", ["01.", "...", "..0"], (0, 1)),
            {"cross": 2 * 2, "nought": 1, "last-square": 1},
            "X: row 1 column 1, row 3 column 3. O: row 1 column 2.",
        ),
        (
            board("connect_four", ["...", "1..", "01."], (1, 0)),
            {"hole": 9, "token-0": 2, "token-1": 4, "last-dot": 1},  # each token with an inner ring
            "Yellow: column 1 row 1. Red: column 1 row 2, column 2 row 1.",
        ),
        (
            board("othello", ["0.......", *["........"] * 6, ".......1"], (7, 7)),
            {"black-rim": 1, "white-rim": 1},
            "Black: a1. White: h8.",  # rows from the top
        ),
        (
            board("go", ["........0", *["........."] * 7, "1........"], (0, 8)),
            {"dot": 9, "black-rim": 1},
            "Black: j9. White: a1.",  # rows from below, without the i
        ),
        (
            board("hex", ["0..", ".1.", "..."], (1, 1)),
            {"hexagon": 9, "hex-0": 1, "hex-1": 1},
            "Red, top to bottom: a1. Blue, left to right: b2.",
        ),
        (
            board("breakthrough", ["0.", "0.", ".1", ".1"], (1, 0), (0, 1)),
            {"last-square": 2},
            "Black: a4, a3. White: b2, b1.",
        ),
        (board("clobber", ["01", "1."]), {"white-rim": 1, "black-rim": 2}, "White: a2. Black: b2, a1."),
    ],
    ids=lambda one: getattr(one, "game", ""),
)
def test_board_is_drawn_with_its_shapes_and_in_words(position, shapes, words):
    drawn = draw(position)
    assert {shape: len(elements(drawn, shape)) for shape in shapes} == shapes
    assert description(drawn) == words


def test_drawing_places_marks_on_their_cells():
    (dot,) = elements(draw(board("connect_four", ["...", "1..", "01."], (1, 0))), "last-dot")
    assert (dot.get("cx"), dot.get("cy")) == ("40", "130")
    drawn = draw(board("go", ["........0", *["........."] * 8], (0, 8)))
    (ring,), (stone,) = elements(drawn, "last-ring"), elements(drawn, "black-rim")
    assert (ring.get("cx"), ring.get("cy")) == (stone.get("cx"), stone.get("cy"))
    hexagons = elements(draw(board("hex", ["0..", ".1.", "..."])), "hexagon")
    assert all(len(one.get("points", "").split()) == 6 for one in hexagons)
    assert side_names(GAMES["clobber_2p"]) == ("White", "Black")


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
    drawn = draw(ShogiPosition(MINISHOGI, np.zeros((5, 5), dtype=np.int8), ({}, {}), ()))
    assert (elements(drawn, "dot"), parsed(drawn).findtext(f"{SVG}title")) == ([], "Minishogi")


HAND = HeartsPosition(
    hands=((0, 13), (36,), (51,), ()),
    passing="nobody",
    passed=((), (), (), ()),
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
