"""``flyball journal dead-letters``, beside a running broker and without one."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
from bus_rig import START, broker_daemon, checked
from click.testing import Result
from commands import invoke, refused, succeeded

from flyball.app.bus import ZmqBus
from flyball.app.bus.ports import PublishRefused
from flyball.app.config import Deployment, RunFolder
from flyball.app.events import Event, EventVoided, RunConfigured, encode, originate
from flyball.app.events.frames import DeadLetter, Frame, frame_of, seal
from flyball.app.journal import SqliteJournal, SqliteJournalReader, history
from flyball.app.journal.history import open_dead_letters
from flyball.daemons.run_folder import bus_endpoint

REFUSED, DAMAGED, SETTINGS, FAILED = 1, 2, 3, 4
"""Numbers of the dead letters."""

Flyball = Callable[..., Result]


@pytest.fixture
def flyball(tmp_path: Path) -> Flyball:
    def run(*words: object) -> Result:
        return invoke("journal", "dead-letters", *words, run=tmp_path)

    return run


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """Return a run folder with four dead letters.

    Three are refused frames. The fourth is the journal's only event, which a reducer could not fold.
    """
    frame = frame_of([checked(0), checked(1)], producer="another@there", epoch=1, base=0)
    damaged = frame[:-5] + b"#" + frame[-4:]
    configured = originate(RunConfigured(run_id="run", settings={}), event_id="configured", time=START)
    settings = frame_of([configured], producer="program@there", epoch=1, base=2)
    fold = frame_of([checked(9)], producer="trainer@there", epoch=1, base=0)
    with closing(SqliteJournal(tmp_path / "journal.sqlite")) as journal:
        journal.append(
            [seal(Frame.parse(fold), first=1, recorded_us=1, source="trainer@there")],
            dead_letters=[
                DeadLetter(0, "program@there", "broker@laptop", "The frame is from another.", frame),
                DeadLetter(0, "program@there", "broker@laptop", "Damaged frame.", damaged),
                DeadLetter(0, "program@there", "broker@laptop", "Only the broker publishes it.", settings),
                DeadLetter(1, "trainer@there", "feedback@laptop/LossWatch", "boom", encode(checked(9))),
            ],
        )
    return tmp_path


@pytest.fixture(params=["running", "stopped"])
def run(request: pytest.FixtureRequest, stopped: Path) -> Iterator[Path]:
    """Return the folder of such a run, with and without its broker."""
    with broker_daemon(stopped) if request.param == "running" else nullcontext():
        yield stopped


def published(folder: Path) -> list[Event[Any]]:
    with closing(SqliteJournalReader(folder / "journal.sqlite")) as reader:
        return [event for event in history(reader) if event.source == "cli@laptop"]


def numbers(folder: Path) -> list[int]:
    with closing(SqliteJournalReader(folder / "journal.sqlite")) as reader:
        return [dead.number for dead in reader.dead_letters()]


def test_list_shows_events_sender_and_error(run: Path, flyball: Flyball) -> None:
    shown = flyball("list")
    assert shown.stdout.splitlines() == [
        "      1  2 PARITY_CHECKED hex7_2p from program@there, refused by broker@laptop",
        "         The frame is from another.",
        "      2  unreadable from program@there, refused by broker@laptop",
        "         Damaged frame.",
        "      3  RUN_CONFIGURED from program@there, refused by broker@laptop",
        "         Only the broker publishes it.",
        "      4  PARITY_CHECKED hex7_2p from trainer@there, at position 1, failed in feedback@laptop/LossWatch",
        "         boom",
    ]
    assert shown.stderr == "4 dead letters: 3 of refused events, 1 of recorded ones.\n"
    rows = list(map(json.loads, flyball("list", "--json").stdout.splitlines()))
    assert rows[3] == {
        "number": FAILED,
        "position": 1,
        "events": ["PARITY_CHECKED hex7_2p"],
        "producer": "trainer@there",
        "by": "feedback@laptop/LossWatch",
        "error": "boom",
    }
    assert [(row["position"], len(row["events"])) for row in rows[:3]] == [(None, 2), (None, 0), (None, 1)]


def test_retry_publishes_refused_events_and_removes_them(run: Path, flyball: Flyball) -> None:
    done = succeeded(flyball("retry", REFUSED))
    events = published(run)
    assert [event.envelope for event in events] == [checked(0), checked(1)]
    assert done.stdout.splitlines() == [f"{event.sequence} {event.id}" for event in events]
    assert numbers(run) == [DAMAGED, SETTINGS, FAILED]
    refused(flyball("retry", REFUSED), 4, "There is no dead letter 1.")


def test_retry_of_events_recorded_since_records_nothing(stopped: Path, flyball: Flyball) -> None:
    """Retry events that have been recorded meanwhile."""
    with closing(SqliteJournal(stopped / "journal.sqlite")) as journal:
        (dead, *_) = journal.dead_letters()
        journal.append(dead_letters=[dead])
    first, second = (flyball("retry", number, "--json") for number in (REFUSED, 5))
    events = published(stopped)
    assert [json.loads(line)["position"] for line in second.stdout.splitlines()] == [e.sequence for e in events]
    assert "recorded before" not in first.stderr
    assert second.stderr.count("was recorded before: nothing new is recorded.") == len(events) == 2


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (DAMAGED, "the checksum of its bodies is wrong"),
        (SETTINGS, "holds RUN_CONFIGURED, which is not published by hand"),
        (FAILED, "is recorded, at position 1: published again, it would count twice"),
    ],
)
def test_retry_of_what_must_not_be_published_changes_nothing(
    number: int, why: str, stopped: Path, flyball: Flyball
) -> None:
    refused = flyball("retry", REFUSED, number)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert why in refused.stderr
    assert ("journal repair --void 1" in refused.stderr) == (number == FAILED)
    assert published(stopped) == []
    assert numbers(stopped) == [REFUSED, DAMAGED, SETTINGS, FAILED]


def test_discard_removes_these_and_no_others(run: Path, flyball: Flyball) -> None:
    refused(flyball("discard", DAMAGED, 17), 4, "There is no dead letter 17.")
    assert numbers(run) == [REFUSED, DAMAGED, SETTINGS, FAILED]
    done = flyball("discard", DAMAGED, SETTINGS, DAMAGED)
    assert done.stdout == "Discarded 2: unreadable from program@there\nDiscarded 3: RUN_CONFIGURED from program@there\n"
    assert json.loads(flyball("discard", FAILED, "--json").stdout) == {"discarded": FAILED}
    assert numbers(run) == [REFUSED]
    assert published(run) == []


def test_numbers_that_are_none_are_refused_as_usage(stopped: Path, flyball: Flyball) -> None:
    for words in (("retry",), ("discard",), ("retry", 0), ("discard", "all")):
        assert flyball(*words).exit_code == 2


def test_retry_beside_a_broker_that_is_starting_is_refused(stopped: Path, flyball: Flyball) -> None:
    """Lock the journal as a broker does before it listens."""
    with closing(SqliteJournal(stopped / "journal.sqlite")):
        refused(flyball("retry", REFUSED), 1, "Another process writes")
    assert numbers(stopped) == [REFUSED, DAMAGED, SETTINGS, FAILED]


def test_dead_letter_of_a_refused_publish_is_listed_and_retried(tmp_path: Path, flyball: Flyball) -> None:
    async def publish() -> None:
        bus = ZmqBus(bus_endpoint(RunFolder(tmp_path), Deployment()), producer="program@there", deadline_s=20)
        bus._client._outgoing._builder._producer = "another@there"
        with pytest.raises(PublishRefused, match="another@there"):
            await bus.publish(checked(0))
        await bus.close()

    with broker_daemon(tmp_path):
        asyncio.run(publish())
        assert flyball("list").stdout.startswith("      1  PARITY_CHECKED hex7_2p from program@there, refused by")
        status = invoke("status", run=tmp_path)
        assert "1 dead letters of refused events. See: flyball --run" in status.stderr
        assert flyball("retry", 1).exit_code == 0
        assert flyball("list").stderr == "0 dead letters: 0 of refused events, 0 of recorded ones.\n"
    assert [event.envelope for event in published(tmp_path)] == [checked(0)]


def test_dead_letter_of_a_voided_event_is_no_longer_open(stopped: Path) -> None:
    path = stopped / "journal.sqlite"
    with closing(SqliteJournalReader(path)) as reader:
        assert [dead.number for dead in open_dead_letters(reader)] == [FAILED]
    void = frame_of(
        [originate(EventVoided(position=1, reason="x"), event_id="void", time=START)],
        producer="cli@laptop",
        epoch=1,
        base=0,
    )
    with closing(SqliteJournal(path)) as journal:
        journal.append([seal(Frame.parse(void), first=2, recorded_us=2, source="cli@laptop")])
        assert open_dead_letters(journal) == []
