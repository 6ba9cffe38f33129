"""Reaching the broker from a command."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from app.bus import ZmqBus
from app.cli.place import Place
from app.core import FlyballError
from app.runtime.settings import Loaded
from app.runtime.sockets import bus_endpoint

PROBE_SECONDS = 2.0


class NotRunning(FlyballError):
    """No broker answers."""


def is_listening(endpoint: str) -> bool:
    """Return whether anybody listens at the address of a broker."""
    transport, _, rest = endpoint.partition("://")
    with suppress(OSError):
        if transport == "ipc":
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(PROBE_SECONDS)
                probe.connect(rest)
                return True
        host, _, port = rest.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_SECONDS):
            return True
    return False


@asynccontextmanager
async def connected(place: Place, loaded: Loaded, deadline_s: float) -> AsyncIterator[ZmqBus]:
    """Connect to the run's broker, as the producer ``cli@node``.

    Raises:
        NotRunning: nobody listens at its address.
    """
    endpoint = bus_endpoint(place.folder, loaded.deployment)
    if not is_listening(endpoint):
        raise NotRunning(f"No broker listens at {endpoint}.", hint=f"Start it: flyball --run {place.folder.path} up")
    bus = ZmqBus(endpoint, producer=f"cli@{loaded.deployment.node}", deadline_s=deadline_s)
    try:
        yield bus
    finally:
        await bus.close()
