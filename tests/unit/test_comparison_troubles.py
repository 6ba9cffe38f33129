"""Planted troubles: effects on jobs and settings, and refusals."""

import asyncio
from pathlib import Path

import pytest

from flyball.app.comparison.troubles import TROUBLES, FaultyEngine, Planted
from flyball.app.comparison.virtual_time import VirtualLoop
from flyball.app.config import GAMES, RunSettings
from flyball.app.core import BadUsage
from flyball.app.engine import JobFailed

KEY, OTHER = "tic_tac_toe_2p", "connect_four_2p"
WORKERS = ("selfplay_worker@node1", "selfplay_worker@node2")
SETTINGS = RunSettings(configs=(GAMES[KEY], GAMES[OTHER]), selfplay_workers=WORKERS)


class Recorded:
    """An engine whose jobs take a second and have distinct results."""

    def __init__(self):
        self.specs = []

    async def run(self, function, spec, on_progress=None, deadline_seconds=None):
        self.specs.append(spec)
        await asyncio.sleep(1.0)
        return {"shard": f"{len(self.specs):064x}", "seconds": 1.0}

    async def close(self):
        pass


def spec(store: Path, model: str = "new") -> dict:
    return {"store": str(store), "config": {"key": KEY}, "model": model, "temperature": 1.0}


def played(name: str, *specs: dict, begins: float = 0.0):
    """Run jobs of a worker in trouble, one after another."""

    async def main():
        inner, found = Recorded(), []
        engine = FaultyEngine(inner, [(begins, TROUBLES[name])])
        for one in specs:
            try:
                result = await engine.run("play", one)
            except JobFailed as error:
                result = error
            found.append((result, asyncio.get_running_loop().time()))
        return found, inner.specs

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def test_troubles_of_workers_change_their_jobs(tmp_path):
    ((result, at),), _ = played("slow-worker", spec(tmp_path))
    assert at == result["seconds"] == pytest.approx(5.0)
    ((first, at), (second, later)), specs = played("failing-worker", spec(tmp_path), spec(tmp_path))
    assert isinstance(first, JobFailed)
    assert isinstance(second, JobFailed)
    assert 0 < at < later  # otherwise a loop that asks again at once would never end
    assert specs == []
    found, _ = played("copied-games", spec(tmp_path), spec(tmp_path), spec(tmp_path))
    assert len({result["shard"] for result, _ in found}) == 1
    _, specs = played("stale-model", spec(tmp_path, "old"), spec(tmp_path, "new"))
    assert [one["model"] for one in specs] == ["old", "old"]
    for begins, temperatures in ((0.0, [10.0, 10.0]), (1.0, [1.0, 10.0])):
        _, specs = played("random-moves", spec(tmp_path), spec(tmp_path), begins=begins)
        assert [one["temperature"] for one in specs] == temperatures


@pytest.mark.parametrize(
    ("name", "factor"), [("high-learning-rate", 30), ("low-learning-rate", 1 / 30), ("raised-learning-rate", 30)]
)
def test_wrong_learning_rate_of_one_configuration(name, factor):
    changed = Planted.parse(f"{name}={OTHER}", SETTINGS).changed(SETTINGS)
    assert changed.config(OTHER).learning_rate == pytest.approx(factor * GAMES[OTHER].learning_rate)
    assert changed.config(KEY) == GAMES[KEY]


def test_no_exploration_in_all_configurations():
    assert Planted.parse("dead-worker", SETTINGS).changed(SETTINGS) is SETTINGS
    changed = Planted.parse("no-exploration", SETTINGS).changed(SETTINGS)
    for one in changed.configs:
        assert one.selfplay.temperature == pytest.approx(0.1 * GAMES[one.key].selfplay.temperature)
        assert one.ppo.entropy_coef == pytest.approx(0.1 * GAMES[one.key].ppo.entropy_coef)


@pytest.mark.parametrize(
    ("text", "workers", "complaint"),
    [
        ("no-such", WORKERS, "There is no trouble 'no-such'; there are false-outcomes"),
        (f"dead-worker={KEY}", WORKERS, "is a worker's"),
        ("no-exploration=hex7_2p", WORKERS, "hex7_2p of 'no-exploration=hex7_2p' is not compared"),
        ("slow-worker", WORKERS[:1], "second worker"),
    ],
)
def test_unusable_troubles_are_refused(text, workers, complaint):
    with pytest.raises(BadUsage, match=complaint):
        Planted.parse(text, SETTINGS.replace(selfplay_workers=workers))
