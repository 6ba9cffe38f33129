"""Names of real processes on the bus, and reports of loss (ADR-009).

One process has a name, and others wait for it. A killed process is reported as lost.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
import structlog
from bus_rig import address, broker_thread, expect, program, until

from flyball.app.api.runs import locate_run, read_status, silent
from flyball.app.bus import ZmqBus
from flyball.app.bus.ports import BrokerLimits, Sign
from flyball.app.core import derive_id
from flyball.app.events import DaemonReady, NodeLost, NodeReturned, originate
from flyball.app.journal import history
from flyball.app.journal.memory import MemoryJournal
from flyball.daemons.broker import BrokerVoice
from flyball.daemons.clock import SystemClock

NAME = "training@gpu1"
WHO = {"daemon": "training", "node": "gpu1"}
PATIENT = BrokerLimits(silent_seconds=1e6)
STRICT = BrokerLimits(silent_seconds=2.0)


@contextmanager
def broker(journal: MemoryJournal, folder: Path, limits: BrokerLimits) -> Iterator[None]:
    voice = BrokerVoice("head", derive_id("boot", journal.head))
    with broker_thread(journal, address(folder), limits=limits, write=lambda now, facts: voice.write(now, *facts)):
        yield


def living(folder: Path) -> Any:
    """Run a program under the name; it shows life until it ends."""
    return program("live", folder, file=__file__)


def waits_for(process: Popen[str], holder: Popen[str]) -> None:
    """Wait until a program says that another has its name."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert f"{NAME} is another process's name: process {holder.pid} on " in line
    assert " has it since 20" in line


@pytest.mark.parametrize("end", [Popen.kill, Popen.terminate])
def test_second_process_of_a_name_waits_for_the_first_s_end(tmp_path: Path, end: Any) -> None:
    """A broken connection frees a name, as the broker is patient."""
    with broker(MemoryJournal(), tmp_path, PATIENT), living(tmp_path) as first:
        expect(first, "ready")
        with living(tmp_path) as second:
            waits_for(second, first)
            end(first)
            expect(second, "ready")


def test_silent_process_loses_its_name_and_waits_for_it(tmp_path: Path) -> None:
    with broker(MemoryJournal(), tmp_path, STRICT), living(tmp_path) as first:
        expect(first, "ready")
        with living(tmp_path) as second:
            waits_for(second, first)
            first.send_signal(signal.SIGSTOP)
            expect(second, "ready")
            first.send_signal(signal.SIGCONT)
            waits_for(first, second)


def reported(journal: MemoryJournal, kind: type[Any]) -> list[Any]:
    return [event.data for event in history(journal, types={kind})]


@pytest.mark.parametrize("restarted", [False, True], ids=["broker goes on", "broker starts again"])
async def test_killed_process_is_reported_as_lost(tmp_path: Path, *, restarted: bool) -> None:
    journal = MemoryJournal()
    with living(tmp_path) as process:
        with broker(journal, tmp_path, PATIENT if restarted else STRICT):
            await asyncio.to_thread(expect, process, "ready")
            process.kill()
            if not restarted:
                await until(lambda: reported(journal, NodeLost))
        if restarted:
            with broker(journal, tmp_path, STRICT):
                await until(lambda: reported(journal, NodeLost))
    (lost,) = reported(journal, NodeLost)
    assert (lost.daemon, lost.node) == ("training", "gpu1")
    assert lost.silent_seconds >= STRICT.silent_seconds


async def test_stopped_process_returns_when_it_goes_on(tmp_path: Path) -> None:
    journal = MemoryJournal()
    with broker(journal, tmp_path, STRICT), living(tmp_path) as process:
        await asyncio.to_thread(expect, process, "ready")
        process.send_signal(signal.SIGSTOP)
        await until(lambda: reported(journal, NodeLost))
        process.send_signal(signal.SIGCONT)
        await until(lambda: reported(journal, NodeReturned))
    (returned,) = reported(journal, NodeReturned)
    assert returned.silent_seconds >= STRICT.silent_seconds
    assert len(reported(journal, DaemonReady)) == 1


async def test_broker_that_starts_again_loses_no_living_process(tmp_path: Path) -> None:
    journal = MemoryJournal()
    with living(tmp_path) as process:
        with broker(journal, tmp_path, STRICT):
            await asyncio.to_thread(expect, process, "ready")
        with broker(journal, tmp_path, STRICT):
            bus = ZmqBus(address(tmp_path), producer="cli@head", deadline_s=20)
            while not [one for one in await bus.present() if one.sign and one.heard_seconds_ago < 0.5]:
                await asyncio.sleep(0.05)
            await bus.close()
    assert not reported(journal, NodeLost)


def test_status_from_another_machine_comes_from_the_broker(tmp_path: Path) -> None:
    """The folder there has settings, but no journal."""
    journal, elsewhere = MemoryJournal(), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "flyball.toml").write_text(f'[deployment]\nendpoint = "{address(tmp_path)}"\n')
    with broker(journal, tmp_path, STRICT), living(tmp_path) as process:
        expect(process, "ready")
        while (status := read_status(locate_run(elsewhere), silent)).daemons[0].lag != 0:
            pass
    assert status.running
    assert [(one.daemon, one.node, one.state, one.jobs) for one in status.daemons] == [("training", "gpu1", "ready", 0)]
    assert not (elsewhere / "journal.sqlite").exists()


async def _live(folder: Path) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    bus = ZmqBus(address(folder), producer=NAME, deadline_s=60, sole=True)
    ready = DaemonReady(**WHO, position=0, capacity=1)
    await bus.publish(originate(ready, event_id=derive_id("live", os.getpid()), time=SystemClock().now()))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not stopped.is_set():
        bus.show_life(Sign(position=0, lag=0, jobs=0, requests=0))
        await asyncio.sleep(0.1)
    await bus.close()


if __name__ == "__main__":
    structlog.configure(
        processors=[structlog.processors.KeyValueRenderer()], logger_factory=structlog.PrintLoggerFactory(sys.stdout)
    )
    asyncio.run(_live(Path(sys.argv[2])))
