"""Check of a player: what self-play, evaluation and cloning rely on."""

from collections.abc import Iterator
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from flyball.app.config import CPU, Compute, GameConfig
from flyball.app.core import Finding, FlyballError
from flyball.app.games import FINISHED, Table, open_table
from flyball.app.play.engines import EnginePlayer
from flyball.app.play.matches import MatchPlan, play_match
from flyball.app.play.own_players import DecidingPlayer, Points, Turn
from flyball.app.play.players import Player, PolicyPlayer, RandomPlayer, load_player
from flyball.app.play.rng import draw_points, number_streams
from flyball.app.play.rollout import ask
from flyball.app.store import MemoryStore

POSITIONS = 12  # test positions; each is one decision deeper into a game than the one before
GAMES = 4  # whole games; each move of an engine may take seconds
TOLERANCE = 1e-3  # largest accepted error of a probability
SEED = 7

Actions = NDArray[np.int32]


def check_player(name: str, config: GameConfig, compute: Compute = CPU) -> list[Finding]:
    """Return the faults found in one of a configuration's ``bots``.

    The player is loaded twice. It is asked about the same positions together, again, one by one, and, if it is an
    engine, after a restart. Then it plays some whole games.
    """
    if name not in config.bots:
        names = ", ".join(config.bots) or "none"
        return [Finding("settings", f"{config.key} has no bot {name!r} of its own.", f"There are: {names}.")]
    where = "load"
    try:
        player, other = (_load(name, config, compute) for _ in range(2))
        turn, points = _turn(config, POSITIONS)
        where = "moves"
        findings = list(_differences(player, other, turn, points))
        if not isinstance(player, DecidingPlayer):
            where = "forward"
            findings += _probabilities(player, turn)
        where = "games"
        _play(config, player, GAMES)
    except FlyballError as error:
        return [Finding(where, error.message, error.hint)]
    return findings


def measure_player(name: str, config: GameConfig, compute: Compute = CPU, games: int = GAMES) -> dict[str, float]:
    """Return a player's ``moves_per_second`` in one batch, and its ``score_against_random``; raises as the player."""
    player = _load(name, config, compute)
    turn, points = _turn(config, POSITIONS)
    _moves(player, turn, points)  # not timed, because an engine starts at its first move
    began = perf_counter()
    _moves(player, turn, points)
    seconds = perf_counter() - began
    return {"moves_per_second": POSITIONS / seconds, "score_against_random": _play(config, player, games)}


def _load(name: str, config: GameConfig, compute: Compute) -> Player:
    return load_player(MemoryStore(), name, open_table(config, 0).spec, compute, config)


def _turn(config: GameConfig, count: int) -> tuple[Turn, Points]:
    """Return positions of random games; slot k is k decisions deep, or less, as finished games begin again."""
    table, slots = open_table(config, count), np.arange(count)
    table.reset(slots, slots.tolist())
    for depth in range(count - 1):
        _play_at_random(table, slots[depth + 1 :], depth)
    points = draw_points(number_streams(SEED, slots), slots)
    return Turn(*table.observe(slots), table, slots), points


def _play_at_random(table: Table, slots: NDArray[np.int64], depth: int) -> None:
    """Play a random move in each slot; restart games that end."""
    points = draw_points(number_streams(SEED + 1, slots), np.full(len(slots), depth))
    table.step(slots, ask(RandomPlayer(), *table.observe(slots), 1.0, points).action)
    ended = slots[table.seats()[slots] == FINISHED]
    table.reset(ended, ended.tolist())


def _moves(player: Player, turn: Turn, points: Points) -> Actions:
    if isinstance(player, DecidingPlayer):
        return player.decide(turn, points)
    return ask(player, turn.obs, turn.mask, 1.0, points).action


def _differences(player: Player, other: Player, turn: Turn, points: Points) -> Iterator[Finding]:
    """Compare a player's moves with its moves under other circumstances."""
    moves = _moves(player, turn, points)
    again = "its games cannot be repeated, and a job that runs twice gives another result"
    if not np.array_equal(_moves(player, turn, points), moves):
        hint = (
            "Draw by the points alone. Limit an engine by nodes rather than by time, with one thread, and without "
            "options that make it random, such as Stockfish's Skill Level, UCI_LimitStrength and UCI_Elo."
        )
        yield Finding("repeat", f"The same positions and points gave other moves: {again}.", hint)
        return
    rows = [np.array([row]) for row in range(len(points))]
    alone = [_moves(player, Turn(turn.obs[k], turn.mask[k], turn.table, turn.slots[k]), points[k])[0] for k in rows]
    if not np.array_equal(alone, moves):
        hint = "Let each row depend on itself alone, and keep nothing between calls."
        yield Finding("batch", "A position alone gave another move than among others.", hint)
    if not np.array_equal(_moves(other, turn, points), moves):
        hint = "Seed what the factory draws by the options: each process that plays loads the player itself."
        yield Finding("load", "Loaded again, it makes other moves.", hint)
    if isinstance(player, EnginePlayer):
        player.close()
        if not np.array_equal(_moves(player, turn, points), moves):
            yield Finding("restart", "Restarted, it makes other moves.", "Let it learn nothing from earlier games.")


def _probabilities(player: PolicyPlayer, turn: Turn) -> Iterator[Finding]:
    """Check probabilities at two temperatures."""
    highest = []
    for temperature in (1.0, 0.5):
        log_probs, _ = player.forward(turn.obs, turn.mask, temperature)
        probabilities = np.where(turn.mask, np.exp(log_probs.astype(np.float64)), 0)
        total = probabilities.sum(axis=1)
        if np.abs(total - 1).max() > TOLERANCE:
            row = int(np.abs(total - 1).argmax())
            what = f"The probabilities of row {row} sum to {total[row]:.3g} at a temperature of {temperature}."
            yield Finding("forward", what, "Return the log of probabilities, after the mask and the temperature.")
            return
        highest.append(probabilities.max(axis=1))
    if (highest[1] < highest[0] - TOLERANCE).any():
        hint = "Divide the logits by the temperature, or ignore it."
        yield Finding("temperature", "At a lower temperature the best move is less probable.", hint)


def _play(config: GameConfig, player: Player, games: int) -> float:
    """Play whole games against the random bot; return the mean score. The player takes every seat in turn."""
    plan = MatchPlan(max(games, config.players), SEED, config.evaluation.temperature, config.evaluation.opening_plies)
    scores = play_match(config, player, RandomPlayer(), plan).scores
    return float(np.mean(scores))
