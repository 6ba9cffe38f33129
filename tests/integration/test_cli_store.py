"""``flyball store``: damaged blobs, and blobs that nothing needs."""

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from commands import invoke, refused
from recorded_run import KEY, Recording, evidence, write_journal
from selfplay_rig import put_model

from flyball.app.config import GAMES, RunSettings
from flyball.app.core import ShardKey
from flyball.app.events import DaemonReady, ModelPromoted, RunConfigured, SelfplayComplete, SelfplayRequested, ShardRef
from flyball.app.journal import SqliteJournal
from flyball.app.journal.archiving import archive
from flyball.app.journal.opening import SqliteLocation
from flyball.app.store import BlobStore, FileStore, get_checkpoint, open_store, put_checkpoint
from flyball.daemons import snapshots
from flyball.daemons.clock import SystemClock
from flyball.daemons.snapshots import take_snapshots

CONFIG = GAMES[KEY]
DAY_SECONDS = 86400


def grow_old(store: FileStore, days: int = 2) -> None:
    """Set back the time at which every blob was stored."""
    then = SystemClock().now().timestamp() - days * DAY_SECONDS
    for key in store.keys():  # noqa: SIM118
        os.utime(store.path(key), (then, then))


def flyball(run: Path, *words: str) -> Result:
    return invoke("store", *words, run=run)


def listed(result: Result) -> set[str]:
    assert result.exit_code == 0, result.output
    return {json.loads(line)["key"] for line in result.stdout.splitlines()}


class Run:
    """A run with models, a played shard, and blobs that nothing names. One model is promoted, one is earlier."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, FileStore(folder / "store")
        first = get_checkpoint(self.store, put_model(folder / "store", CONFIG))
        self.initial = first.model
        self.optimizer = self.store.put(b"moments")
        self.model = put_checkpoint(self.store, first.manifest.successor(first.model), first.parameters, b"moments")
        self.shard, self.garbage = self.store.put(b"shard"), self.store.put(b"garbage" * 1000)
        self.lost_state = self.store.put(b"moments of a lost training")
        self.events = Recording([])
        settings = RunSettings(configs=(CONFIG,)).model_dump(mode="json")
        self.events.add(RunConfigured(run_id="run", settings=settings))
        for step, model in enumerate((self.initial, self.model)):
            self.events.add(
                ModelPromoted(model=model, previous=None, step=step, elo=0.0, evidence=evidence(0.0)), subject=KEY
            )
        self.play(self.shard)
        grow_old(self.store)

    def play(self, key: str) -> None:
        worker = "selfplay_worker@laptop"
        shard = ShardRef(key=ShardKey(key), worker=worker, rows=9, games=1, model=self.model, seed=1)
        asked: dict[str, Any] = {"worker": worker, "model": self.model, "lineups": (), "games": 1, "seed": 1}
        request = self.events.add(SelfplayRequested(**asked, temperature=1.0, probe=False), subject=KEY)
        played: dict[str, Any] = {"probe": False, "opponents": (), "temperature": 1.0, "mean_length": 5.0}
        self.events.add(
            SelfplayComplete(request_id=request.id, shard=shard, **played, truncated_games=0, seconds=1.0), request
        )

    def gc(self, *words: str) -> set[str]:
        journal = self.folder / "journal.sqlite"
        journal.unlink(missing_ok=True)
        write_journal(journal, self.events.events)
        return listed(flyball(self.folder, "gc", "--json", *words))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_gc_lists_and_counts_what_nothing_needs_then_deletes(run):
    before = set(run.store.keys())
    assert run.gc() == {run.garbage, run.lost_state}
    assert set(run.store.keys()) == before
    result = flyball(run.folder, "gc")
    assert "2 blobs that nothing needs, 7.0 kB. To delete them: flyball --run" in result.stderr
    assert "kB  " in result.stdout
    assert run.gc("--yes") == {run.garbage, run.lost_state}
    assert set(run.store.keys()) == {run.initial, run.model, run.optimizer, run.shard}


def test_gc_keeps_blobs_within_the_grace_period(run):
    young = run.store.put(b"a shard whose event is under way")
    assert young not in run.gc("--yes")
    assert run.store.has(young)
    grow_old(run.store)
    assert young in run.gc()
    assert not run.gc("--grace-hours", "72")


def test_gc_begins_at_a_snapshot_when_events_were_deleted(run, monkeypatch):
    monkeypatch.setattr(snapshots, "IN_FLIGHT_EVENTS", 4)
    late = run.store.put(b"a shard that is played after the snapshot")
    grow_old(run.store)
    journal, settled = run.folder / "journal.sqlite", len(run.events.events)
    for daemon in ("model_lifecycle", "training_trigger"):
        run.events.add(DaemonReady(daemon=daemon, node="laptop", position=settled, capacity=0))
    run.play(late)
    write_journal(journal, run.events.events)
    take_snapshots(SqliteLocation(journal))
    archive(journal, 3)
    with closing(SqliteJournal(journal)) as writer:
        writer.adopt()
        writer.maintain()
        assert writer.forget(1 << 62)
    assert listed(flyball(run.folder, "gc", "--json")) == {run.garbage, run.lost_state}
    for snapshot in (run.folder / "archive").glob("*.snapshot"):
        snapshot.unlink()
    refused(flyball(run.folder, "gc", "--yes"), 1, "The events 1 to 3 were deleted for good")


def test_gc_refuses_where_a_needed_model_is_damaged(run):
    run.store.path(run.model).write_bytes(b"damaged")
    write_journal(run.folder / "journal.sqlite", run.events.events)
    refused(flyball(run.folder, "gc", "--yes"), 1, run.model)
    assert run.store.has(run.garbage)


def test_gc_to_a_size_deletes_no_more_than_needed(run):
    """The oldest blobs go first."""
    taken = run.store.total_bytes()
    assert not run.gc("--yes", "--to-gib", str((taken + 1) / 2**30))
    ancient = SystemClock().now().timestamp() - 9 * DAY_SECONDS
    os.utime(run.store.path(run.lost_state), (ancient, ancient))
    assert run.gc("--yes", "--to-gib", str((taken - 1) / 2**30)) == {run.lost_state}
    assert run.store.has(run.garbage)


def test_verify_names_damaged_blobs(run):
    assert flyball(run.folder, "verify").exit_code == 0
    run.store.path(run.shard).write_bytes(b"shart")
    result = flyball(run.folder, "verify", "--json")
    assert result.exit_code == 1
    assert [json.loads(line)["key"] for line in result.stdout.splitlines()] == [run.shard]
    assert "6 blobs, 1 of them damaged." in result.stderr


def test_gc_of_a_store_by_url_deletes_objects(run, bucket):
    remote: BlobStore = open_store(str(bucket))
    for key in run.store.keys():  # noqa: SIM118
        remote.put(run.store.get(key))
    (run.folder / "flyball.toml").write_text(f'[deployment]\nstore = "{bucket}"\n')
    assert run.gc("--yes") == set(), "all objects are young"
    assert len(list(remote.keys())) == 6
    assert flyball(run.folder, "verify").exit_code == 0
