"""The quality monitor deletes exactly the shards without further use."""

import pytest
from builders import intensity, training_failed, training_of, tuned
from driving import KEY, NEED, NEW, OLD, DrivenWorker, played, run_settings, scored, trained

from flyball.app.config import GAMES, RunSettings
from flyball.app.controllers.needs import most_rows
from flyball.app.controllers.state import state_of
from flyball.app.core import EventId
from flyball.app.events import (
    Payload,
    QualityDegraded,
    ShardRef,
    TrainingBlockedByQuality,
)
from flyball.app.play.inspection import COMPARED
from flyball.daemons.quality_monitor import STAYING, WINDOWS, InspectionRow, QualityMonitor

FIRST, SECOND, THIRD = "1" * 64, "2" * 64, "3" * 64
REPLAYING = RunSettings(configs=(GAMES[KEY].replace(replay_rows=1000),))
REFUSED = QualityDegraded(request_id="r1", worker="selfplay_worker@laptop", shard=FIRST, reason="parity: game 0")


@pytest.fixture
def replaying() -> DrivenWorker:
    return DrivenWorker(QualityMonitor, REPLAYING)


REFUSED = QualityDegraded(request_id="r1", worker="selfplay_worker@laptop", shard=FIRST, reason="parity: game 0")


@pytest.fixture
def monitor() -> DrivenWorker:
    return DrivenWorker(QualityMonitor)


def deliver(monitor: DrivenWorker, *shards: str, model: str = OLD) -> list[str]:
    numbers = [monitor.position + number for number in range(len(shards))]
    for number, shard in zip(numbers, shards, strict=True):
        monitor.feed(played(number, shard=shard, model=model))
    return [key for number in numbers for key in monitor.rows[f"r{number}"].discard]


def fit(monitor: DrivenWorker, *shards: str, model: str = OLD) -> None:
    deliver(monitor, *shards, model=model)
    for shard in shards:
        monitor.feed(scored(model=model, rows=9, shard=shard))


def ask(monitor: DrivenWorker, *shards: str, model: str = OLD) -> EventId:
    refs = (ShardRef(worker="selfplay_worker@laptop", key=key, rows=9, games=1, model=model, seed=1) for key in shards)
    return monitor.feed(training_of(*refs, model=model)).cause.id


def train(monitor: DrivenWorker, *shards: str, model: str = OLD) -> None:
    monitor.feed(trained().replace(request_id=ask(monitor, *shards, model=model)))


def deleted(monitor: DrivenWorker) -> list[str]:
    """Return the shards that are deleted once comparisons need none."""
    return deliver(monitor, *(f"{monitor.position + number:064x}" for number in range(STAYING + 1)))


@pytest.mark.parametrize("failed", [False, True], ids=["completed", "failed"])
def test_shards_are_deleted_when_the_training_on_them_has_ended(monitor: DrivenWorker, failed: bool) -> None:
    fit(monitor, FIRST, SECOND)
    request = ask(monitor, FIRST, SECOND)
    monitor.feed(trained())  # another request's result
    assert deleted(monitor) == []
    monitor.feed(training_failed(request, "diverged") if failed else trained().replace(request_id=request))
    assert deleted(monitor) == [FIRST, SECOND]
    assert deleted(monitor) == [], "once is enough"


def test_shards_of_a_replaced_request_are_deleted(monitor: DrivenWorker) -> None:
    fit(monitor, FIRST, SECOND)
    ask(monitor, FIRST, SECOND)
    ask(monitor, SECOND, THIRD)
    assert deleted(monitor) == [FIRST]


@pytest.mark.parametrize("searched", [False, True])
def test_shards_of_a_replaced_model_go_unless_searched(searched: bool) -> None:
    monitor = DrivenWorker(QualityMonitor, REPLAYING if searched else None)
    fit(monitor, FIRST, model=OLD)
    fit(monitor, SECOND, THIRD, model=NEW)
    assert deleted(monitor) == []
    ask(monitor, SECOND, model=NEW)
    assert deleted(monitor) == ([] if searched else [FIRST])
    assert [shard.key for shard in monitor.rows[KEY].shelf.fit] == ([FIRST, THIRD] if searched else [THIRD])


@pytest.mark.parametrize("verdict", [REFUSED, scored(0.1, shard=FIRST)], ids=["refused", "too poor"])
def test_what_may_not_be_trained_on_is_deleted(monitor: DrivenWorker, verdict: Payload) -> None:
    deliver(monitor, FIRST, SECOND)
    monitor.feed(verdict)
    assert deleted(monitor) == [FIRST]


def test_poor_shard_is_deleted_by_the_threshold_of_its_time(monitor: DrivenWorker) -> None:
    monitor.feed(tuned("quality_threshold", 0.5))
    deliver(monitor, FIRST, SECOND)
    monitor.feed(scored(0.5, shard=FIRST))
    monitor.feed(scored(0.49, shard=SECOND))
    assert deleted(monitor) == [SECOND]


def test_shard_is_not_deleted_before_its_inspection(monitor: DrivenWorker) -> None:
    deliver(monitor, FIRST, model=OLD)  # its model is already obsolete at delivery
    fit(monitor, SECOND, model=NEW)
    request = ask(monitor, SECOND, model=NEW)
    assert deleted(monitor) == []
    monitor.feed(REFUSED)
    monitor.feed(trained().replace(request_id=request))
    assert deleted(monitor) == [FIRST, SECOND]


