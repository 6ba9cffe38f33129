"""Inspections of the quality monitor: both sides follow from the journal."""

import pytest
from driving import KEY, OLD, OTHER_KEY, DrivenWorker, played, run_settings

from flyball.app.engine import JobFailed
from flyball.app.events import QualityDegraded, QualityScoreUpdated
from flyball.app.play.inspection import RepeatedShard
from flyball.daemons import quality_monitor
from flyball.daemons.jobs import Job
from flyball.daemons.quality_monitor import QualityMonitor


@pytest.fixture
def monitor() -> DrivenWorker:
    return DrivenWorker(QualityMonitor, run_settings(KEY, OTHER_KEY))


def shard(number: int) -> str:
    return f"{number:064x}"


def deliver(monitor: DrivenWorker, number: int, key: str = KEY) -> None:
    monitor.feed(played(monitor.position, shard=shard(number)), key)


def judge(monitor: DrivenWorker, job: Job) -> None:
    request = job.request
    verdict = QualityScoreUpdated(
        request_id=request.request_id, shard=request.shard, score=0.9, components={}, seconds=0.1
    )
    monitor.feed(verdict, job.cause.subject)


def test_shard_is_compared_with_earlier_of_its_configuration(monitor: DrivenWorker) -> None:
    for number, key in enumerate([KEY, OTHER_KEY, KEY, KEY]):
        deliver(monitor, number, key)
    assert [(job.parts[0]["shard"], job.parts[0]["earlier"]) for job in monitor.jobs()] == [
        (shard(0), []),
        (shard(1), []),
        (shard(2), [shard(0)]),
        (shard(3), [shard(0), shard(2)]),
    ]
    assert {job.parts[0]["model"] for job in monitor.jobs()} == {OLD}


def test_no_more_than_the_latest_are_remembered(monitor: DrivenWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality_monitor, "REMEMBERED", 20)
    for number in range(25):
        deliver(monitor, number)
        judge(monitor, *monitor.jobs())
    deliver(monitor, 999)
    (job,) = monitor.jobs()
    assert job.parts[0]["earlier"] == [shard(number) for number in range(5, 25)]


def test_shard_delivered_before_is_unfit_but_no_parity_failure(monitor: DrivenWorker) -> None:
    """A repeated shard is no fault of the rules. A parity failure would block training."""
    deliver(monitor, 0)
    (job,) = monitor.jobs()
    error = JobFailed(
        job.function, "RepeatedShard", "it was delivered before", hint="", trace="", code=RepeatedShard.code
    )
    (verdict,) = monitor.worker.failed(job, error)
    assert isinstance(verdict, QualityDegraded)
    assert verdict.reason == "RepeatedShard: it was delivered before"
    monitor.feed(verdict)
    assert not monitor.jobs()
