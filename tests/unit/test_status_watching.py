"""Watching a journal: in parts, after a restart, despite damage."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from recorded_run import KEY, NEW, OLD, recording, write_journal

from flyball.app.api import following
from flyball.app.api.following import JournalWatch
from flyball.app.api.runs import RunLocation, read_board, silent
from flyball.app.cli.up import child_environment, child_specs
from flyball.app.cli.up_screen import STREAM_LINES, LiveScreen, Screen, describe
from flyball.app.config import RunFolder
from flyball.app.config.loading import load
from flyball.app.core import EventId, FlyballError
from flyball.app.events import (
    Event,
    ExplorationBoost,
    ModelRolledBack,
    TrainingBlockedByQuality,
    TrainingFailed,
    TrainingUnblocked,
)
from flyball.app.journal import SqliteJournalReader
from flyball.app.status import status as status_module
from flyball.app.status.status import Board
from flyball.daemons.registry import DAEMONS, MACHINE_ROLES, MachineRole, names_of
from flyball.daemons.supervisor import ChildReport


def test_what_lies_before_is_counted_and_what_comes_is_told(folder, monkeypatch) -> None:
    monkeypatch.setattr(following, "AT_ONCE", 4)
    events, watch = recording().events, JournalWatch(RunLocation(folder, None))
    assert watch.news() == []
    write_journal(folder.journal, events)
    told = watch.news()
    while watch.behind:
        told += watch.news()
    assert [event.data.event_name for event in told] == ["MODEL_PROMOTED", "PROMOTION_REJECTED"]
    assert watch.board.position == len(events)
    assert JournalWatch(RunLocation(folder, None)).news() == []


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def watched(folder: RunFolder, events: list[Event[Any]]) -> JournalWatch:
    """Return a watch that has read a journal of events."""
    write_journal(folder.journal, events)
    watch = JournalWatch(RunLocation(folder, None))
    watch.news()
    return watch


def spoil_the_start(folder: RunFolder) -> None:
    """Make the start of the journal unreadable. Reading it again fails."""
    with closing(sqlite3.connect(folder.journal)) as db, db:
        db.execute("UPDATE frames SET head = x'00' WHERE first < 10")


def test_a_board_goes_on_from_where_it_was_saved(folder, monkeypatch) -> None:
    monkeypatch.setattr(following, "SAVE_AFTER", 5)
    events, whole = recording().events, Board()
    first = watched(folder, events[:12])
    write_journal(folder.journal, events[12:])
    spoil_the_start(folder)
    again = JournalWatch(RunLocation(folder, None))
    assert again.board == first.board
    assert again.news() == []
    whole.feed(events)
    assert again.board == whole
    with closing(SqliteJournalReader(folder.journal)) as reader:
        assert read_board(folder, reader, silent) == whole


@pytest.mark.parametrize("change", ["damaged", "cut off", "another journal", "a shorter journal", "older code"])
def test_a_snapshot_that_can_t_be_relied_on_is_not(folder, monkeypatch, change: str) -> None:
    events = recording().events
    watched(folder, events).save()
    assert JournalWatch(RunLocation(folder, None)).board.position == len(events)
    if change in ("another journal", "a shorter journal"):
        folder.journal.unlink()
        others = [replace(event, envelope=replace(event.envelope, id=f"other-{event.id}")) for event in events]
        write_journal(folder.journal, others if change == "another journal" else events[:5])
    elif change == "older code":
        monkeypatch.setattr(status_module, "FORMAT", 0)
    else:
        text = folder.board.read_text()
        folder.board.write_text(text.replace("600", "601") if change == "damaged" else text[:-20])
    assert JournalWatch(RunLocation(folder, None)).board.position == 0


def test_file_that_is_no_journal_or_damaged_is_told(folder) -> None:
    folder.journal.write_text("no database " * 1000)
    assert JournalWatch(RunLocation(folder, None)).news() == [], "it is waited for"
    folder.journal.unlink()
    write_journal(folder.journal, recording().events)
    raw = bytearray(folder.journal.read_bytes())
    raw[raw.index(b'"threshold":0.5')] ^= 1
    folder.journal.write_bytes(raw)
    with pytest.raises(FlyballError, match="Damaged journal"):
        JournalWatch(RunLocation(folder, None)).news()


WATCHED = "deployment.metrics.port = 9464\n"


def test_children_get_file_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flyball.toml").write_text(f"configs = ['hearts_4p']\nmin_quality = 0.4\n{WATCHED}")
    location = RunLocation(RunFolder(tmp_path), None)
    given = location.load({"profile": "laptop", "seed": 9})
    for name, value in child_environment(location, given).items():
        monkeypatch.setenv(name, value)
    assert load(tmp_path).run == given.run
    needed, others = child_specs(location, given)
    assert [spec.name for spec in (*needed, *others)] == list(DAEMONS)
    assert [spec.name for spec in needed] == ["broker"]
    file = tmp_path / "other.toml"
    file.write_text("seed = 4\n")
    location = RunLocation(RunFolder(tmp_path), file)
    assert child_environment(location, location.load()) == {"FLYBALL_CONFIG_FILE": str(file)}


def test_monitoring_is_not_started_with_nothing_to_do(tmp_path: Path) -> None:
    location = RunLocation(RunFolder(tmp_path), None)
    _, others = child_specs(location, location.load())
    assert {*DAEMONS} - {spec.name for spec in others} == {"broker", "monitoring"}


@pytest.mark.parametrize("role", MACHINE_ROLES)
def test_a_machine_starts_the_daemons_of_its_role(tmp_path: Path, role: MachineRole) -> None:
    (tmp_path / "flyball.toml").write_text(WATCHED)
    location = RunLocation(RunFolder(tmp_path), None)
    needed, others = child_specs(location, location.load(), role)
    assert [spec.name for spec in (*needed, *others)] == list(names_of(role))
    assert [spec.name for spec in needed] == (["broker"] if role == "head" else [])


@pytest.mark.parametrize(("settings", "needed"), [("", ["broker", "ray"]), ("address = 'head:6379'", ["broker"])])
def test_a_cluster_is_started_unless_one_is_named(tmp_path: Path, settings: str, needed: list[str]) -> None:
    (tmp_path / "flyball.toml").write_text(f"[deployment]\nengine = 'ray'\n[deployment.ray]\n{settings}\n")
    location = RunLocation(RunFolder(tmp_path), None)
    first, others = child_specs(location, location.load())
    assert [spec.name for spec in first] == needed
    asks = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "ray" / "token")}
    for spec in others:
        assert (asks.items() <= spec.env.items()) == ("ray" in needed)
    if "ray" in needed:
        assert (tmp_path / "ray" / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (ChildReport("broker", "started", 7), "broker started"),
        (ChildReport("broker", "failed", 7, "no room", 0.5), "broker failed: no room; starts again in 0.5 s"),
        (ChildReport("broker", "hopeless", 7, "what?"), "broker cannot start: what?"),
        (ChildReport("broker", "killed", 7, "killed by SIGKILL"), "broker was killed before it had stopped"),
        (ChildReport("broker", "stopped", 7, "exit code 1"), "broker stopped, but not in order: exit code 1"),
    ],
)
def test_reports_are_told_in_a_line(report: ChildReport, line: str) -> None:
    assert describe(report) == line


def test_lines_tell_only_the_unusual(capsys: pytest.CaptureFixture[str]) -> None:
    with Screen(as_json=False) as screen:
        screen.report(ChildReport("broker", "started", 7))
        screen.report(ChildReport("broker", "stopped", 7))
        screen.report(ChildReport("broker", "failed", 7, "no room", 0.5))
        screen.event(recording().events[7])
    shown = capsys.readouterr()
    assert shown.err == "broker failed: no room; starts again in 0.5 s\n"
    assert "MODEL_PROMOTED" in shown.out


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return the picture after events, reports and texts."""
    write_journal(RunFolder(tmp_path).journal, recording().events)
    watch = JournalWatch(RunLocation(RunFolder(tmp_path), None))
    watch.news()

    def picture(*happened: Event[Any] | ChildReport | str) -> str:
        with LiveScreen("Ctrl-C stops.") as screen:
            screen.status(watch.board.status(recording().events[-1].recordedtime, None, running=True))
            for one in happened:
                match one:
                    case ChildReport():
                        screen.report(one)
                    case str():
                        screen.say(one)
                    case _:
                        screen.event(one)
        return capsys.readouterr().out

    return picture


