"""A journal that is not the one that a program has followed.

It was restored from an older copy, or exchanged (ADR-005).
"""

import shutil
import subprocess

import pytest
from bus_rig import FLYBALL, address, broker_daemon, broker_thread, checked, gather, run_feedback
from memory_outbox import MemoryOutbox

from flyball.app.bus import ZmqBus
from flyball.app.bus.ports import OtherHistory
from flyball.app.config import RunFolder
from flyball.app.journal import KnownRecord
from flyball.app.journal.memory import MemoryJournal, MemoryStateStore
from flyball.app.journal.opening import SqliteLocation
from flyball.daemons.run_folder import LostJournal, check_history, of_other_history
from flyball.daemons.saved_state import SavedState, known_record


async def publish(journal, folder, who, count):
    """Publish events; return the last record."""
    with broker_thread(journal, address(folder)):
        bus = ZmqBus(address(folder), producer=who)
        await bus.publish_many([checked(number, who=who) for number in range(count)])
        async with bus.subscribe(after=0) as subscription:
            await gather(subscription, journal.head)
        await bus.close()
    chunk = journal.read(journal.head - 1)
    return KnownRecord(chunk.position, chunk.checksum)


@pytest.mark.parametrize("events", [2, 5, 9])
async def test_history_without_the_known_record_is_refused(tmp_path, events):
    """Refuse a journal that is shorter, as long, or longer."""
    known = await publish(MemoryJournal(), tmp_path, "lost", 5)
    other, outbox = MemoryJournal(), MemoryOutbox()
    await publish(other, tmp_path, "restored", events)
    with broker_thread(other, address(tmp_path)):
        bus = ZmqBus(address(tmp_path), producer="follower", last_record=known, outbox=outbox)
        with pytest.raises(OtherHistory, match="an older copy of the journal"):
            await bus.publish(checked(0, who="follower"))
        with pytest.raises(OtherHistory):
            await bus.snapshot(5, {"a"})
        with pytest.raises(OtherHistory):
            async with bus.subscribe(after=0):
                pass
        await bus.close()
    assert other.head == events, "nothing of the other history was recorded"
    assert outbox.load(), "what was not sent is kept"


async def test_history_with_the_known_record_or_position_is_followed(tmp_path):
    journal = MemoryJournal()
    known = await publish(journal, tmp_path, "a", 5)
    await publish(journal, tmp_path, "b", 3)
    with broker_thread(journal, address(tmp_path)):
        bus = ZmqBus(address(tmp_path), producer="follower", last_record=known)
        assert await bus.publish(checked(0, who="follower")) == 9
        await bus.close()
    journal = MemoryJournal()
    with broker_thread(journal, address(tmp_path)):
        bus = ZmqBus(address(tmp_path), producer="follower", last_record=KnownRecord(3, 0))
        with pytest.raises(OtherHistory, match="ends at 0"):
            await bus.publish(checked(0))
        await bus.close()
    assert journal.head == 0
    await publish(journal, tmp_path, "a", 3)
    with broker_thread(journal, address(tmp_path)):
        bus = ZmqBus(address(tmp_path), producer="follower", last_record=KnownRecord(3, 0))
        assert await bus.publish(checked(0, who="b")) == 4
        await bus.close()


async def test_journal_exchanged_under_a_client_ends_its_reading(tmp_path):
    """Exchange the journal while a client is connected. Its next events are not mixed into the other history."""
    first, second = MemoryJournal(), MemoryJournal()
    await publish(second, tmp_path, "restored", 9)
    bus = ZmqBus(address(tmp_path), producer="follower")
    with broker_thread(first, address(tmp_path)):
        await bus.publish_many([checked(number) for number in range(5)])
        subscription = bus.subscribe(after=0)
        await gather(subscription, 5)
    with broker_thread(second, address(tmp_path)):
        with pytest.raises(OtherHistory, match="record at 5 is another"):
            await gather(subscription, 1)
        with pytest.raises(OtherHistory):
            await bus.publish(checked(6))
        await bus.close()
    assert second.head == 9


def test_saved_state_keeps_the_known_record():
    store = MemoryStateStore()
    store.save(7, {("host", "schemas"): b"{}"})
    assert known_record(store) == KnownRecord(7, 0), "an earlier version saved the position only"
    state = SavedState(store, ())
    state.latest_record = KnownRecord(9, 1234)
    state.save(9)
    assert known_record(store) == KnownRecord(9, 1234)
    state.start_over({8}, None)
    state.save(5)
    state.complete(9)
    assert known_record(store) == SavedState(store, ()).latest_record == KnownRecord(9, 1234)


def test_restored_backup_beside_newer_state_is_rebuilt(tmp_path):
    """Restore an older journal under a stopped run."""
    folder = RunFolder(tmp_path)
    with broker_daemon(tmp_path):
        assert run_feedback(folder) == 0
    shutil.copyfile(folder.journal, tmp_path / "backup")
    with broker_daemon(tmp_path):
        assert run_feedback(folder) == 0
    newer = folder.state("feedback", "laptop").read_bytes()
    shutil.copyfile(tmp_path / "backup", folder.journal)
    with broker_daemon(tmp_path):
        assert run_feedback(folder) == 1
        outbox, state = of_other_history(folder)
        assert (outbox.parent.name, state.read_bytes()) == ("outbox", newer)
        assert run_feedback(folder) == 0
        assert of_other_history(folder) == [outbox, state]


def test_run_that_lost_its_journal_is_refused(tmp_path):
    """Delete the journal of a stopped run: no new one is begun."""
    folder = RunFolder(tmp_path)
    with broker_daemon(tmp_path):
        assert run_feedback(folder) == 0
    folder.journal.rename(tmp_path / "journal.sqlite.rescued")
    with pytest.raises(LostJournal, match=r"journal\.sqlite\.rescued"):
        check_history(folder, SqliteLocation(folder.journal))
    for command in (("daemon", "run", "broker"), ("up", "--for", "60")):
        done = subprocess.run((*FLYBALL, "--run", str(tmp_path), *command), capture_output=True, text=True, check=False)
        assert (done.returncode, "is missing" in done.stderr) == (2, True), done.stderr
    assert not folder.journal.exists()
    shutil.rmtree(tmp_path / "state")
    check_history(folder, SqliteLocation(folder.journal))
