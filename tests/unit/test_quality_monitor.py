"""What the quality monitor has inspected, and against what: follows from the journal alone."""

from datetime import timedelta
from functools import partial

from driving import KEY, OLD, OTHER_KEY, run_settings

from app.core import derive_id
from app.engine import JobFailed
from app.events import (
    Event,
    Payload,
    QualityDegraded,
    QualityScoreUpdated,
    RunConfigured,
    SelfplayComplete,
    ShardRef,
    originate,
)
from app.events.envelope import EPOCH
from app.runtime.fold import Fold
from app.runtime.work import Job, Place, QualityMonitor
from app.runtime.work.quality import REMEMBERED

SETTINGS = run_settings(KEY, OTHER_KEY)


class Monitor:
    """A quality monitor in a fold."""

    def __init__(self) -> None:
        self.fold = Fold((partial(QualityMonitor, place=Place("quality_monitor@laptop", "laptop", "store")),))
        self.position = 0
        self.feed(RunConfigured(run_id="r", settings=SETTINGS.model_dump(mode="json")), key=None)

    def feed(self, data: Payload, key: str | None = KEY) -> None:
        self.position += 1
        time = EPOCH + timedelta(seconds=self.position)
        envelope = originate(data, event_id=derive_id("test", self.position), time=time, subject=key)
        self.fold.feed([Event(envelope, self.position, self.position * 10**6, "test@laptop")])

    def deliver(self, shard: str, key: str = KEY) -> None:
        """Deliver a shard, each time for another request."""
        number = self.position
        ref = ShardRef(key=shard, rows=9, games=1, model=OLD, seed=number)
        played = SelfplayComplete(
            request_id=f"r{number}",
            worker="selfplay_worker@laptop",
            shard=ref,
            opponents=(),
            temperature=1.0,
            mean_length=9.0,
            truncated_games=0,
            seconds=1.0,
        )
        self.feed(played, key)

    def jobs(self) -> list[Job]:
        monitor = self.fold.reducers[0]
        rows = self.fold.rows(QualityMonitor.name)
        return list(monitor.jobs({key: row for key, row in rows.items() if row.cause}))

    def judged(self, job: Job) -> None:
        played = job.request
        verdict = QualityScoreUpdated(request_id=played.request_id, shard=played.shard, score=0.9, components={})
        self.feed(verdict, job.cause.subject)


def shard(number: int) -> str:
    return f"{number:064x}"


def test_a_shard_is_compared_with_those_of_its_configuration_that_came_before() -> None:
    monitor = Monitor()
    for number, key in enumerate([KEY, OTHER_KEY, KEY, KEY]):
        monitor.deliver(shard(number), key)
    assert [(job.spec["shard"], job.spec["earlier"]) for job in monitor.jobs()] == [
        (shard(0), []),
        (shard(1), []),
        (shard(2), [shard(0)]),
        (shard(3), [shard(0), shard(2)]),
    ]
    assert {job.spec["model"] for job in monitor.jobs()} == {OLD}


def test_what_came_before_is_remembered_when_it_has_its_verdict() -> None:
    monitor = Monitor()
    monitor.deliver(shard(0))
    monitor.judged(*monitor.jobs())
    assert monitor.jobs() == []
    monitor.deliver(shard(0))
    (job,) = monitor.jobs()
    assert job.spec["earlier"] == [shard(0)]


def test_no_more_than_the_latest_are_remembered() -> None:
    monitor = Monitor()
    for number in range(REMEMBERED + 5):
        monitor.deliver(shard(number))
        monitor.judged(*monitor.jobs())
    monitor.deliver(shard(999))
    (job,) = monitor.jobs()
    assert job.spec["earlier"] == [shard(number) for number in range(5, REMEMBERED + 5)]


def test_a_shard_that_was_delivered_before_is_unfit_and_says_nothing_of_parity() -> None:
    """A parity failure would block training; that somebody sent a shard twice is no fault of the rules."""
    monitor = Monitor()
    monitor.deliver(shard(0))
    (job,) = monitor.jobs()
    error = JobFailed(job.function, "RepeatedShard", "it was delivered before", hint="", trace="")
    (verdict,) = monitor.fold.reducers[0].failed(job, error)
    assert isinstance(verdict, QualityDegraded)
    assert "delivered before" in verdict.reason
    monitor.feed(verdict)
    assert monitor.jobs() == []
