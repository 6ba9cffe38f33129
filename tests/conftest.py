"""What several tests need: events as the broker would have recorded them."""

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, settings

from app.events import Event, Payload, originate
from app.events.envelope import EPOCH

# One thread a process: torch's threads fight over busy cores, and jobs in this process get many times slower.
os.environ["OMP_NUM_THREADS"] = "1"

# A shell that runs tests in the background has them ignore Ctrl-C, and so would every command that they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no fault of the code's.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

Recorder = Callable[..., Event[Payload]]


@pytest.fixture
def record() -> Recorder:
    """Return a function that records payloads, one second apart: ``record(payload, subject, at=seconds)``."""
    sequence = count(1)

    def recorded(data: Payload, subject: str | None = None, at: float | None = None) -> Event[Payload]:
        position = next(sequence)
        seconds = position if at is None else at
        time = EPOCH + timedelta(seconds=seconds)
        envelope = originate(data, event_id=f"event-{position}", time=time, subject=subject)
        return Event(envelope, position, int(seconds * 1e6), "test@laptop")

    return recorded
