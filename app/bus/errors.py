"""Errors of the bus."""

from app.core import FlyballError


class BusError(FlyballError):
    """Base of the bus's errors."""


class BrokerUnavailable(BusError):
    """The broker did not acknowledge in time.

    Attributes:
        endpoint: its address.
        seconds: the deadline.
        queued: the event is in the durable outbox and will be sent when the broker is back, also by another
            process with the same outbox. Otherwise it is in this process's memory only.
    """

    def __init__(self, endpoint: str, seconds: float, *, queued: bool) -> None:
        fate = (
            "The event is kept in the outbox and will be sent."
            if queued
            else "The event is kept in memory only: publish it again under the same id, that records it once."
        )
        super().__init__(
            f"The broker at {endpoint} did not acknowledge within {seconds:g} s. {fate}",
            hint="Look whether the broker runs: `flyball status`.",
        )
        self.endpoint, self.seconds, self.queued = endpoint, seconds, queued


class PublishRefused(BusError):
    """The broker refused a frame; publishing it unchanged will fail again."""


class EventTooLarge(BusError):
    """An event is larger than the bus carries."""


class InsecureEndpoint(BusError):
    """Other machines can reach the address, and nothing would protect it."""


class BusClosed(BusError):
    """The bus was closed."""
