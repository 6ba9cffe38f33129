"""Random board games, played by our own rules and by OpenSpiel's."""

from collections.abc import Callable

import numpy as np

from flyball.app.games import FINISHED, GameRecord, Table

SLOT = np.array([0])


def alike(ours, theirs) -> bool:
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def ends(table: Table, slots: int):
    return table.returns(), table.truncated(), table.seats(), [table.history(slot) for slot in range(slots)]


def at_random(table: Table, games: int, seed: int = 1):
    """Play ``games`` random games to their ends.

    Before each step, yields the slots of the running games and their chosen actions.
    """
    table.reset(np.arange(games), range(games))
    rng = np.random.default_rng(seed)
    while len(live := np.flatnonzero(table.seats() != FINISHED)):
        _, mask = table.observe(live)
        actions = (rng.random(mask.shape) * mask).argmax(axis=1).astype(np.int32)
        yield live, actions
        table.step(live, actions)


def after(table: Table, *moves: int) -> Table:
    """Play ``moves`` in the only slot of a table."""
    table.reset(SLOT, [0])
    for move in moves:
        table.step(SLOT, np.array([move], dtype=np.int32))
    return table


def recorded(table: Table, choose: Callable[[np.ndarray], int], seed: int) -> GameRecord:
    """Play the game in a table's only slot to its end; return its record. ``choose`` gets the legal actions [A]."""
    rows = []
    while (seat := table.seats()[0]) != FINISHED:
        obs, mask = table.observe(SLOT)
        action = np.int32(choose(mask[0]))
        rows.append((len(rows), seat, action, obs[0], mask[0]))
        table.step(SLOT, action[None])
    step, seats, action, obs, mask = (np.array(column) for column in zip(*rows, strict=True))
    end = table.history(0), table.returns()[0], bool(table.truncated()[0])
    return GameRecord(*end, step, seats, action, obs, mask, seed=seed)
