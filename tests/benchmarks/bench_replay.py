"""Replay: journals of a laptop and of a cluster folded through all controllers, beside only reading them, in one run.

Run with ``pytest tests/benchmarks/bench_replay.py -m benchmark -s``. Only ratios are asserted; figures depend on the
machine and on what else it does. Records hold what the broker would have recorded together: mostly one event.
"""

import gc
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import pytest
from generated_run import cluster, generated, laptop, write_generated

from app.events import Event, Payload
from app.feedback import FeedbackFold
from app.journal import SqliteJournalReader, history
from app.runtime.fold import Fold
from app.runtime.journal_replay import replay_journal
from app.runtime.registry import DAEMONS

pytestmark = pytest.mark.benchmark
EVENTS, ROUNDS = 100_000, 3
RUNS: dict[str, dict[str, Any]] = {
    "laptop: 5 configurations, 1 worker": {"settings": laptop()},
    "cluster: 12 configurations, 36 workers": {"settings": cluster(), "play_seconds": 30.0},
}
HOSTED = [FeedbackFold, *(controller for spec in DAEMONS.values() for controller in spec.controllers)]


def seconds(call: Any) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began


def one_round(reader: SqliteJournalReader) -> dict[str, float]:
    """Read the journal as typed events, then replay it."""
    reading = seconds(lambda: sum(1 for _ in history(reader)))
    replaying = seconds(lambda: replay_journal(reader))
    return {"reading alone, events/s": EVENTS / reading, "replay with all controllers, events/s": EVENTS / replaying}


def by_controller(events: list[Event[Payload]]) -> dict[str, float]:
    """Return the microseconds that each controller takes per event of the journal, FeedbackState folded before it."""
    alone = seconds(lambda: Fold((FeedbackFold,)).feed(events))
    costs = {FeedbackFold.name: alone}
    for controller in HOSTED[1:]:
        costs[controller.name] = seconds(lambda hosted=controller: Fold((FeedbackFold, hosted)).feed(events)) - alone
    return {name: 1e6 * cost / len(events) for name, cost in costs.items()}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", RUNS)
def test_replaying_beside_reading(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    events = list(generated(EVENTS, seed=1, **RUNS[name]))
    write_generated(tmp_path / "journal.sqlite", events)
    mix = Counter(event.data.seed_name for event in events)
    costs = by_controller(events[: EVENTS // 4])
    del events
    gc.collect()
    gc.freeze()
    with closing(SqliteJournalReader(tmp_path / "journal.sqlite")) as reader:
        report = replay_journal(reader)
        rounds = [one_round(reader) for _ in range(ROUNDS)]
    gc.unfreeze()
    assert (report.position, report.differing) == (EVENTS, 0)
    figures = {figure: median(one[figure] for one in rounds) for figure in rounds[0]}
    with capsys.disabled():
        sys.stdout.write(
            f"\n{name}\n  " + ", ".join(f"{n / EVENTS:.1%} {what}" for what, n in mix.most_common(8)) + "\n"
        )
        for figure, value in figures.items():
            values = [one[figure] for one in rounds]
            sys.stdout.write(f"  {figure:<46} {value:>10,.0f}   ({min(values):,.0f} … {max(values):,.0f})\n")
        for controller, cost in sorted(costs.items(), key=lambda pair: -pair[1]):
            sys.stdout.write(f"  {controller:<46} {cost:>10.2f} us/event\n")
    reading, replaying = figures.values()
    assert replaying > 0.2 * reading
