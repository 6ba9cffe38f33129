"""Shipped journals are restored, whatever the journal and its shipper went through (ADR-042)."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from archives import record_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import examples
from shipped import Killed, MemoryObjects, raws, shipper

from flyball.app.events import EventVoided, RunConfigured
from flyball.app.events.frames import DeadLetter, Record
from flyball.app.journal import SqliteJournal, SqliteJournalReader, shipping
from flyball.app.journal.archiving import archive
from flyball.app.journal.ports import Snapshot
from flyball.app.journal.restoring import restore
from flyball.app.journal.shipped_parts import parse_parts
from flyball.app.journal.snapshots import write_snapshot

KINDS = {1: RunConfigured.event_type, 40: EventVoided.event_type, 150: RunConfigured.event_type}

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 12)),
        st.tuples(st.just("archive"), st.integers(0, 200)),
        st.tuples(st.sampled_from(["adopt", "trim", "dead_letter", "restart"]), st.just(0)),
        st.tuples(st.sampled_from(["forget", "lose"]), st.integers(0, 200)),
        st.tuples(st.just("ship"), st.none() | st.integers(0, 8)),
    ),
    min_size=20,  # otherwise most lists have five steps
    max_size=40,
)


@contextmanager
def small_batches() -> Iterator[None]:
    """Merge three batches of a level, and count one with 400 bytes as full."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipping, "FAN", 3)
        patch.setattr(shipping, "BATCH_BYTES", 400)
        yield


class Rig:
    """A journal, its shipper, and what was shipped. The journal's records are kept, because it may forget them."""

    def __init__(self, new_folder, looks: bool) -> None:
        self.new_folder, self.looks = new_folder, looks
        self.path, self.objects, self.shipped = new_folder("run") / "journal.sqlite", MemoryObjects(), 0
        self.records, self.is_lost = list[Record](), False
        self.journal = SqliteJournal(self.path)
        self.restart()

    def append(self, count: int) -> None:
        for at in range(self.journal.head + 1, self.journal.head + 1 + 3 * count, 3):
            self.records.append(record_of(at, [b"x" * (at % 50), b"%d" % at, b""], kinds=KINDS))
            self.journal.append(self.records[-1:])

    def archive(self, until: int) -> None:
        archive(self.path, until)

    def adopt(self, _: int) -> None:
        self.journal.adopt()

    def trim(self, _: int) -> None:
        self.journal.maintain()

    def dead_letter(self, _: int) -> None:
        self.journal.append(dead_letters=[DeadLetter(self.journal.head, "a", "b", "why", b"{}")])

    def forget(self, until: int) -> None:
        """Delete archived events for good, after a snapshot."""
        if head := self.journal.head:
            write_snapshot(self.journal.archive.folder, Snapshot(head, {}), self.journal.head_at(head))
            self.journal.forget(1_000_000 * until)

    def lose(self, number: int) -> None:
        """Lose an object. The next shipper notices it, or the same one at its next look."""
        if names := sorted(self.objects.content):
            del self.objects.content[names[number % len(names)]]
            self.is_lost = True
            self.restart()

    def restart(self, _: int = 0) -> None:
        self.shipper = shipper(self.path, self.objects, self.looks)

    def ship(self, writes: int | None = None) -> None:
        """Ship; after some writes, the shipper is killed and what was shipped is restored."""
        self.objects.writes_left = writes
        try:
            self.shipper.ship()
            self.is_lost = False
        except Killed:
            self.shipped = max(self.shipped, self.shipper.shipped.position)
            self.restart()
        self.shipped = max(self.shipped, self.shipper.shipped.position)
        self.objects.writes_left = None
        if self.shipped and writes is not None and not self.is_lost:
            self.check()

    def check(self) -> None:
        target = self.new_folder("restored") / "journal.sqlite"
        restored = restore(target, self.objects)
        assert (restored.problems, restored.head >= self.shipped) == ([], True)
        kept = [record.raw for record in self.records if restored.deleted < record.first <= restored.head]
        assert list(raws(target)) == kept
        with closing(SqliteJournalReader(target)) as reader:
            assert list(reader.damage()) == []
            assert reader.head == restored.head


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, looks=st.booleans())
def test_restored_journal_has_all_that_was_shipped(steps, looks, tmp_path_factory) -> None:
    """Guarantee (ADR-042): after any order of steps, a restored journal has everything that was shipped.

    It lacks the events that were deleted for good. What is lost there is shipped again.
    """
    rig = Rig(tmp_path_factory.mktemp, looks)
    with closing(rig.journal), small_batches():
        for step, number in [*steps, ("append", 1), ("ship", None)]:
            getattr(rig, step)(number)
        assert rig.shipped == rig.journal.head
        rig.check()
        batches = [part for part in parse_parts(rig.objects.content) if part.kind == "batches"]
        assert sum(part.level == 0 for part in batches) < 2 * shipping.FAN
