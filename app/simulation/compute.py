"""Outcomes of trainings, gauntlets and distributions, computed from the truth."""

from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from app.core import HEURISTIC, FlyballError, ModelHash, Rate, expected_score
from app.engine import JobFailed
from app.evaluation import Opponent, count_rotations
from app.events import TrainingRequested
from app.runtime.work import Job, Json
from app.simulation.stations import Computed
from app.simulation.troubles import stream
from app.simulation.world import World

DIVERGED = "TrainingDiverged"


class Trainings:
    """Models ``app.training.job``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = stream(world.seed, "training metrics")

    def __call__(self, job: Job[TrainingRequested], now_us: int) -> Computed:
        """Train a model."""
        request, key = job.request, job.cause.subject or ""
        flawed = sum(shard.rows * self._world.shard(shard.key).flawed for shard in request.shards)
        rows = sum(shard.rows for shard in request.shards)
        model = self._world.train(key, request, job.id, now_us)
        seconds = self._seconds(rows, request.epochs)
        if model is None:
            error = JobFailed(job.function, DIVERGED, "the modelled update blew up", hint="", trace="")
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

    def _seconds(self, rows: int, epochs: int) -> float:
        time = self._world.plant.time
        return time.training + time.trained_row * rows * epochs

    def _metrics(self, flawed: float, learning_rate: float, seconds: float) -> Json:
        """Return plausible figures; flawed rows are harder to fit, a higher learning rate moves the policy further."""
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
    """Models ``app.arena.job``: every game's result is drawn from the difference in true strength."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rngs: dict[str, Generator] = {}

    def __call__(self, job: Job[Any], now_us: int) -> Computed:  # noqa: ARG002 - what all models are given
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
            "rotations": count_rotations(shuffled(wins, drawn, losses, rng), players),
        }


def shuffled(wins: int, draws: int, losses: int, rng: Generator) -> NDArray[np.float64]:
    """Return the scores of independent games [G] in the order in which they happened to be played."""
    return rng.permutation(np.repeat((1.0, 0.5, 0.0), (wins, draws, losses)))


def played(difference: float, games: int, draws: float, rng: Generator) -> tuple[int, int, int]:
    """Draw wins, draws and losses of games between players whose strengths differ by ``difference`` Elo.

    The expected score is the logistic model's; ``draws`` is the share of drawn games between equals, and falls in
    proportion to the weaker one's chances. Games for more than two are drawn as if they were duels.
    """
    chance = expected_score(difference)
    drawn = draws * min(chance, 1 - chance)
    wins, ties, losses = rng.multinomial(games, (chance - drawn / 2, drawn, 1 - chance - drawn / 2))
    return int(wins), int(ties), int(losses)
