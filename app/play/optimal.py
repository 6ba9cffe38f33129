"""The share of a player's moves that are optimal.

An optimal move keeps the position's value under perfect play. The test positions come from random play, and legal moves
differ in value in each of them. They are the same for each player and seed.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from os import environ
from pathlib import Path

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from flyball.app.config import FrozenModel, GameConfig
from flyball.app.core import FlyballError, Rate, derive_id, derive_seed
from flyball.app.games import FINISHED, Table, open_table
from flyball.app.games.solver import solver_for
from flyball.app.play.own_players import Turn
from flyball.app.play.players import Player, RandomPlayer
from flyball.app.play.rng import draw_points, number_streams
from flyball.app.play.rollout import ask, ask_any
from flyball.app.store.blobs import replace_durably

_BATCH = 512  # random games at once
_FRUITLESS = 8  # after so many batches without a new position, a game counts as having no more


class TooFewPositions(FlyballError):
    """A game has fewer test positions than were asked for."""


class Exercise(FrozenModel):
    """A test position and its optimal moves."""

    history: tuple[int, ...] = Field(description="actions from the start, in the rules' numbers")
    optimal: frozenset[int] = Field(description="the actions that keep its value")
    hard: bool = Field(description="neither side could win with the next move")


class OptimalShare(FrozenModel):
    """Shares of moves that were optimal, over all positions and over those that are ``Exercise.hard``."""

    all: Rate
    hard: Rate | None  # None without hard positions


_EXERCISES = TypeAdapter(list[Exercise])
_VERSION = 1  # raised when the same arguments could give other positions


def saved_positions(
    config: GameConfig, count: int, seed: int, progress: Callable[[int], None] = lambda _count: None
) -> list[Exercise]:
    """Return ``draw_positions``, cached in a file in the user's cache folder.

    Solving the positions of connect four takes minutes. Without a writable folder they are solved each time. Raises as
    ``draw_positions``.
    """
    rules = open_table(config, 0).spec.rules_version
    name = derive_id("exercises", _VERSION, rules, count, seed)
    folder = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flyball"
    file = folder / f"exercises-{name}.json"
    try:
        return _EXERCISES.validate_json(file.read_bytes())
    except (OSError, ValidationError):
        positions = draw_positions(config, count, seed, progress)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        replace_durably(file, _EXERCISES.dump_json(positions), folder)
    return positions


def draw_positions(
    config: GameConfig, count: int, seed: int, progress: Callable[[int], None] = lambda _count: None
) -> list[Exercise]:
    """Return distinct positions in which legal moves differ in value.

    Random games reach them. Each number of moves within the solver's ``lengths`` has the same share of positions, as
    far as there are enough. ``progress`` receives the number of positions so far. Raises ``NoSolver`` or
    ``TooFewPositions``.
    """
    solver, table = solver_for(config), open_table(config, _BATCH)
    fewest, most = solver.lengths
    lengths = list(range(fewest, most + 1))
    known_views, positions = set[bytes](), list[Exercise]()
    batch = 0
    while (missing := count - len(positions)) and lengths:
        missing_by_length = {length: (missing + number) // len(lengths) for number, length in enumerate(lengths)}
        last = batch  # the latest batch with a new position
        while (unfilled := [length for length in lengths if missing_by_length[length]]) and batch - last < _FRUITLESS:
            batch += 1
            for slot, view in _random_positions(table, unfilled, derive_seed(seed, "test positions", batch)):
                history = table.history(slot)
                if view in known_views or not missing_by_length[len(history)]:
                    continue
                known_views.add(view)
                optimal = solver.optimal(history)
                if len(optimal) < np.count_nonzero(table.observe(np.array([slot]))[1]):
                    positions.append(Exercise(history=tuple(history), optimal=optimal, hard=solver.quiet(history)))
                    missing_by_length[len(history)] -= 1
                    last = batch
                    progress(len(positions))
        lengths = [length for length in lengths if not missing_by_length[length]]
    if len(positions) < count:
        raise TooFewPositions(
            f"Random games of {config.key} have {len(positions)} test positions, and not {count}.",
            hint="Ask for fewer.",
        )
    return positions


def _random_positions(table: Table, lengths: Sequence[int], seed: int) -> list[tuple[int, bytes]]:
    """Play a random game in each slot to one of ``lengths``.

    Lengths count moves. Return the slots whose games got there, each with the bytes of its observation.
    """
    slots = np.arange(len(table.seats()))
    streams = number_streams(seed, slots)
    picks = (draw_points(streams, np.zeros_like(slots)) * len(lengths)).astype(np.int64)
    ends = np.array(lengths)[picks]
    table.reset(slots, [0] * len(slots))
    for step in range(1, max(lengths) + 1):
        live = slots[(table.seats() != FINISHED) & (_lengths(table, slots) < ends)]
        obs, mask = table.observe(live)
        points = draw_points(streams[live], np.full(len(live), step))
        table.step(live, ask(RandomPlayer(), obs, mask, 1.0, points).action)
    ended = slots[(table.seats() != FINISHED) & (_lengths(table, slots) == ends)]
    obs, _ = table.observe(ended)
    return [(slot, row.tobytes()) for slot, row in zip(ended.tolist(), obs, strict=True)]


def _lengths(table: Table, slots: np.ndarray) -> np.ndarray:
    return np.array([len(table.history(slot)) for slot in slots.tolist()])


def optimal_share(
    config: GameConfig, player: Player, positions: Sequence[Exercise], temperature: float, seed: int
) -> OptimalShare:
    """Return the share of optimal moves of a player that moves once in each position, as in a rollout."""
    table, slots = open_table(config, len(positions)), np.arange(len(positions))
    table.reset(slots, [0] * len(slots))
    lengths = np.array([len(position.history) for position in positions])
    while len(behind := slots[_lengths(table, slots) < lengths]):  # tables play forced moves by themselves
        moves = [positions[slot].history[len(table.history(slot))] for slot in behind.tolist()]
        table.step(behind, np.array(moves, dtype=np.int32))
    obs, mask = table.observe(slots)
    points = draw_points(number_streams(seed, slots), np.zeros_like(slots))
    actions = ask_any(player, Turn(obs, mask, table, slots), temperature, points).action.tolist()
    moves = [action in position.optimal for action, position in zip(actions, positions, strict=True)]
    hard = [is_optimal for is_optimal, position in zip(moves, positions, strict=True) if position.hard]
    return OptimalShare(all=Rate.of(sum(moves), len(moves)), hard=Rate.of(sum(hard), len(hard)) if hard else None)
