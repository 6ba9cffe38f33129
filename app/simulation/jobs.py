"""Models of the jobs: how long each takes on the modelled cluster, and what its result is."""

from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from app.config import RunSettings
from app.core import HEURISTIC, FlyballError, ModelHash, Rate, ShardKey, expected_score
from app.engine import JobFailed
from app.events import SelfplayComplete, SelfplayRequested, TrainingRequested
from app.play.gauntlet import Opponent
from app.play.match_statistics import count_rotations
from app.simulation.world import NodeTroubles, ShardTruth, World, digest, severity_at, stream
from daemons.jobs import Job, Json


class Computed(NamedTuple):
    """The outcome of a job: duration, and result or error."""

    seconds: float
    outcome: Json | FlyballError


SLOWEST = 0.2
"""Speed that the severest slowness leaves."""

WORST_SCORE = 0.05
"""Quality score of a shard that is nothing but flawed rows."""

BROKEN_GAMES = 0.3
"""Share of games that do not replay, in the severest parity trouble."""

FAILURE_SECONDS = 1.0
"""Time until a request fails on a failing node."""

LENGTH_SD = 0.03
"""Relative standard deviation of a shard's number of rows."""


class NodePlay:
    """Models ``app.play.selfplay`` on one node, with its speed and its troubles."""

    def __init__(self, world: World, settings: RunSettings, node: str, troubles: NodeTroubles) -> None:
        self._world, self._settings, self._troubles = world, settings, troubles
        self._rng: Generator = stream(world.seed, "play", node)
        self._speed = float(2.0 ** (self._rng.normal() * world.plant.cluster.node_speed_sd))

    def __call__(self, job: Job[SelfplayRequested], now_us: int) -> Computed:
        """Play games into a shard, whose truth the world keeps."""
        if severity_at(self._troubles.failing, now_us):
            return Computed(FAILURE_SECONDS, FlyballError("The modelled node fails."))
        request, key, plant = job.request, job.cause.subject or "", self._world.plant
        usual = self._settings.config(key).selfplay.games_per_request
        speed = self._speed * (1 - (1 - SLOWEST) * severity_at(self._troubles.slow, now_us))
        seconds = plant.time.request * request.games / usual / speed
        length, fails = self._rng.normal(1.0, LENGTH_SD), self._rng.random() < plant.troubles.selfplay_failure
        if fails:
            return Computed(seconds / 2, FlyballError("The modelled games broke off."))
        mean_length = plant.curve(key).rows_per_game * float(length)
        rows = max(1, round(request.games * mean_length * own_share(request, self._settings.config(key).players)))
        shard = ShardKey(digest("shard", job.id))
        corrupt, poor = severity_at(self._troubles.corrupt, now_us), self._world.poorness(key, now_us)
        truth = ShardTruth(
            rows=rows,
            flawed=max(corrupt, poor),
            temperature=request.temperature,
            unruly=severity_at(self._troubles.parity, now_us),
        )
        self._world.store(shard, truth)
        result: Json = {
            "shard": shard,
            "rows": rows,
            "games": request.games,
            "mean_length": mean_length,
            "truncated": 0,
            "seconds": seconds,
        }
        return Computed(seconds, result)


def own_share(request: SelfplayRequested, players: int) -> float:
    """Return the share of seats that are the model's own; only these give rows."""
    others = sum(
        lineup.games * sum(opponent != request.model for opponent in lineup.opponents) for lineup in request.lineups
    )
    return 1 - others / (request.games * players)


