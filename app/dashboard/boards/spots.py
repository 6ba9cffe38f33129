"""Buttons on a drawn board, by which a person chooses an action.

An action's text names its spots in their order: a cell, a card, or the cells that a piece leaves and enters. A spot
that is not on the board, such as a pass, has no box, and becomes a button below it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from flyball.app.dashboard.boards import grids, stones
from flyball.app.dashboard.boards.hearts import card_box
from flyball.app.dashboard.boards.shogi import spot_box
from flyball.app.dashboard.boards.svg import Box
from flyball.app.games.positions import BoardPosition, HeartsPosition, NinePosition, Position, ShogiPosition

SpotPath = tuple[str, ...]
"""Names of the spots that choose an action."""

_SQUARE = re.compile(r"[a-t]\d{1,2}")
_SHOGI_MOVE = re.compile(r"([A-Z]\*|\d[a-i])(\d[a-i])(\+?)")
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Spot:
    """A button.

    Attributes:
        name: of the spot.
        label: the action's text, or what picking the spot means.
        box: where it is in the drawing; None if it is not on the board.
        action: what it chooses; None if it only picks the spot.
        picks: the spots that are picked after it; empty if it chooses an action, or takes the pick back.
        picked: whether it was picked.
    """

    name: str
    label: str
    box: Box | None
    action: int | None = None
    picks: SpotPath = ()
    picked: bool = False


def spots_of(position: Position, seat: int, texts: Mapping[int, str], picked: SpotPath = ()) -> list[Spot]:
    """Return the buttons of the seat to move.

    ``texts`` are those of its legal actions. Picked spots that no action has are ignored.
    """
    paths = {action: path_of(position, text) for action, text in texts.items()}
    while picked and not any(path[: len(picked)] == picked for path in paths.values()):
        picked = picked[:-1]
    boxes = partial(_box, position, seat)
    spots = _after(paths, texts, picked, boxes)
    if picked:
        spots += [spot for spot in _after(paths, texts, (), boxes) if spot.picks and spot.name != picked[0]]
        spots.append(Spot(picked[0], f"{picked[0]}, picked", boxes(picked[0]), picked=True))
    return spots


def _after(
    paths: Mapping[int, SpotPath], texts: Mapping[int, str], picked: SpotPath, boxes: Callable[[str], Box | None]
) -> list[Spot]:
    """Return a spot for each way in which a path goes on after ``picked``."""
    depth = len(picked)
    ways: dict[str, list[int]] = {}
    for action, path in paths.items():
        if path[:depth] == picked:
            ways.setdefault(path[depth] if len(path) > depth else "", []).append(action)
    spots = []
    for name, actions in ways.items():
        first = actions[0]
        if len(actions) == 1 and (depth or len(paths[first]) == 1):
            spots.append(Spot(name or "stay", texts[first], boxes(name) if name else None, first))
        else:
            spots.append(Spot(name, f"from {name}", boxes(name), picks=(*picked, name)))
    return spots


def path_of(position: Position, text: str) -> SpotPath:
    """Return the spots of an action's text, as ``Spectator.names`` returns it."""
    if isinstance(position, ShogiPosition) and (move := _SHOGI_MOVE.fullmatch(text)):
        return tuple(part for part in move.groups() if part)
    if isinstance(position, BoardPosition) and (squares := _SQUARE.findall(text)):
        return tuple(squares)
    return (text.removeprefix("chooses "),)


def _box(position: Position, seat: int, name: str) -> Box | None:
    """Return where a spot is in the drawing."""
    match position:
        case BoardPosition():
            return _on_board(position, name)
        case NinePosition():
            return grids.nine_box(*(int(number) - 1 for number in _NUMBERS.findall(name)))
        case ShogiPosition():
            return spot_box(position, seat, name)
        case HeartsPosition():
            return card_box(position, seat, name)
    return None


def _on_board(position: BoardPosition, name: str) -> Box | None:
    rows = len(position.cells)
    numbers = [int(number) for number in _NUMBERS.findall(name)]
    if not numbers:  # a pass
        return None
    if position.game == "connect_four":
        return grids.column_box(numbers[0] - 1, rows)
    if position.game == "tic_tac_toe":
        return grids.cell_box(numbers[0] - 1, numbers[1] - 1)
    letters = stones.COLUMNS if position.game == "go" else grids.LETTERS
    column = letters.index(name[0])
    row = numbers[0] - 1 if position.game in _FROM_TOP else rows - numbers[0]
    return _CELLS.get(position.game, grids.cell_box)(row, column)


_FROM_TOP = frozenset({"hex", "othello"})  # games whose first row is the drawing's top one
_CELLS = {"go": stones.point_box, "hex": stones.hexagon_box}
