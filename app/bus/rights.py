"""Rights of clients. The broker checks a frame's header; readers refuse events that contradict it."""

from app.core import FlyballError
from app.events import RunConfigured
from app.events.frames import Frame

BROKER_ONLY = frozenset({RunConfigured.event_type})
"""Types that the broker alone publishes: settings are validated against the run's past before they count."""


class NotPermitted(FlyballError):
    """A client published an event of a type in ``BROKER_ONLY``."""


def check_rights(frame: Frame) -> None:
    """Refuse a client's frame that holds an event of a type in ``BROKER_ONLY``.

    Raises:
        NotPermitted: the frame holds such an event; names the types.
    """
    if reserved := sorted(BROKER_ONLY.intersection(frame.types)):
        raise NotPermitted(
            f"Only the broker publishes {', '.join(reserved)}.",
            hint="To change a run's settings, change flyball.toml and start the run again.",
        )
