"""Failed events: skipped by the reducer that fails, and no other."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from builders import configured, recorded
from driving import KEY, OLD, run_settings
from generated_run import generated, hasty
from replayed import replay

from flyball.app.config import RunSettings
from flyball.app.controllers import LossWatch
from flyball.app.controllers.fold import Fold
from flyball.app.events import (
    Emission,
    Event,
    EventVoided,
    Payload,
    QualityDegraded,
    RegressionCleared,
    Row,
    RunConfigured,
    Step,
    TrainingCompleted,
    originate,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.events.frames import Frame, frame_of, seal
from flyball.app.journal.history import last_settings
from flyball.app.journal.memory import MemoryJournal
from flyball.app.replay.replaying import controllers, state_hash

CONFIGURED = configured(run_settings())
CLEARED = RegressionCleared(model=OLD)
DEGRADED = QualityDegraded(request_id="r", worker="selfplay_worker@laptop", shard="c" * 64, reason="x")


class Count(Row, frozen=True):
    count: int


class Counting:
    name: ClassVar[str] = "Counting"
    row: ClassVar[type[Count]] = Count
    reads: ClassVar[frozenset[type[Payload]]] = frozenset({QualityDegraded})
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({RegressionCleared})

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings

    def step(self, rows: Mapping[str, Count], event: Event[Payload]) -> Step[Count]:
        counted = Count(count=rows[event.subject].count + 1 if event.subject in rows else 1)
        return Step({event.subject: counted}, (Emission(CLEARED),))


class Picky(Counting):
    name: ClassVar[str] = "Picky"

    def step(self, rows: Mapping[str, Count], event: Event[Payload]) -> Step[Count]:
        if isinstance(event.data, QualityDegraded) and event.data.shard == "0" * 64:
            raise ZeroDivisionError("no such shard")
        return super().step(rows, event)


class Mute(Counting):
    """Counts, and emits an undeclared type."""

    name: ClassVar[str] = "Mute"
    emits: ClassVar[frozenset[type[Payload]]] = frozenset()


class Settled(Counting):
    """Counts the settings that it is given."""

    name: ClassVar[str] = "Settled"
    reads: ClassVar[frozenset[type[Payload]]] = frozenset({RunConfigured})
    emits: ClassVar[frozenset[type[Payload]]] = frozenset()

    def step(self, rows: Mapping[str, Count], event: Event[Payload]) -> Step[Count]:
        return Step({KEY: Count(count=rows[KEY].count + 1 if rows else 1)})


POISON = DEGRADED.replace(shard="0" * 64)


def count_of(fold: Fold, reducer: type[Counting]) -> Any:
    row = fold.rows(reducer.name).get(KEY)
    return row and row.count


def test_fold_failing_reducer_keeps_rows_and_others_go_on(record):
    fold = Fold((Picky, Mute, Counting))
    events = [record(CONFIGURED), record(DEGRADED, KEY), record(POISON, KEY), record(DEGRADED, KEY)]
    outcome = fold.feed(events)
    (failure,) = [failure for failure in outcome.failures if failure.by == "Picky"]
    assert failure.event == events[2]
    assert failure.error.startswith("ZeroDivisionError: no such shard (test_fold_failures.py, line ")
    undeclared = [failure.event for failure in outcome.failures if failure.by == "Mute"]
    assert undeclared == events[1:], "it may not emit the type"
    assert [count_of(fold, reducer) for reducer in (Picky, Mute, Counting)] == [2, None, 3]
    assert len(outcome.conclusions) == 5


@pytest.mark.parametrize(
    ("settings", "source"),
    [({"configs": 3}, "broker@laptop"), ({"nonsense": 1}, "broker@laptop"), ({}, "cli@laptop")],
    ids=str,
)
def test_fold_unusable_settings_leave_those_before_in_force(record, settings, source):
    broken = record(RunConfigured(run_id="run", settings=settings))
    broken = Event(broken.envelope, broken.sequence, broken.recorded_us, source)
    fold = Fold((Counting, Settled))
    outcome = fold.feed([record(CONFIGURED), broken, record(DEGRADED, KEY)])
    assert fold.settings == run_settings()
    assert [failure.by for failure in outcome.failures] == ["host"]
    assert count_of(fold, Counting) == 1
    assert count_of(fold, Settled) == 1, "no reducer is given settings that nobody can use"


def test_last_settings_unusable_ones_are_passed_over():
    journal = MemoryJournal()
    for settings, source in ((run_settings(), "broker@laptop"), (RunSettings(), "cli@laptop")):
        event = originate(configured(settings), event_id=source, time=EPOCH)
        frame = Frame.parse(frame_of([event], producer=source, epoch=1, base=0))
        journal.append([seal(frame, first=journal.head + 1, recorded_us=0, source=source)])
    assert last_settings(journal) == run_settings()


def test_fold_voided_event_is_given_to_nobody(record):
    events = [record(CONFIGURED), record(DEGRADED, KEY), record(POISON, KEY)]
    void = record(EventVoided(position=3, reason="no such shard"))
    fold = Fold((Counting,))
    fold.feed([*events, void])
    assert (count_of(fold, Counting), fold.to_void) == (2, {3})
    again = Fold((Counting,), voided=fold.to_void)
    again.feed([*events, void])
    assert (count_of(again, Counting), again.to_void) == (1, set())


def test_replay_voided_event_is_left_out_and_no_difference():
    """Decisions taken with the event stay as they are. The state is that of a run without the event."""
    run = list(generated(1500, seed=3, settings=hasty()))
    voided = next(event for event in run[700:] if isinstance(event.data, TrainingCompleted))
    data = EventVoided(position=voided.sequence, reason="bad model")
    void = recorded(data, len(run) + 1, seconds=run[-1].recorded_us / 1e6, source="cli@laptop")
    report, before = replay([*run, void]), replay(run)
    assert before.differing == report.differing == 0
    assert report.voided == (voided.sequence,)
    assert report.state_hash != before.state_hash
    without = Fold(controllers(), voided={voided.sequence})
    without.feed(run)
    assert report.state_hash == state_hash(without.tables())


def test_replay_failing_reducer_is_named(monkeypatch):
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("no")

    run = list(generated(300, seed=3, settings=hasty()))
    trained = [event.sequence for event in run if isinstance(event.data, TrainingCompleted)]
    monkeypatch.setattr(LossWatch, "step", fail)
    report = replay(run)
    assert [(one.position, one.by) for one in report.unfolded] == [(position, "LossWatch") for position in trained]
