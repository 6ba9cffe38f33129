"""Telling systemd how we are (sd_notify(3)). Fifteen lines: the packages for it are unmaintained or need libsystemd."""

import os
import socket


class Notifier:
    """Sends states to the socket that systemd names in ``NOTIFY_SOCKET``; without one, does nothing."""

    def __init__(self, address: str | None = None) -> None:
        address = address if address is not None else os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def tell(self, *states: str) -> None:
        """Send states such as ``READY=1``, ``WATCHDOG=1``, ``STOPPING=1``, ``STATUS=text``."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
            notify.connect(self._address)
            notify.sendall("\n".join(states).encode())
