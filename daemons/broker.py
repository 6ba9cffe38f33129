"""The broker daemon: records the run's settings, then serves the journal and ticks."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import version
from itertools import count

import structlog

from flyball.app.backends import understood
from flyball.app.bus.access import Access
from flyball.app.bus.broker import Broker
from flyball.app.bus.ports import BrokerLimits
from flyball.app.config import RunSettings
from flyball.app.config.loading import Loaded
from flyball.app.core import BROKER, Clock, derive_id
from flyball.app.events import (
    ClockTick,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    Envelope,
    Payload,
    RunConfigured,
    originate,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.events.frames import Frame, frame_of, seal
from flyball.app.journal import Journal
from flyball.app.journal.history import last_settings, past_settings
from flyball.daemons.clock import MICROSECOND, RecordingClock
from flyball.daemons.spec import DaemonSpec
from flyball.daemons.suitability import check_lasting, incomparable_ratings
from flyball.daemons.supervisor import Notifier


class BrokerVoice:
    """Writes the broker's own events. ``boot`` identifies this start of the process."""

    def __init__(self, node: str, boot: str) -> None:
        self.source = f"{BROKER}@{node}"
        self.who = {"daemon": BROKER, "node": node}
        self._boot, self._numbers = boot, count()

    def write(self, now: datetime, *facts: Payload) -> list[Envelope[Payload]]:
        """Return facts as events without a cause."""
        return [
            originate(fact, event_id=derive_id(self.source, self._boot, next(self._numbers)), time=now)
            for fact in facts
        ]

    def record(self, journal: Journal, now: datetime, *facts: Payload) -> None:
        """Append facts to the journal directly, before or after the broker serves."""
        now_us = max((now - EPOCH) // MICROSECOND, journal.recorded_us)
        frame = Frame.parse(frame_of(self.write(now, *facts), producer=self.source, epoch=journal.head, base=0))
        sealed = seal(frame, first=journal.head + 1, recorded_us=now_us, source=self.source)
        journal.append([sealed], marks={(self.source, journal.head): len(facts)})


def configure(journal: Journal, settings: RunSettings, voice: BrokerVoice, now: datetime) -> None:
    """Record the run's settings, unless they are the journal's latest ones already.

    Knobs that a configuration's backend does not understand are left out.
    """
    settings = understood(settings)
    check_lasting(past_settings(journal), settings)
    if (earlier := last_settings(journal)) != settings:
        for warning in incomparable_ratings(earlier, settings) if earlier else ():
            structlog.get_logger("broker").warning(warning)
        run_id = derive_id("run", settings.seed, journal.head)
        voice.record(journal, now, RunConfigured(run_id=run_id, settings=settings.model_dump(mode="json")))


def begin(journal: Journal, settings: RunSettings, voice: BrokerVoice, clock: Clock) -> None:
    """Record the run's settings and the broker's start."""
    configure(journal, settings, voice, clock.now())
    started = DaemonStarted(**voice.who, pid=os.getpid(), version=version("flyball"))
    voice.record(journal, clock.now(), started, DaemonReady(**voice.who, position=journal.head, capacity=0))


@contextmanager
def stop_signals() -> Iterator[tuple[Callable[[], bool], int]]:
    """Make SIGTERM and SIGINT only set a flag.

    The signals also make a descriptor readable. Yields a function that returns whether the flag is set, and the
    descriptor.
    """
    received: list[int] = []
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.set_wakeup_fd(writer)
    handlers = {
        number: signal.signal(number, lambda signum, _frame: received.append(signum))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield lambda: bool(received), reader
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def serve(
    journal: Journal,
    endpoint: str,
    loaded: Loaded,
    voice: BrokerVoice,
    clock: Clock,
    *,
    access: Access | None = None,
    upkeep: Callable[[], None] = lambda: None,
) -> None:
    """Run the broker until SIGTERM or SIGINT, even during its start. ``upkeep`` is called in every turn."""
    settings, deployment = loaded.run, loaded.deployment
    notifier = Notifier()
    clock = RecordingClock(clock, journal.recorded_us, structlog.get_logger("broker").warning)
    watchdog_due = clock.monotonic()

    def on_loop() -> None:
        nonlocal watchdog_due
        upkeep()
        if clock.monotonic() >= watchdog_due:
            watchdog_due = clock.monotonic() + deployment.heartbeat_seconds
            notifier.tell("WATCHDOG=1")

    with stop_signals() as (stopped, wake_fd):
        begin(journal, settings, voice, clock)
        broker = Broker(
            journal,
            endpoint,
            clock,
            node=deployment.node,
            limits=BrokerLimits(silent_seconds=deployment.node_silent_seconds),
            tick_s=settings.tick_seconds,
            on_tick=lambda now: voice.write(now, ClockTick(period_seconds=settings.tick_seconds)),
            access=access,
            write=lambda now, facts: voice.write(now, *facts),
            on_loop=on_loop,
            give_up=stopped,
        )
        notifier.tell("READY=1", f"STATUS=serving {endpoint}")
        broker.run(stopped, wake_fd=wake_fd)
        notifier.tell("STOPPING=1")
        voice.record(journal, clock.now(), DaemonStopped(**voice.who, position=journal.head))


DAEMON = DaemonSpec(BROKER, "records every event, hands each to those who read it, ticks")
