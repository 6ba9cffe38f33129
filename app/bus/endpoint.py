"""Addresses."""

from ipaddress import ip_address

import zmq

from app.bus.errors import BusError, InsecureEndpoint


def check_endpoint(endpoint: str) -> None:
    """Refuse an address that other machines can reach: nothing would keep them out.

    Raises:
        InsecureEndpoint: the address is neither a file, nor within the process, nor on the loopback interface.
    """
    transport, _, rest = endpoint.partition("://")
    if transport in ("ipc", "inproc"):
        return
    host = rest.rpartition(":")[0].strip("[]")
    if transport == "tcp" and (host == "localhost" or _is_loopback(host)):
        return
    raise InsecureEndpoint(
        f"The bus will not listen at {endpoint}: other machines could connect, and nothing would keep them out.",
        hint="Use ipc:///path or tcp://127.0.0.1:port.",
    )


def cannot_bind(endpoint: str, error: zmq.ZMQError) -> BusError:
    """Explain why listening failed."""
    taken = error.errno == zmq.EADDRINUSE
    hint = "Another broker listens there: stop it, or choose another address." if taken else "Look at the address."
    return BusError(f"The broker cannot listen at {endpoint}: {error.strerror}.", hint=hint)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
