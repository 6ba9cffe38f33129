"""Models of the jobs: duration on the modelled cluster, and result."""

from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from flyball.app.config import GameConfig
from flyball.app.core import HEURISTIC, FlyballError, Rate, ShardKey, expected_score
from flyball.app.engine import JobFailed
from flyball.app.events import SelfplayComplete, SelfplayRequested, TrainingRequested
from flyball.app.job_specs import InspectionResult, JobResult, ModelResult, Opponent, SelfplayResult
from flyball.app.play.gauntlet import GauntletResult, OpponentResult
from flyball.app.play.match_statistics import count_rotations
from flyball.app.simulation.world import NodeTruth, ShardTruth, World, digest, severity_at
from flyball.daemons.jobs import Job

Outcome = JobResult | GauntletResult | FlyballError
"""The result or error of a job."""


class Computed(NamedTuple):
    """The duration and outcome of a job."""

    seconds: float
    outcome: Outcome


SLOWEST = 0.2
"""Share of its speed that a node keeps in the severest slowness."""

WORST_SCORE = 0.05
"""Quality score, before noise, of a shard with flawed rows only."""

BROKEN_GAMES = 0.3
"""Share of games that fail to replay in the severest parity trouble."""

FAILURE_SECONDS = 1.0
"""Time until a request fails on a failing node."""

LENGTH_SD = 0.03
"""Relative standard deviation of a shard's number of rows."""


def play(world: World, node: NodeTruth, config: GameConfig, job: Job[SelfplayRequested], now_us: int) -> Computed:
    """Model ``flyball.app.play.selfplay`` on a node. The shard's true quality is added to ``world``."""
    if node.severity("failing", now_us):
        return Computed(FAILURE_SECONDS, FlyballError("The modelled node fails."))
    request, plant = job.request, world.plant
    speed = node.speed * (1 - (1 - SLOWEST) * node.severity("slow", now_us))
    time = plant.curve(config.key).time
    seconds = plant.time.scale * time.request * request.games / config.selfplay.games_per_request / speed
    length, fails = node.rng.normal(1.0, LENGTH_SD), node.rng.random() < plant.troubles.selfplay_failure
    if fails:
        return Computed(seconds / 2, FlyballError("The modelled games broke off."))
    mean_length = plant.curve(config.key).rows_per_game * length
    rows = max(1, round(request.games * mean_length * own_share(request, config.players)))
    shard = ShardKey(digest("shard", job.id))
    poor = severity_at(world.config(config.key).poor, now_us)
    world.shards[shard] = ShardTruth(
        rows=rows,
        flawed=max(node.severity("corrupt", now_us), poor),
        temperature=request.temperature,
        unruly=node.severity("parity", now_us),
        depth=world.models[request.model].depth,
    )
    result = SelfplayResult(
        shard=shard, rows=rows, games=request.games, mean_length=mean_length, truncated=0, seconds=seconds
    )
    return Computed(seconds, result)


def own_share(request: SelfplayRequested, players: int) -> float:
    """Return the share of seats that the model itself plays. Only these seats give rows."""
    others = sum(
        lineup.games * sum(opponent != request.model for opponent in lineup.opponents) for lineup in request.lineups
    )
    return 1 - others / (request.games * players)


def inspect(world: World, job: Job[SelfplayComplete], now_us: int) -> Computed:  # noqa: ARG001 - as all models of jobs
    """Model ``flyball.app.play.inspection``.

    Flawed rows lower the score, as duplicates, cut-off games and lopsided outcomes do in real shards. A replayed sample
    shows the games that break the rules.
    """
    settings, truth, rng = world.plant.quality, world.shards[job.request.shard.key], world.rng("inspection")
    seconds = world.plant.time.scale * world.plant.curve(job.cause.subject or "").time.inspection
    broken = int(rng.binomial(settings.checked_games, BROKEN_GAMES * truth.unruly))
    sound = settings.healthy - (settings.healthy - WORST_SCORE) * truth.flawed
    score = min(1.0, max(0.0, sound + rng.normal() * settings.noise_sd))
    result = InspectionResult(
        checked=settings.checked_games,
        failures=tuple(f"modelled difference {index}" for index in range(broken)),
        score=score,
        components={"modelled": score},
    )
    return Computed(seconds, result)


