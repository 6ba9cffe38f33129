"""Snapshots: reducers' rows at a position (ADR-006).

A daemon without state begins from a snapshot. A snapshot is a file in the archive's folder. It is a cache: a snapshot
that is missing, damaged or of another journal is skipped, and the rows are folded from an earlier position.
"""

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from flyball.app.core import FlyballError
from flyball.app.journal import state
from flyball.app.journal.database import open_read_only
from flyball.app.journal.kept_files import sync
from flyball.app.journal.ports import Snapshot, StateKey
from flyball.app.journal.segments import new_immutable_database

RECORD_KEY: StateKey = ("archive", "record")
"""Row with the last folded record's header, which identifies the journal."""

KEPT = 4
"""Number of latest snapshots that are kept."""

KEPT_EVENTS = 250_000
"""Events between older snapshots, which are kept for rebuilds without an event that was voided late."""


def write_snapshot(folder: Path, snapshot: Snapshot, head: bytes) -> None:
    """Write a snapshot durably, and remove superseded ones.

    ``head`` is the header of the record at the snapshot's position. Later snapshots are removed, too: they are of a
    journal that a copy has replaced, or hold an event that was voided since. Raises as
    ``new_immutable_database``.
    """
    unfinished = folder / "snapshot.partial"
    with new_immutable_database(unfinished, state.FORMAT) as db:
        state.write(db, snapshot.position, {**snapshot.rows, RECORD_KEY: head})
    unfinished.rename(snapshot_path(folder, snapshot.position))
    sync(folder)
    for position in superseded(positions(folder), snapshot.position):
        snapshot_path(folder, position).unlink()


def superseded(existing: Sequence[int], newest: int) -> list[int]:
    """Return the positions, of those of all snapshots from the latest on, that are not needed beside the newest."""
    kept = list[int]()
    for position in existing:
        if position <= newest and (len(kept) < KEPT or position // KEPT_EVENTS < kept[-1] // KEPT_EVENTS):
            kept.append(position)
    return [position for position in existing if position not in kept]


def positions(folder: Path) -> list[int]:
    """Return the positions of the snapshots in a folder, the latest first."""
    return sorted((int(path.stem) for path in folder.glob("[0-9]*.snapshot")), reverse=True)


def read_snapshot(folder: Path, upto: int, head_at: Callable[[int], bytes | None]) -> Snapshot | None:
    """Return the latest readable snapshot at or before a position whose record ``head_at`` finds."""
    for position in positions(folder):
        if position <= upto:
            with (
                suppress(FlyballError),
                closing(open_read_only(snapshot_path(folder, position), state.FORMAT, immutable=True)) as db,
            ):
                _, rows = state.load(db, snapshot_path(folder, position))
                if rows.pop(RECORD_KEY, None) == head_at(position):
                    return Snapshot(position, rows)
    return None


def snapshot_path(folder: Path, position: int) -> Path:
    """Return the file of the snapshot at a position."""
    return folder / f"{position:012}.snapshot"
