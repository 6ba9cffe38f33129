"""Replay of a laptop's and a cluster's journals by all controllers.

Replaying is compared with only reading, in one run. Run with
``pytest tests/benchmarks/bench_replay.py -m benchmark -s``. Figures are of processor time, the best of some rounds, as
other programs disturb; they depend on the machine all the same. So only ratios are asserted: to a plain loop that
parses the same events with the standard library's json, and does nothing with them. Records hold the events that the
broker would have recorded together: mostly one event.
"""

import gc
import json
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from generated_run import cluster, generated, laptop, write_generated

from flyball.app.controllers import FeedbackFold
from flyball.app.controllers.fold import Fold
from flyball.app.events import Event, Payload, encode
from flyball.app.journal import SqliteJournalReader, history
from flyball.app.replay.replaying import replay_journal
from flyball.daemons.registry import DAEMONS

pytestmark = pytest.mark.benchmark
EVENTS, ROUNDS = 50_000, 5
RUNS: dict[str, dict[str, Any]] = {
    "laptop: 5 configurations, 1 worker": {"settings": laptop()},
    "cluster: 12 configurations, 36 workers": {"settings": cluster(), "play_seconds": 30.0},
}
LEAST = dict(zip(RUNS, (0.06, 0.05), strict=True))
"""Share of the plain loop's events a second that a replay must reach: two thirds of a crowded machine's measure."""

HOSTED = [controller for spec in DAEMONS.values() for controller in spec.controllers]


PARSING, READING, REPLAYING = "json.loads of each event", "reading typed events", "replay through all controllers"


def seconds(call: Callable[[], object]) -> float:
    began = process_time()
    call()
    return process_time() - began


def one_round(reader: SqliteJournalReader, bodies: list[bytes]) -> dict[str, float]:
    """Return the processor seconds of parsing, of reading and of replaying."""
    return {
        PARSING: seconds(lambda: [None for body in bodies if json.loads(body) is None]),
        READING: seconds(lambda: sum(1 for _ in history(reader))),
        REPLAYING: seconds(lambda: replay_journal(reader)),
    }


def by_controller(events: list[Event[Payload]]) -> dict[str, float]:
    """Return microseconds an event of the journal, by controller. FeedbackState is folded before each of them."""
    alone = seconds(lambda: Fold((FeedbackFold,)).feed(events))
    costs = {FeedbackFold.name: alone}
    for controller in HOSTED:
        costs[controller.name] = seconds(lambda hosted=controller: Fold((hosted,)).feed(events)) - alone
    return {name: 1e6 * cost / len(events) for name, cost in costs.items()}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", RUNS)
def test_replaying_beside_reading(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    events = list(generated(EVENTS, seed=1, **RUNS[name]))
    write_generated(tmp_path / "journal.sqlite", events)
    mix = Counter(event.data.event_name for event in events)
    costs = by_controller(events[: EVENTS // 4])
    bodies = [encode(event.envelope) for event in events]
    del events
    gc.collect()
    gc.freeze()
    with closing(SqliteJournalReader(tmp_path / "journal.sqlite")) as reader:
        report = replay_journal(reader)
        rounds = [one_round(reader, bodies) for _ in range(ROUNDS)]
    gc.unfreeze()
    assert (report.position, report.differing) == (EVENTS, 0)
    best = {figure: EVENTS / min(one[figure] for one in rounds) for figure in rounds[0]}
    with capsys.disabled():
        shares = ", ".join(f"{n / EVENTS:.1%} {what}" for what, n in mix.most_common(8))
        sys.stdout.write(f"\n{name}\n  {shares}\n")
        for figure, value in best.items():
            others = ", ".join(f"{EVENTS / one[figure]:,.0f}" for one in rounds)
            sys.stdout.write(f"  {figure:<32} {value:>9,.0f} events/s, {value / best[PARSING]:.2f} of it ({others})\n")
        for controller, cost in sorted(costs.items(), key=lambda pair: -pair[1]):
            sys.stdout.write(f"  {controller:<32} {cost:>9.2f} us/event\n")
    assert best[READING] > 0.25 * best[PARSING]
    assert best[REPLAYING] > LEAST[name] * best[PARSING]
