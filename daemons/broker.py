"""The broker daemon: opens the journal, records the run's settings first, then serves and ticks."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count

import structlog

from app.bus import Broker
from app.config import Deployment, RunSettings
from app.config.loading import Loaded
from app.core import BROKER, Clock, derive_id
from app.events import (
    ClockTick,
    DaemonHeartbeat,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    Envelope,
    Payload,
    RunConfigured,
    originate,
)
from app.events.envelope import EPOCH
from app.events.frames import Frame, frame_of, seal
from app.journal import Journal
from app.journal.history import last_settings, past_settings
from daemons.clock import RecordingClock
from daemons.notify import Notifier
from daemons.spec import DaemonSpec
from daemons.suitability import check_lasting

MICROSECOND = timedelta(microseconds=1)


class BrokerVoice:
    """Events of the broker: its life, and the clock's ticks."""

    def __init__(self, deployment: Deployment, boot: str, version: str) -> None:
        self.source = f"{BROKER}@{deployment.node}"
        self._who = {"daemon": BROKER, "node": deployment.node}
        self._boot, self._version, self._said = boot, version, count()

    def write(self, now: datetime, *facts: Payload) -> list[Envelope[Payload]]:
        """Write facts as events of their own."""
        return [
            originate(fact, event_id=derive_id(self.source, self._boot, next(self._said)), time=now) for fact in facts
        ]

    def hello(self, now: datetime, head: int) -> list[Envelope[Payload]]:
        """Say that the broker has started and is ready."""
        started = DaemonStarted(**self._who, pid=os.getpid(), version=self._version)
        return self.write(now, started, DaemonReady(**self._who, position=head, capacity=0))

    def beat(self, now: datetime, head: int, period: float) -> list[Envelope[Payload]]:
        """Say that time has passed, and that the broker lives."""
        heartbeat = DaemonHeartbeat(**self._who, position=head, lag=0, jobs=0, requests=())
        return self.write(now, ClockTick(period_seconds=period), heartbeat)

    def goodbye(self, now: datetime, head: int) -> list[Envelope[Payload]]:
        """Say that the broker leaves."""
        return self.write(now, DaemonStopped(**self._who, position=head))


def record(journal: Journal, envelopes: Sequence[Envelope[Payload]], source: str, now: datetime) -> None:
    """Append the broker's own events before it serves, or after."""
    now_us = max((now - EPOCH) // MICROSECOND, journal.recorded_us)
    frame = Frame.parse(frame_of(envelopes, producer=source, epoch=journal.head, base=0))
    sealed = seal(frame, first=journal.head + 1, recorded_us=now_us, source=source)
    journal.append([sealed], marks={(source, journal.head): len(envelopes)})


def configure(journal: Journal, settings: RunSettings, voice: BrokerVoice, now: datetime) -> None:
    """Make the run's settings the journal's latest, if they aren't; in a new journal they come first."""
    check_lasting(past_settings(journal), settings)
    if last_settings(journal) != settings:
        run_id = derive_id("run", settings.seed, journal.head)
        configured = RunConfigured(run_id=run_id, settings=settings.model_dump(mode="json"))
        record(journal, voice.write(now, configured), voice.source, now)


@contextmanager
def stop_signals() -> Iterator[tuple[Callable[[], bool], int]]:
    """Within it, SIGTERM and SIGINT only set a flag and make a descriptor readable: yields (is it set, descriptor)."""
    asked: list[int] = []
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.set_wakeup_fd(writer)
    handlers = {
        number: signal.signal(number, lambda received, _frame: asked.append(received))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield lambda: bool(asked), reader
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def serve(journal: Journal, endpoint: str, loaded: Loaded, voice: BrokerVoice, clock: Clock) -> None:
    """Run the broker until SIGTERM or SIGINT, which also cut its start short."""
    settings, deployment = loaded.run, loaded.deployment
    notifier = Notifier()
    clock = RecordingClock(clock, journal.recorded_us, structlog.get_logger("broker").warning)
    with stop_signals() as (stopped, wake_fd):
        configure(journal, settings, voice, clock.now())
        record(journal, voice.hello(clock.now(), journal.head), voice.source, clock.now())
        broker = Broker(
            journal,
            endpoint,
            clock,
            node=deployment.node,
            tick_s=settings.tick_seconds,
            on_tick=lambda now: voice.beat(now, journal.head, settings.tick_seconds),
            on_loop=_watchdog(notifier, clock, deployment.heartbeat_seconds),
            give_up=stopped,
        )
        notifier.tell("READY=1")
        broker.run(stopped, wake_fd=wake_fd)
        notifier.tell("STOPPING=1")
        record(journal, voice.goodbye(clock.now(), journal.head), voice.source, clock.now())


def _watchdog(notifier: Notifier, clock: Clock, period: float) -> Callable[[], None]:
    due = [clock.monotonic()]

    def on_loop() -> None:
        if clock.monotonic() >= due[0]:
            due[0] = clock.monotonic() + period
            notifier.tell("WATCHDOG=1")

    return on_loop


DAEMON = DaemonSpec(BROKER, "records every event, hands each to those who read it, ticks")