def train(world: World, job: Job[TrainingRequested], now_us: int) -> Computed:
    """Model a training job of ``flyball.app.learning.jobs``.

    The model gives the job's duration, and its result or failure. The metrics are only plausible: flawed rows raise the
    value loss, a higher learning rate raises ``approx_kl``.
    """
    request, key = job.request, job.cause.subject or ""
    time = world.plant.curve(key).time
    rows = sum(shard.rows for shard in request.shards)
    flawed_rows = sum(shard.rows * world.shards[shard.key].flawed for shard in request.shards)
    model = world.train(key, request, job.id, now_us)
    seconds = world.plant.time.scale * (time.training + time.trained_row * rows * request.epochs)
    if model is None:
        told = {"kind": "TrainingDiverged", "summary": "the modelled update blew up", "code": "diverged"}
        error = JobFailed(job.function, **told, hint="", trace="")
        return Computed(seconds, error)
    if request.base_model is None:
        return Computed(seconds, ModelResult(model=model, parent=None, step=0, rows=rows, metrics=None))
    noise = world.rng("training metrics").normal(0.0, 0.15, size=2)
    flawed, pace = flawed_rows / rows, request.learning_rate / world.plant.learning.learning_rate
    metrics = {
        "policy_loss": -0.02,
        "value_loss": 0.25 * (1 + 2 * flawed) * float(2.0 ** noise[0]),
        "entropy": 1.0,
        "approx_kl": 0.02 * pace * (1 + flawed) * float(2.0 ** noise[1]),
        "clip_fraction": 0.1,
        "explained_variance": 0.6 * (1 - flawed),
        "seconds": seconds,
    }
    parent, step = request.base_model, request.step + 1
    return Computed(seconds, ModelResult(model=model, parent=parent, step=step, rows=rows, metrics=metrics))


def evaluate(world: World, job: Job[Any], now_us: int) -> Computed:  # noqa: ARG001 - as all models of jobs
    """Model ``flyball.app.play.matches``. Every game's result is drawn from the difference in true strength."""
    key, players = job.cause.subject or "", job.parts[0]["config"]["players"]
    rng, curve = world.rng("gauntlets", key), world.plant.curve(key)
    opponents: tuple[Opponent, ...] = job.memo["opponents"]
    seconds = sum(opponent.games for opponent in opponents) * world.plant.time.scale * curve.time.rated_game
    if rng.random() < world.plant.troubles.evaluation_failure:
        return Computed(seconds / 2, FlyballError("The modelled gauntlet broke off."))
    results: list[OpponentResult] = []
    for opponent in opponents:
        difference = world.difference(job.request.model, opponent.model)
        if opponent.name == HEURISTIC:
            difference -= curve.heuristic
        wins, draws, losses = draw_results(difference, opponent.games, curve.draws, rng)
        scores: NDArray[np.float64] = rng.permutation(np.repeat((1.0, 0.5, 0.0), (wins, draws, losses)))  # [G]
        score = Rate.of(wins + draws / 2, opponent.games)
        result = OpponentResult(
            opponent=opponent.name,
            opponent_model=opponent.model,
            games=opponent.games,
            wins=wins,
            draws=draws,
            losses=losses,
            truncated=0,
            distinct_games=opponent.games,
            undecided=0,
            score=score,
            won=score,
            outcome=None,
            rotations=count_rotations(scores, players),
            graded=None,
            stderr=None,
            mean_length=0.0,
        )
        results.append(result)
    return Computed(seconds, GauntletResult(results=tuple(results), lost_games=0, seconds=seconds))


def draw_results(difference: float, games: int, draws: float, rng: Generator) -> tuple[int, int, int]:
    """Draw the numbers of wins, draws and losses between two players.

    The first player is ``difference`` Elo stronger. The expected score is the logistic model's. The share of drawn
    games is ``draws`` times the weaker side's expected score. Games for more than two players are modelled as duels.
    """
    chance = expected_score(difference)
    drawn = draws * min(chance, 1 - chance)
    wins, ties, losses = rng.multinomial(games, (chance - drawn / 2, drawn, 1 - chance - drawn / 2))
    return int(wins), int(ties), int(losses)
