"""The dashboard's address and token. They are apart from the server, because it takes long to import."""

import hmac
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path

from flyball.app.bus.keys import BadKey, read_private
from flyball.app.config.dashboard import DashboardSettings
from flyball.app.core import FlyballError
from flyball.app.core.hosts import LOOPBACK_NAMES, name_in

LEAST_TOKEN = 16
"""Fewest characters of a token."""


class BadToken(FlyballError, code="usage"):
    """A token's file is unsafe or holds no token."""


class AddressTaken(FlyballError):
    """The dashboard's address cannot be used. The usual cause is another program that listens there."""


def read_token(path: Path) -> str:
    """Read a token's file.

    Raises:
        BadToken: another user owns the file or may read it, or it holds no token.
        UnusableFile: the file cannot be read.
    """
    try:
        token = read_private(path)
    except BadKey as error:
        raise BadToken(error.message, hint=error.hint) from error
    if len(token) < LEAST_TOKEN or not token.isprintable() or not token.isascii():
        raise BadToken(
            f"{path} holds no token of at least {LEAST_TOKEN} printable ASCII characters.",
            hint=f"Make one: (umask 077; openssl rand -hex 32 > {path})",
        )
    return token


@dataclass(frozen=True, slots=True)
class Access:
    """Names that the dashboard answers to, and its token.

    Attributes:
        names: admitted host names, in lower case.
        token: the token; ``None``: nobody may act.
        private: whether reading needs the token.
    """

    names: frozenset[str]
    token: str | None
    private: bool

    @classmethod
    def of(cls, settings: DashboardSettings, folder: Path) -> "Access":
        """Return the access that settings give; paths are relative to ``folder``. Raises as ``read_token``."""
        token = None if settings.token is None else read_token(folder / settings.token)
        own = () if ip_address(settings.address).is_unspecified else (settings.address,)
        names = {name.lower() for name in (*LOOPBACK_NAMES, *own, *settings.names)}
        return cls(frozenset(names), token, settings.is_public)

    @property
    def session(self) -> str | None:
        """The cookie of a session; ``None`` without a token.

        The session ends when the token changes. Nobody can compute the cookie without the token.
        """
        return self.token and hmac.new(self.token.encode(), b"flyball dashboard", sha256).hexdigest()

    def knows(self, host: str) -> bool:
        """Return whether a Host header names this dashboard."""
        return name_in(host) in self.names

    def is_token(self, text: str) -> bool:
        """Return whether a text is the token."""
        return self.token is not None and hmac.compare_digest(text.encode(), self.token.encode())

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request carries the token or a session's cookie."""
        if self.session is None:
            return False
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.is_token(credentials.strip())
        return hmac.compare_digest(_cookie(headers).encode(), self.session.encode())


def cookie_name(headers: Mapping[str, str]) -> str:
    """Return the session cookie's name, with the port, because browsers send a host's cookies to all its ports."""
    return f"flyball_{headers.get('host', '').rpartition(':')[2]}".replace("]", "")


def _cookie(headers: Mapping[str, str]) -> str:
    """Return the session's cookie; empty without one.

    ``SimpleCookie`` is not used, because it drops all cookies if one is not standard, and other servers on localhost
    may set such a cookie.
    """
    pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
    return next((value for name, _, value in pairs if name == cookie_name(headers)), "")


def listen(settings: DashboardSettings) -> socket.socket:
    """Return a socket that listens at the dashboard's address. Raises ``AddressTaken``."""
    family = socket.AF_INET6 if ip_address(settings.address).version == 6 else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((settings.address, settings.port))
        server.listen(128)
    except OSError as error:
        server.close()
        raise AddressTaken(
            f"The dashboard cannot listen at {settings.address} port {settings.port}: {error.strerror}.",
            hint="Set deployment.dashboard.port, for instance to 0 for any free port.",
        ) from error
    return server


def url_of(server: socket.socket) -> str:
    """Return the address to open in a browser on this machine."""
    return url_at(*server.getsockname()[:2])


def url_at(host: str, port: int) -> str:
    """Return the address to open in a browser on this machine. ``host`` and ``port`` are where the server listens."""
    address = ip_address(host)
    name = "localhost" if address.is_unspecified else f"[{host}]" if address.version == 6 else host
    return f"http://{name}:{port}/"
