"""What several tests need: events as the broker would have recorded them."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count

import pytest

from app.events import Event, Payload, originate
from app.events.envelope import EPOCH

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
