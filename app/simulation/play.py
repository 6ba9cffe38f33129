"""Outcomes of self-play and inspection, computed from the truth."""

from numpy.random import Generator

from app.config import RunSettings
from app.core import FlyballError, ShardKey
from app.events import SelfplayComplete, SelfplayRequested
from app.runtime.work import Job, Json
from app.simulation.stations import Computed
from app.simulation.strength import ShardTruth
from app.simulation.troubles import NodeTroubles, severity_at, stream
from app.simulation.world import World, digest

SLOWEST = 0.2
"""Speed that the severest slowness leaves."""

WORST_SCORE = 0.05
"""Quality score of a shard that is nothing but flawed rows."""

BROKEN_GAMES = 0.3
"""Share of games that do not replay, in the severest parity trouble."""

AT_ONCE_SECONDS = 1.0
"""Time until a request fails on a failing node."""

LENGTH_SD = 0.03
"""Relative standard deviation of a shard's number of rows."""


class NodePlay:
    """Models ``app.selfplay.job`` on one node, with its speed and its troubles."""

    def __init__(self, world: World, settings: RunSettings, node: str, troubles: NodeTroubles) -> None:
        self._world, self._settings, self._troubles = world, settings, troubles
        self._rng: Generator = stream(world.seed, "play", node)
        self._speed = float(2.0 ** (self._rng.normal() * world.plant.cluster.node_speed_sd))

    def __call__(self, job: Job[SelfplayRequested], now_us: int) -> Computed:
        """Play games into a shard; the truth about it is kept in the world."""
        if severity_at(self._troubles.failing, now_us):
            return Computed(AT_ONCE_SECONDS, FlyballError("The modelled node fails."))
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
    """Return the share of all seats that are the model's own: those give rows."""
    others = sum(
        lineup.games * sum(opponent != request.model for opponent in lineup.opponents) for lineup in request.lineups
    )
    return 1 - others / (request.games * players)


class Inspections:
    """Models ``app.selfplay.inspection``: flawed rows lower the score, as duplicates, cut-off games and lopsided
    outcomes do; games that break the rules are found by replaying a sample.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng: Generator = stream(world.seed, "inspection")

    def __call__(self, job: Job[SelfplayComplete], now_us: int) -> Computed:  # noqa: ARG002 - what all models are given
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
