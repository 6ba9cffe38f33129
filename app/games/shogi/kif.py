"""KIF, the usual format of records of Shogi games, read and written.

Source: http://kakinoki.o.oo7.jp/kif_format.html. A file named ``.kifu`` is UTF-8, one named ``.kif`` Shift-JIS. Only
games from the usual first position are read, without variations; comments are ignored.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from flyball.app.games.shogi.replay import Replay
from flyball.app.games.shogi.rules import OCCURRENCES
from flyball.app.games.shogi.sfen import BadNotation
from flyball.app.games.shogi.variant import BASE, KING, SHOGI, Variant
from flyball.app.games.table import FINISHED, IllegalAction

_RANKS = "一二三四五六七八九"
_PIECES = ("", "歩", "香", "桂", "銀", "金", "角", "飛", "玉", "と", "成香", "成桂", "成銀", "馬", "龍")
_CODE_OF = {name: code for code, name in enumerate(_PIECES) if name}
_CODE_OF |= {"王": KING, "杏": 10, "圭": 11, "全": 12, "竜": 14}
_SAME, _DROPS, _PROMOTES, _STAYS = "同", "打", "成", "不成"
_START = {"shogi": "平手", "minishogi": "5五将棋"}  # as far as programs agree on the second
ENDINGS = ("中断", "投了", "持将棋", "千日手", "詰み", "切れ負け", "反則勝ち", "反則負け", "入玉勝ち", "不戦敗", "不詰")
"""Words that end a record instead of a move."""

_NARROW = {0xFF10 + digit: str(digit) for digit in range(10)} | {0xFF1A: ":", 0x3000: " "}
"""Full-width digits, colon and space, as programs write them, to plain ones."""
_WIDE = {ord(narrow): chr(wide) for wide, narrow in _NARROW.items()}
_LINE = re.compile(r"\s*(\d+)\s+(\S.*?)\s*(?:\(\s*\d+:\d+.*)?\+?\s*$")
_MOVE = re.compile(
    rf"(?:([1-9])([{_RANKS}])|{_SAME}\s*)({'|'.join(sorted(_CODE_OF, key=len, reverse=True))})"
    rf"(?:({_DROPS})|({_PROMOTES}|{_STAYS})?\(([1-9])([1-9])\))"
)


class KifGame(NamedTuple):
    """A record of a game."""

    actions: list[int]  # in the variant's numbers
    names: tuple[str, str]  # of Black and White; empty: unknown
    ending: str  # the word that ends the record; empty: none


def write_kif(actions: Sequence[int], names: tuple[str, str] = ("", ""), variant: Variant = SHOGI) -> str:
    """Return the record of a game of legal actions. Raises ``IllegalAction``."""
    game, last = Replay(variant), -1
    lines = [
        f"手合割:{_START[variant.name]}",
        f"先手:{names[0]}",
        f"後手:{names[1]}",
        "手数----指手---------消費時間--",
    ]
    for number, action in enumerate(actions, 1):
        cell, to_own, promotes, code = variant.parts(action)
        to, seat = _in_view_of(to_own, game.seat, variant), game.seat
        where = _SAME + " ".translate(_WIDE) if to == last else _name(to, variant)
        piece = _PIECES[code or int(game.position["board"][cell])]
        game.play(action)
        end = _DROPS if code else f"{_PROMOTES * promotes}({_digits(_in_view_of(cell, seat, variant), variant)})"
        lines.append(f"{number:4d} {where}{piece}{end} ( 0:00/00:00:00)")
        last = to
    lines.append(f"{len(actions) + 1:4d} {_ending(game)}")
    return "\n".join(lines) + "\n"


def _ending(game: Replay) -> str:
    """Return the word for how a game stands. A game that goes on, or was cut off, is interrupted."""
    if game.position["occurrences"] >= OCCURRENCES:
        return "千日手" if game.winner == FINISHED else "反則勝ち" if game.winner == game.seat else "反則負け"
    if game.winner == game.seat:
        return "入玉勝ち"
    return "中断" if game.winner == FINISHED else "詰み"


def parse_kif(  # noqa: C901 - a line after the other
    text: str, variant: Variant = SHOGI
) -> KifGame:
    """Return the game of a record. Raises ``BadNotation`` with the number of the line."""
    game, names, last = Replay(variant), ["", ""], -1
    for number, raw in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        line = raw.translate(_NARROW).rstrip()
        key, colon, value = line.partition(":")
        if not line or line[0] in "#*&" or line.startswith("手数--"):
            continue
        if key == "変化":
            break
        if line[0] in "|+" or (key == "手合割" and value.strip() != _START[variant.name]):
            raise _bad(number, raw, f"the game does not begin from the first position of {variant.name}")
        if key in ("先手", "後手", "下手", "上手"):
            names[key in ("後手", "上手")] = value
        if (match := _LINE.match(line)) is None:
            if colon or line.startswith("まで"):
                continue
            raise _bad(number, raw, "it is no move, no heading and no comment")
        if int(match[1]) != len(game.history) + 1:
            raise _bad(number, raw, f"move {len(game.history) + 1} is expected")
        if match[2] in ENDINGS:
            return KifGame(game.history, (names[0], names[1]), match[2])
        last = _play(game, match[2], last, number, raw)
    return KifGame(game.history, (names[0], names[1]), "")


def _play(game: Replay, text: str, last: int, number: int, raw: str) -> int:
    """Play a line's move; return its square as Black sees it."""
    variant, match = game.variant, _MOVE.fullmatch(text)
    if match is None:
        raise _bad(number, raw, "it is no move, such as 7六歩(77)")
    file, rank, name, drops, way, *origin = match.groups()
    to = last if file is None else _cell(int(file), _RANKS.index(rank) + 1, variant)
    if to < 0:
        raise _bad(number, raw, "there is no such square")
    code, to_own = _CODE_OF[name], _in_view_of(to, game.seat, variant)
    if drops and BASE[code] == code and code in variant.codes:
        action = variant.drop(code, to_own)
    else:
        cell = -1 if drops else _in_view_of(_cell(int(origin[0]), int(origin[1]), variant), game.seat, variant)
        if cell < 0 or cell == to_own or game.position["board"][cell] != code:
            raise _bad(number, raw, f"there is no {name} that could move so")
        action = variant.move(cell, to_own, promotes=way == _PROMOTES)
    try:
        game.play(action)
    except IllegalAction as error:
        raise _bad(number, raw, "the game is over" if game.over else "the move is not legal") from error
    return to


def _in_view_of(cell: int, seat: int, variant: Variant) -> int:
    """Convert a square between Black's view and that of ``seat``. A negative number stays as it is."""
    return variant.cells - 1 - cell if seat and cell >= 0 else cell


def _cell(file: int, rank: int, variant: Variant) -> int:
    """Return a square as Black sees it, -1 off the board."""
    inside = file <= variant.side and rank <= variant.side
    return (rank - 1) * variant.side + variant.side - file if inside else -1


def _digits(cell: int, variant: Variant) -> str:
    row, column = divmod(cell, variant.side)
    return f"{variant.side - column}{row + 1}"


def _name(cell: int, variant: Variant) -> str:
    digits = _digits(cell, variant)
    return digits[0].translate(_WIDE) + _RANKS[int(digits[1]) - 1]


def _bad(number: int, line: str, why: str) -> BadNotation:
    return BadNotation(f"Line {number} of the record, {line.strip()!r}: {why}.", hint="Correct the line.")
