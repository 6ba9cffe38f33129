"""Host names in addresses and in requests."""

import re
from ipaddress import ip_address

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names under which a browser on this machine asks for a server of this machine."""

HOST = re.compile(r"(\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z._-]+))(:[0-9]*)?")
"""A Host header: RFC 9110, 7.2. Names of hosts have no other characters."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def name_in(header: str) -> str | None:
    """Return the host name in a Host header, in lower case.

    None if the header is anything else than one name with or without a port, because a proxy may read another name in
    it than we do. The port is ignored, because ssh may map it.
    """
    match = HOST.fullmatch(header)
    return match and (match["address"] or match["name"]).lower()
