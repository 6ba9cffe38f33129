"""Golden runs: journals that are kept with their expected replays.

``recorded`` is a real run: `flyball up` with two games, a few loops. ``generated`` is a run that contains every kind of
decision. Make both again after an intended change of events or controllers, with::

    python tests/support/golden_runs.py

The diff of ``tests/replay/golden/expected.json`` then shows the effect.
"""

import json
import lzma
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from generated_run import generated, hasty
from replayed import replay
from running_loop import SETTINGS, running_loop

from flyball.app.events import (
    CATALOGUE,
    AdaptiveParamsChanged,
    Event,
    Kind,
    LossAnomalyDetected,
    Payload,
    PlateauDetected,
    decode,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.journal import SqliteJournalReader, history
from flyball.app.replay.replaying import Report

FOLDER = Path(__file__).parents[1] / "replay" / "golden"
NAMES = ("recorded", "generated")
TWO_GAMES = SETTINGS.replace('["tic_tac_toe_2p"]', '["tic_tac_toe_2p", "connect_four_2p"]')
DECIDED = {payload for payload in CATALOGUE if payload.kind is Kind.DECISION} - {AdaptiveParamsChanged}
"""Types of the controllers' decisions; operators alone publish the other."""

LOOPS, EVENTS, PLATEAUS = 4, 6000, 3
FIRST_SEED = 15  # with earlier ones, plateaus also change whose turn it is, which tests of what-if exclude


def load(name: str) -> list[Event[Payload]]:
    """Read a golden run."""
    with lzma.open(FOLDER / f"{name}.jsonl.xz") as lines:
        return [_recorded(line) for line in lines]


def _recorded(line: bytes) -> Event[Payload]:
    """Read what ``Event.to_cloudevent`` wrote."""
    attributes = json.loads(line)
    source, sequence, recorded = (attributes.pop(stamp) for stamp in ("source", "sequence", "recordedtime"))
    recorded_us = (datetime.fromisoformat(recorded) - EPOCH) // timedelta(microseconds=1)
    return Event(decode(json.dumps(attributes).encode()), int(sequence), recorded_us, source)


def expected() -> dict[str, Any]:
    """Return the expected result of each replay."""
    found: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text())
    return found


def summary(report: Report) -> Mapping[str, Any]:
    """Return the part of a report that is kept."""
    return {
        "events": report.position,
        "state_hash": report.state_hash,
        "matched": dict(report.matched),
        "in_flight": sorted(one.envelope.id for one in report.in_flight),
    }


def record() -> list[Event[Payload]]:
    """Run all daemons until some loops have closed, and return the journal."""
    with tempfile.TemporaryDirectory() as folder, running_loop(Path(folder) / "run", TWO_GAMES) as run:
        run.wait_for_loops(LOOPS, seconds=900)  # enough even on a busy machine
        with closing(SqliteJournalReader(run.folder / "journal.sqlite")) as reader:
            return list(history(reader))


def save(name: str, events: Iterable[Event[Payload]]) -> None:
    """Write a golden run; the same events give the same file."""
    lines = (json.dumps(event.to_cloudevent(), separators=(",", ":")) + "\n" for event in events)
    (FOLDER / f"{name}.jsonl.xz").write_bytes(lzma.compress("".join(lines).encode(), preset=9))


def eventful() -> list[Event[Payload]]:
    """Return a generated run with every kind of decision.

    It also has some plateaus and a loss anomaly, and ends while work is under way.
    """
    wanted = {LossAnomalyDetected, *DECIDED}
    for seed in count(FIRST_SEED):
        events = list(generated(EVENTS, seed=seed, settings=hasty(), trouble=10))
        met = Counter(type(event.data) for event in events)
        if wanted <= met.keys() and met[PlateauDetected] >= PLATEAUS and replay(events).in_flight:
            return events
    raise AssertionError("count() ends nowhere")


def main() -> None:
    """Make all golden runs."""
    save("recorded", record())
    save("generated", eventful())
    summaries = {}
    for name in NAMES:
        report = replay(load(name))
        if report.differing:
            sys.exit(f"{name} does not replay: {report.differences[0]}")
        summaries[name] = summary(report)
    (FOLDER / "expected.json").write_text(json.dumps(summaries, indent=2) + "\n")


if __name__ == "__main__":
    main()
