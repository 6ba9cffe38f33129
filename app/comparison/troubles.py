"""Troubles that a comparison plants.

A trouble is a worker that does wrong, or a configuration with bad settings.

No daemon knows of them. A worker's trouble lies in its engine, where a broken node's would lie; a configuration's is in
the settings that RUN_CONFIGURED records, where an operator's mistake would be.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from flyball.app.config import GameConfig, RunSettings
from flyball.app.core import BadUsage, ShardKey
from flyball.app.engine import Engine, JobFailed, JsonObject, Report
from flyball.app.scenarios.bad_data import falsify
from flyball.app.store import FileStore, get_shard, put_shard

Play = Callable[[JsonObject], Awaitable[JsonObject]]
Memory = dict[str, JsonObject]
"""The first job or result of each configuration, by its key. Faults that repeat it need it."""

Fault = Callable[[Play, Memory, JsonObject], Awaitable[JsonObject]]
"""Function that does a worker's job wrongly. It receives the true job, the fault's memory, and the job's spec."""

WRONG = 30.0
"""Factor by which a learning rate is too high or too low."""

ALMOST_RANDOM = 10.0
"""Sampling temperature, the highest, at which a worker plays almost at random."""

TIMID = 0.1
"""Factor of the sampling temperature and the entropy's weight for a configuration that does not explore."""

SLOWNESS = 5.0
"""Time that a slow worker takes, as a multiple of the usual."""

FAILURE_SECONDS = 1.0
"""Time until a failing worker's request fails."""


async def _false_outcomes(play: Play, _: Memory, spec: JsonObject) -> JsonObject:
    result = await play(spec)
    store, honest = FileStore(Path(spec["store"])), ShardKey(result["shard"])
    false = put_shard(store, falsify(get_shard(store, honest)))
    store.delete(honest)
    return {**result, "shard": false}


async def _copied_games(play: Play, memory: Memory, spec: JsonObject) -> JsonObject:
    result = await play(spec)
    first = memory.setdefault(spec["config"]["key"], result)
    if first["shard"] != result["shard"]:
        FileStore(Path(spec["store"])).delete(result["shard"])
    return first


async def _stale_model(play: Play, memory: Memory, spec: JsonObject) -> JsonObject:
    first = memory.setdefault(spec["config"]["key"], spec)
    return await play({**spec, "model": first["model"]})


async def _random_moves(play: Play, _: Memory, spec: JsonObject) -> JsonObject:
    return await play({**spec, "temperature": ALMOST_RANDOM})


async def _slow(play: Play, _: Memory, spec: JsonObject) -> JsonObject:
    loop = asyncio.get_running_loop()
    began = loop.time()
    result = await play(spec)
    await asyncio.sleep((SLOWNESS - 1) * (loop.time() - began))
    return {**result, "seconds": loop.time() - began}


async def _failing(_: Play, __: Memory, ___: JsonObject) -> JsonObject:
    await asyncio.sleep(FAILURE_SECONDS)
    raise JobFailed("play", "OSError", "no space left on device", hint="Planted by flyball compare.", trace="")


def _learning_rate(factor: float) -> Callable[[GameConfig], GameConfig]:
    return lambda config: config.replace(learning_rate=min(1.0, factor * config.learning_rate))


def _timid(config: GameConfig) -> GameConfig:
    selfplay = config.selfplay.replace(temperature=TIMID * config.selfplay.temperature, opening_plies=0)
    return config.replace(selfplay=selfplay, ppo=config.ppo.replace(entropy_coef=TIMID * config.ppo.entropy_coef))


@dataclass(frozen=True, slots=True)
class TroubleKind:
    """A kind of trouble.

    Attributes:
        purpose: the trouble in one line.
        begins: share of the run after which it begins.
        fault: what the last self-play worker does wrong; ``None`` if its trouble is another.
        dies: the last self-play worker falls silent.
        change: changes the settings of a configuration; ``None`` for a trouble of a worker.
    """

    purpose: str
    begins: float = 0.1
    fault: Fault | None = None
    dies: bool = False
    change: Callable[[GameConfig], GameConfig] | None = None