def test_picture_keeps_rare_and_last_lines(shown: Callable[..., str]) -> None:
    promoted, run = recording().events[7], recording()
    rare = (
        TrainingBlockedByQuality(reason="parity failed"),
        ExplorationBoost(multiplier=1.5, lasts_seconds=60, reason="stalled"),
        ModelRolledBack(from_model=OLD, to_model=NEW, step=0, reason="worse"),
        TrainingFailed(request_id=EventId("r"), reason="diverged", error="NaN"),
    )
    events = [run.add(one, promoted, KEY) for one in rare]
    failed = ChildReport("training", "failed", 7, "no room", 0.5)
    picture = shown(*events, failed, *[promoted] * 100)
    names = [one.event_name for one in rare] + ["training failed", "MODEL_PROMOTED"]
    places = [picture.index(name) for name in names]
    assert places == sorted(places)
    assert picture.count("MODEL_PROMOTED") == STREAM_LINES
    picture = shown(recording().events[7], ChildReport("training", "failed", 7, "no [room]", 0.5), "Stopping.")
    parts = ("tic_tac_toe_2p", "training (stopped", "12:00:08Z MODEL_PROMOTED", "no [room]", "Stopping.")
    for part in parts:
        assert part in picture
    run = recording()
    events = [run.add(TrainingUnblocked(reason=f"reason {n}"), run.events[7], KEY) for n in range(9)]
    assert shown(*events).count("TRAINING_UNBLOCKED") == 1
    assert "reason 8" in shown(*events)
