"""The bound of a store: self-play waits, and blobs are deleted."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import AsyncMock

from bus_rig import StepClock

from flyball.app.config import GAMES, NetworkSettings, RunSettings
from flyball.app.replay.reachability import oldest
from flyball.app.store import FileStore, StoredBlob
from flyball.daemons.bounded_engine import MEASURE_SECONDS, BoundedEngine
from flyball.daemons.forecast import forecast
from flyball.daemons.upkeep import PAUSE_SECONDS, PeriodicCommand


async def test_full_store_takes_the_engines_capacity(tmp_path: Path) -> None:
    """Capacity returns once the store is well below its bound."""
    store, clock, inner = FileStore(tmp_path), StepClock(), AsyncMock()
    inner.capacity.return_value = None
    engine = BoundedEngine(inner, 3, store, 1000, clock)
    store.put(bytes(900))
    found, large = [await engine.capacity()], store.put(b"x" * 100)
    for change in (
        lambda: None,
        lambda: store.delete(large),
        lambda: store.put(b"y" * 60),
        lambda: store.put(b"z" * 50),
    ):
        change()
        clock.seconds += MEASURE_SECONDS
        found.append(await engine.capacity())
    assert found == [3, 0, 3, 3, 0]


async def test_bounded_engine_keeps_the_capacity_of_a_cluster(tmp_path: Path) -> None:
    inner = AsyncMock()
    inner.capacity.return_value = 7
    assert await BoundedEngine(inner, 1, FileStore(tmp_path), 1000, StepClock()).capacity() == 7


def test_program_starts_its_command_every_ten_minutes(tmp_path: Path) -> None:
    clock, started = StepClock(), tmp_path / "started"
    program = f"open({str(started)!r}, 'a').write('x')"
    command = (sys.executable, "-c", program)
    kept = PeriodicCommand("making room", command, tmp_path / "errors", clock, wait_seconds=PAUSE_SECONDS)
    for _ in range(2):
        kept.look()
        assert kept.child is None
        clock.seconds += PAUSE_SECONDS / 2
    kept.look()
    kept.child.wait(60)
    assert started.read_text() == "x"
    kept.close()
    clock = StepClock()
    kept = PeriodicCommand("making room", (), tmp_path / "errors", clock)
    clock.seconds += 1e9
    kept.look()
    assert kept.child is None


def test_forecast_and_deletion_follow_sizes() -> None:
    def expected(**changes: object) -> int:
        config = GAMES["tic_tac_toe_2p"].replace(**changes)
        return forecast(RunSettings(configs=(config,)))["tic_tac_toe_2p"]

    small = expected(rows_per_training=1000, network=NetworkSettings(hidden=(8,)))
    assert expected(rows_per_training=100_000, network=NetworkSettings(hidden=(8,))) > 2 * small
    # 64 members with two moments each: 27 x 512 + 512 x 9 weights are at least 18,432 numbers of 4 bytes
    assert expected(rows_per_training=1000, network=NetworkSettings(hidden=(512,))) - small > 64 * 3 * 4 * 18_000
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    spare = tuple(StoredBlob(str(age), 10, begun - timedelta(days=age)) for age in (1, 3, 2))
    assert [one.key for one in oldest(spare, 11)] == ["3", "2"]
    assert oldest(spare, 0) == ()