def test_shard_delivered_twice_is_not_deleted_while_wanted(monitor: DrivenWorker) -> None:
    deliver(monitor, FIRST, FIRST)
    monitor.feed(REFUSED)
    monitor.feed(scored(rows=9, shard=FIRST))
    assert deleted(monitor) == []
    for wants in (deliver, ask):
        wants(monitor, FIRST)
        monitor.feed(REFUSED)
        assert deleted(monitor) == []


def test_shards_that_later_ones_are_compared_with_stay(monitor: DrivenWorker) -> None:
    assert STAYING >= COMPARED
    deliver(monitor, FIRST)
    monitor.feed(REFUSED)
    assert deliver(monitor, *(f"{number:064x}" for number in range(STAYING - 1))) == []
    assert deliver(monitor, SECOND) == []
    assert deliver(monitor, THIRD) == [FIRST]


WINDOW = most_rows(state_of({}, KEY), run_settings()) // (NEED // 4)
"""Number of shards that the trigger keeps if each has a quarter of a training's rows."""


def judge(monitor: DrivenWorker, count: int, model: str) -> list[str]:
    """Have a number of shards judged good; return their keys. Each has a quarter of a training's rows."""
    keys = [f"{monitor.position + number:064x}" for number in range(count)]
    for key in keys:
        monitor.feed(scored(rows=NEED // 4, model=model, shard=key))
    return keys


def test_shards_asked_for_stay_while_the_request_is_on_its_way(monitor: DrivenWorker) -> None:
    wanted = judge(monitor, WINDOW, OLD)
    judge(monitor, WINDOW, OLD)
    assert deleted(monitor) == []
    judge(monitor, 1, OLD)
    assert deleted(monitor) == wanted[:1]


def test_late_shards_of_a_model_left_behind_push_none_out(monitor: DrivenWorker) -> None:
    wanted = judge(monitor, WINDOW, NEW)
    late = judge(monitor, 3 * WINDOW, OLD)
    assert deleted(monitor) == late[:WINDOW]
    ask(monitor, *wanted, model=NEW)
    assert deleted(monitor) == late[WINDOW:]


@pytest.mark.parametrize(
    "decision", [TrainingBlockedByQuality(reason="parity"), intensity("paused")], ids=["blocked", "paused"]
)
@pytest.mark.parametrize("score", [0.4, 0.2, None], ids=["fit", "too poor", "refused"])
def test_a_weekend_without_training_fills_no_disk(monitor: DrivenWorker, decision, score: float | None) -> None:
    monitor.feed(decision)
    window = WINDOWS * WINDOW
    stored: set[str] = set()
    for minute in range(3000):
        key = f"{minute:064x}"
        stored.add(key)
        stored -= {*deliver(monitor, key)}
        request = f"r{monitor.position - 1}"
        refused = REFUSED.replace(request_id=request, shard=key)
        monitor.feed(refused if score is None else scored(score, rows=NEED // 4, shard=key, request=request))
        assert len(stored) <= window + STAYING + 1
    (left,) = monitor.rows.values()
    assert len(left.shelf.fit) == (window if score == 0.4 else 0)
    assert len(left.shelf.spent) <= STAYING + 1
    assert stored == {*(shard.key for shard in left.shelf.fit), *left.shelf.spent}
    assert stored >= {f"{minute:064x}" for minute in range(3000 - STAYING, 3000)}
    assert InspectionRow.from_json(left.to_json()) == left


def test_a_pause_may_last_longer_where_trainings_need_more() -> None:
    sizes = []
    for reduced in (2.0, 8.0):
        monitor = DrivenWorker(QualityMonitor, run_settings(trigger={"reduced": reduced}))
        for number in range(200):
            monitor.feed(scored(rows=NEED, shard=f"{number:064x}"))
        sizes.append(len(monitor.rows[KEY].shelf.fit))
    assert sizes == [8, 16]


def test_shards_are_kept_while_trainings_replay_them(replaying: DrivenWorker) -> None:
    """Trainings replay at most a quarter of all rows so far. This is one shard of four, and two of eight."""
    shards = [f"{number + 1000:064x}" for number in range(8)]
    gone = list[str]()
    for shard in shards:
        fit(replaying, shard)
        train(replaying, shard)
        gone += deleted(replaying)
    assert [shard for shard in gone if shard in shards] == shards[:6]


def test_shards_of_a_training_that_failed_are_deleted(replaying: DrivenWorker) -> None:
    fit(replaying, FIRST)
    replaying.feed(training_failed(ask(replaying, FIRST), "bad_data"))
    assert FIRST in deleted(replaying)


def test_late_searched_shards_fill_no_disk(replaying: DrivenWorker) -> None:
    """All models together keep no more shards than trainings need."""
    judge(replaying, WINDOW, OLD)
    judge(replaying, 3 * WINDOW, NEW)
    assert {shard.model for shard in replaying.rows[KEY].shelf.fit} == {NEW}
    assert len(replaying.rows[KEY].shelf.fit) == WINDOWS * WINDOW
