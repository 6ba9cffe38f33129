"""Random games of Shogi and minishogi by our own rules."""

from collections.abc import Iterator

import numpy as np

from flyball.app.games import FINISHED
from flyball.app.games.shogi.table import ShogiTable, parse_rules

AT_ONCE = 250


def random_table(game: str, games: int, seed: int, max_moves: int = 500) -> ShogiTable:
    """Return a table of finished games with uniformly random actions. Each legal action was equally likely."""
    table, rng = ShogiTable(parse_rules(game), games, max_moves), np.random.default_rng(seed)
    table.reset(np.arange(games), range(games))
    while len(live := np.flatnonzero(table.seats() != FINISHED)):
        rows, actions = np.nonzero(table.observe(live)[1])
        counts = np.bincount(rows, minlength=len(live))
        drawn = np.cumsum(counts) - counts + (rng.random(len(live)) * counts).astype(np.int64)
        table.step(live, actions[drawn].astype(np.int32))
    return table


def random_histories(game: str, games: int, seed: int) -> Iterator[list[int]]:
    """Yield the histories of random games of at most 500 moves."""
    for begin in range(0, games, AT_ONCE):
        count = min(AT_ONCE, games - begin)
        table = random_table(game, count, seed + begin)
        for slot in range(count):
            yield table.history(slot)
