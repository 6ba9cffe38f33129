"""Connect four by our own rules: lines, full columns, boards."""

from itertools import product

import numpy as np
import pytest
from board_games import SLOT, after

from flyball.app.config import GAMES
from flyball.app.core import ConfigKey
from flyball.app.games import IllegalAction, open_table
from flyball.app.games.board_table import BoardTable
from flyball.app.games.connect_four import COLUMNS, CONNECT_FOUR, ROWS, has_four
from flyball.app.games.openspiel import OpenSpielTable

CONFIG = GAMES[ConfigKey("connect_four_2p")]
LINES = [
    [(row + k * up, column + k * right) for k in range(4)]
    for up, right in ((0, 1), (1, 0), (1, 1), (1, -1))
    for row, column in product(range(ROWS), range(COLUMNS))
    if row + 3 * up < ROWS and 0 <= column + 3 * right < COLUMNS
]


def as_set(line) -> int:
    return sum(1 << 8 * row + column for row, column in line)


def test_every_line_of_four_is_found_and_nothing_else() -> None:
    assert len(LINES) == 69
    for line in LINES:
        assert has_four(as_set(line))
        assert not any(has_four(as_set(line[:k] + line[k + 1 :])) for k in range(4))
    boards = np.random.default_rng(0).random((5000, ROWS, COLUMNS)) < 0.4
    expected = [any(all(board[cell] for cell in line) for line in LINES) for board in boards]
    assert [has_four(as_set(np.argwhere(board).tolist())) for board in boards] == expected
    assert 0.1 < np.mean(expected) < 0.9


@pytest.mark.parametrize("action", [3, 7, -1])
def test_an_illegal_action_is_refused_and_no_game_moves_on(action: int) -> None:
    table = BoardTable(CONNECT_FOUR, 2)
    table.reset(np.arange(2), [0, 0])
    for _ in range(ROWS):
        table.step(np.array([1]), np.array([3], dtype=np.int32))
    with pytest.raises(IllegalAction, match=rf"Action {action} in slot 1 .*\[0, 1, 2, 4, 5, 6\]"):
        table.step(np.arange(2), np.array([0, action], dtype=np.int32))
    assert table.history(0) == []
    assert table.history(1) == [3] * ROWS


@pytest.mark.parametrize(
    ("options", "table"),
    [
        ("", BoardTable),
        ("(rows=6,columns=7)", BoardTable),
        ("(rows=8,columns=9)", OpenSpielTable),
        ("(x_in_row=3)", OpenSpielTable),
    ],
)
def test_only_the_usual_board_is_played_by_our_own_rules(options: str, table: type) -> None:
    assert isinstance(open_table(CONFIG.replace(game=f"connect_four{options}"), 1), table)


def test_another_board_is_seen_whole() -> None:
    table = after(open_table(CONFIG.replace(game="connect_four(rows=8,columns=9)"), 1), 8, 8, 0)
    obs, mask = table.observe(SLOT)
    mine, others, empty = obs.reshape(3, 8, 9)
    assert (np.argwhere(mine).tolist(), np.argwhere(others).tolist()) == ([[1, 8]], [[0, 0], [0, 8]])
    assert (empty.sum(), mask.shape) == (72 - 3, (1, 9))
