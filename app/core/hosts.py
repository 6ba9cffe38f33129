"""Host names in addresses and in requests."""

from ipaddress import ip_address
from urllib.parse import urlsplit

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names under which a browser on this machine asks for a server of this machine."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def name_in(header: str) -> str | None:
    """Return the host name in a Host header, in lower case.

    None if the header has no name. The port is ignored, because ssh may map it.
    """
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None