class Inspections:
    """Models ``app.play.inspection``.

    Flawed rows lower the score, as duplicates, cut-off games and lopsided outcomes do. Games that break the rules are
    found by replaying a sample.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng: Generator = stream(world.seed, "inspection")

    def __call__(self, job: Job[SelfplayComplete], _: int) -> Computed:
        """Inspect a shard."""
        settings, truth = self._world.plant.quality, self._world.shard(job.request.shard.key)
        broken = int(self._rng.binomial(settings.checked_games, BROKEN_GAMES * truth.unruly))
        sound = settings.healthy - (settings.healthy - WORST_SCORE) * truth.flawed
        score = min(1.0, max(0.0, sound + float(self._rng.normal()) * settings.noise_sd))
        result: Json = {
            "checked": settings.checked_games,
            "failures": [f"modelled difference {index}" for index in range(broken)],
            "score": score,
            "components": {"modelled": score},
        }
        return Computed(self._world.plant.time.inspection, result)


class Trainings:
    """Models ``app.learning.jobs``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = stream(world.seed, "training metrics")

    def __call__(self, job: Job[TrainingRequested], now_us: int) -> Computed:
        """Train a model."""
        request, key = job.request, job.cause.subject or ""
        flawed = sum(shard.rows * self._world.shard(shard.key).flawed for shard in request.shards)
        rows = sum(shard.rows for shard in request.shards)
        model = self._world.train(key, request, job.id, now_us)
        time = self._world.plant.time
        seconds = time.training + time.trained_row * rows * request.epochs
        if model is None:
            error = JobFailed(job.function, "TrainingDiverged", "the modelled update blew up", hint="", trace="")
            return Computed(seconds, error)
        initial = request.base_model is None
        result: Json = {
            "model": model,
            "parent": request.base_model,
            "step": 0 if initial else request.step + 1,
            "rows": rows,
            "metrics": None if initial else self._metrics(flawed / rows, request.learning_rate, seconds),
        }
        return Computed(seconds, result)

    def _metrics(self, flawed: float, learning_rate: float, seconds: float) -> Json:
        """Return plausible figures: flawed rows are harder to fit, a higher learning rate moves the policy further."""
        noise = self._rng.normal(0.0, 0.15, size=2)
        pace = learning_rate / self._world.plant.learning.learning_rate
        return {
            "policy_loss": -0.02,
            "value_loss": 0.25 * (1 + 2 * flawed) * float(2.0 ** noise[0]),
            "entropy": 1.0,
            "approx_kl": 0.02 * pace * (1 + flawed) * float(2.0 ** noise[1]),
            "clip_fraction": 0.1,
            "explained_variance": 0.6 * (1 - flawed),
            "seconds": seconds,
        }


class Gauntlets:
    """Models ``app.play.matches``: every game's result is drawn from the difference in true strength."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rngs: dict[str, Generator] = {}

    def __call__(self, job: Job[Any], _: int) -> Computed:
        """Play a gauntlet."""
        key, hero = job.cause.subject or "", job.request.model
        rng = self._rngs.setdefault(key, stream(self._world.seed, "gauntlets", key))
        opponents: tuple[Opponent, ...] = job.context["opponents"]
        games = sum(opponent.games for opponent in opponents)
        seconds = games * self._world.plant.time.rated_game
        if rng.random() < self._world.plant.troubles.evaluation_failure:
            return Computed(seconds / 2, FlyballError("The modelled gauntlet broke off."))
        players = job.parts[0]["config"]["players"]
        results = [self._match(key, hero, opponent, players, rng) for opponent in opponents]
        return Computed(seconds, {"results": results, "lost_games": 0, "seconds": seconds})

    def _match(self, key: str, hero: ModelHash, opponent: Opponent, players: int, rng: Generator) -> Json:
        curve = self._world.plant.curve(key)
        difference = self._world.difference(hero, opponent.model)
        if opponent.name == HEURISTIC:
            difference -= curve.heuristic
        wins, drawn, losses = played(difference, opponent.games, curve.draws, rng)
        scores: NDArray[np.float64] = rng.permutation(np.repeat((1.0, 0.5, 0.0), (wins, drawn, losses)))  # [G]
        return {
            "opponent": opponent.name,
            "opponent_model": opponent.model,
            "games": opponent.games,
            "wins": wins,
            "draws": drawn,
            "losses": losses,
            "truncated": 0,
            "distinct_games": opponent.games,
            "score": Rate.of(wins + drawn / 2, opponent.games),
            "rotations": count_rotations(scores, players),
        }


def played(difference: float, games: int, draws: float, rng: Generator) -> tuple[int, int, int]:
    """Draw wins, draws and losses of games between players whose strengths differ by ``difference`` Elo.

    The expected score is the logistic model's; ``draws`` is the share of drawn games between equals, and falls in
    proportion to the weaker side's chances. Games for more than two are drawn as if they were duels.
    """
    chance = expected_score(difference)
    drawn = draws * min(chance, 1 - chance)
    wins, ties, losses = rng.multinomial(games, (chance - drawn / 2, drawn, 1 - chance - drawn / 2))
    return int(wins), int(ties), int(losses)
