"""Roll calls agree with the journal before them. This holds also while daemons come and go."""

from functools import partial
from pathlib import Path

import pytest
from bus_rig import broker_thread

from flyball.app.bus import ZmqBus, presence
from flyball.app.events import DaemonReady, DaemonStopped, RollCall, originate
from flyball.app.journal import history
from flyball.app.journal.memory import MemoryJournal
from flyball.daemons.broker import BrokerVoice
from flyball.daemons.clock import SystemClock

ROUNDS = 30


async def test_roll_call_lists_the_daemons_of_the_journal_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """List the daemons that have not stopped."""
    monkeypatch.setattr(presence, "ROLL_CALL_EVENTS", 1)
    journal, clock, voice = MemoryJournal(), SystemClock(), BrokerVoice("head", "boot")
    who = partial(dict, daemon="training", node="gpu")
    with broker_thread(journal, f"ipc://{tmp_path}/bus", write=lambda now, facts: voice.write(now, *facts)) as broker:
        bus = ZmqBus(broker.endpoint, producer="training@gpu")
        for number in range(ROUNDS):
            for fact in (DaemonReady(**who(), position=0, capacity=1), DaemonStopped(**who(), position=0)):
                event_id = f"{number} {fact.event_name}"
                await bus.publish(originate(fact, event_id=event_id, time=clock.now()))
        await bus.close()
    present, calls = set[str](), 0
    for event in history(journal):
        match event.data:
            case DaemonReady(daemon=daemon):
                present.add(daemon)
            case DaemonStopped(daemon=daemon):
                present.remove(daemon)
            case RollCall(daemons=daemons):
                calls += 1
                assert {one.daemon for one in daemons} == present
    assert calls >= ROUNDS
