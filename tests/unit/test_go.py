"""Go by our own rules: endings, suicide, kos, and board sizes."""

import numpy as np
import pytest
from board_games import at_random

from flyball.app.games import UnknownGame
from flyball.app.games.board_table import BoardTable
from flyball.app.games.go import go_rules

GAMES = 2000


def test_games_at_random_end_in_all_ways() -> None:
    table, passing, longest = BoardTable(go_rules(3, 1.0, 18), GAMES), 9, 18
    list(at_random(table, GAMES))
    moves, first = [table.history(slot) for slot in range(GAMES)], table.returns()[:, 0]
    passed = np.array([game[-2:] == [passing, passing] for game in moves])
    cut = np.array([len(game) == longest for game in moves])
    repeated = ~passed & ~cut
    assert min(passed.sum(), cut.sum(), repeated.sum()) > 20
    assert not first[repeated].any()
    assert len(np.unique(first[passed])) == 3  # with komi of a whole number, also draws
    assert not table.truncated().any()


@pytest.mark.parametrize("size", [1, 20])
def test_boards_that_openspiel_does_not_have_are_refused(size: int) -> None:
    with pytest.raises(UnknownGame, match=rf"size {size}\. Set board_size to 2 to 19"):
        go_rules(size)