TROUBLES: Mapping[str, TroubleKind] = {
    "false-outcomes": TroubleKind("a worker's games have false outcomes", fault=_false_outcomes),
    "copied-games": TroubleKind("a worker delivers the same games again and again", fault=_copied_games),
    "stale-model": TroubleKind("a worker plays with an old model", fault=_stale_model),
    "random-moves": TroubleKind("a worker plays almost at random", fault=_random_moves),
    "slow-worker": TroubleKind(f"a worker takes {SLOWNESS:g} times as long", fault=_slow),
    "failing-worker": TroubleKind("a worker's requests fail", fault=_failing),
    "dead-worker": TroubleKind("a worker falls silent", begins=0.25, dies=True),
    "high-learning-rate": TroubleKind(
        f"a learning rate {WRONG:g} times too high",
        begins=0.0,
        change=_learning_rate(WRONG),
    ),
    "low-learning-rate": TroubleKind(
        f"a learning rate {WRONG:g} times too low",
        begins=0.0,
        change=_learning_rate(1 / WRONG),
    ),
    "raised-learning-rate": TroubleKind(
        f"a learning rate raised {WRONG:g} times after a third of the run",
        begins=1 / 3,
        change=_learning_rate(WRONG),
    ),
    "no-exploration": TroubleKind("self-play without exploration", begins=0.0, change=_timid),
}
"""All kinds of trouble, by name."""


class Planted(NamedTuple):
    """A trouble of a comparison, which changes the settings of configuration ``key``, or of all (None)."""

    trouble: TroubleKind
    key: str | None

    @classmethod
    def parse(cls, text: str, settings: RunSettings) -> Self:
        """Read ``NAME`` or ``NAME=CONFIGURATION``. Raises ``BadUsage``."""
        name, _, key = text.partition("=")
        trouble = TROUBLES.get(name)
        if trouble is None:
            raise BadUsage(f"There is no trouble {name!r}; there are {', '.join(TROUBLES)}.")
        if key and trouble.change is None:
            raise BadUsage(f"{name} is a worker's, not a configuration's: leave ={key} out.")
        if key and key not in settings:
            raise BadUsage(f"{key} of {text!r} is not compared; {', '.join(sorted(settings.by_key))} are.")
        if trouble.change is None and len(settings.selfplay_workers) < 2:
            raise BadUsage(f"{name} needs a second worker beside the one in trouble: give --nodes 2 or more.")
        return cls(trouble, key or None)

    def changed(self, settings: RunSettings) -> RunSettings:
        """Return the settings with the trouble's change."""
        change = self.trouble.change
        if change is None:
            return settings
        configs = (change(config) if self.key in (None, config.key) else config for config in settings.configs)
        return settings.replace(configs=tuple(configs))


class FaultyEngine:
    """The engine of a worker in trouble.

    Args:
        engine: does the jobs.
        troubles: each with the time of its beginning in seconds of the loop.
    """

    def __init__(self, engine: Engine, troubles: Iterable[tuple[float, TroubleKind]]) -> None:
        self._engine = engine
        self._faults = [(begins, trouble.fault, Memory()) for begins, trouble in troubles if trouble.fault is not None]

    async def capacity(self) -> int | None:
        """See ``Engine.capacity``."""
        return await self._engine.capacity()

    async def run(
        self,
        function: str,
        spec: JsonObject,
        on_progress: Report | None = None,
        deadline_seconds: float | None = None,
    ) -> JsonObject:
        """See ``Engine.run``."""

        async def play(job: JsonObject) -> JsonObject:
            return await self._engine.run(function, job, on_progress, deadline_seconds)

        now = asyncio.get_running_loop().time()
        played: Play = play
        for begins, fault, memory in self._faults:
            if now >= begins:
                played = partial(fault, played, memory)
        return await played(spec)

    async def close(self) -> None:
        """See ``Engine.close``."""
        await self._engine.close()
