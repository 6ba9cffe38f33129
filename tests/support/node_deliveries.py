"""A cluster's shards, to measure how well a quarantine works. A good quarantine tells bad nodes from poor data."""

from heapq import heappop, heappush

from numpy.random import Generator

from flyball.app.config.feedback import NodeSettings
from flyball.app.controllers.bad_nodes import Delivered, NodeRow, NodeWatch

REQUEST_SECONDS = 900.0
HEALTHY, WORST = 0.97, 0.05
DAY = 86_400.0


def _episodes(rng: Generator, days: float, per_day: float, hours: float) -> list[tuple[float, float, float]]:
    """Draw troubles: begin and end in seconds, and the severity."""
    found, now = [], 0.0
    while True:
        now += rng.exponential(DAY / per_day)
        if now > days * DAY:
            return found
        length = rng.exponential(hours * 3600)
        found.append((now, now + length, rng.uniform(0.3, 1.0)))
        now += length


def _severity(episodes: list[tuple[float, float, float]], now: float) -> float:
    return max((severity for begin, end, severity in episodes if begin <= now < end), default=0.0)


def false_alarms_and_delays(
    rng: Generator,
    *,
    days: float,
    noise_sd: float,
    nodes: int = 36,
    configs: int = 12,
    poor_per_day: float = 0.15,
    corrupt_per_day: float = 0.03,
    settings: NodeSettings | None = None,
) -> tuple[int, int, list[int]]:
    """Simulate nodes that deliver shards, under the watch of the quarantine.

    The configuration of each shard is drawn at random. Configurations are poor for 4 hours on average, on all nodes;
    nodes are corrupt for 6 hours on average. Speeds differ as in ``plant.toml``. A quarantine ends as soon as the node
    is sound.

    Args:
        rng: decides everything.
        days: length of the simulation.
        noise_sd: standard deviation of a shard's score.
        nodes: number of nodes.
        configs: number of configurations.
        poor_per_day: spells of poor data of each configuration.
        corrupt_per_day: spells of each node.
        settings: of the watch.

    Returns the quarantines of sound nodes, the shards that sound nodes delivered, and for each noticed spell of a
    corrupt node the number of shards that it had delivered by then.
    """
    limits = settings or NodeSettings()
    poor = [_episodes(rng, days, poor_per_day, 4) for _ in range(configs)]
    corrupt = [_episodes(rng, days, corrupt_per_day, 6) if corrupt_per_day else [] for _ in range(nodes)]
    speeds = 2.0 ** rng.normal(0, 0.3, nodes)
    rows: dict[str, NodeRow] = {}

    def known(worker: str) -> NodeRow:
        return rows.get(worker, NodeRow())

    delivered: list[tuple[Delivered, ...]] = [()] * configs
    alarms, shards, delays, streak = 0, 0, [], [0] * nodes
    due = [(rng.uniform(0, REQUEST_SECONDS), node) for node in range(nodes)]
    due.sort()
    while due and (now := due[0][0]) < days * DAY:
        _, node = heappop(due)
        heappush(due, (now + REQUEST_SECONDS / speeds[node], node))
        name, bad = str(node), _severity(corrupt[node], now)
        if rows.get(name, NodeRow()).quarantines:
            if not bad:
                rows[name] = NodeRow()
            continue
        config = int(rng.integers(configs))
        flawed = max(bad, _severity(poor[config], now))
        score = HEALTHY - (HEALTHY - WORST) * flawed + rng.normal(0, noise_sd)
        watch = NodeWatch(limits, str(config), delivered[config], known, round(now * 1e6))
        watch.score(name, min(1.0, max(0.0, score)))
        delivered[config] = watch.delivered
        rows.update(watch.changed)
        streak[node] = streak[node] + 1 if bad else 0
        shards += not bad
        if watch.payloads and bad:
            delays.append(streak[node])
        alarms += bool(watch.payloads) and not bad
    return alarms, shards, delays
