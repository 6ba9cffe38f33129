"""Who may reach the dashboard, read it, and act in it (ADR-047).

A request is refused for a foreign Host, against DNS rebinding, and for a foreign Origin, against forged requests.
Writing needs the token, in a header or as a session's cookie; so does reading, once other machines can reach the
dashboard.
"""

import hmac
import os
from dataclasses import dataclass, field
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.config.dashboard import DashboardSettings
from app.core import FlyballError, reading

LEAST_TOKEN = 16
"""Fewest characters of a token."""

OPEN_PATHS = ("/static/", "/sign-in")
"""Paths that need no token."""

READING = frozenset({"GET", "HEAD"})
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class BadToken(FlyballError):
    """A token's file is unsafe or holds no token."""


def read_token(path: Path) -> str:
    """Read a token's file.

    Raises:
        BadToken: others may read the file, or it holds no token.
        UnusableFile: the file cannot be read.
    """
    with reading(path), path.open("rb") as file:
        mode, text = os.fstat(file.fileno()).st_mode, file.read(4096)
    if mode & 0o077:
        raise BadToken(f"{path} can be read by others (mode {mode & 0o777:o}).", hint=f"Run: chmod 600 {path}")
    token = text.decode("ascii", errors="replace").strip()
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
        """Return the access that the settings give; paths are relative to ``folder``. See ``read_token``."""
        token = None if settings.token is None else read_token(folder / settings.token)
        own = () if ip_address(settings.address).is_unspecified else (settings.address,)
        names = {name.lower() for name in ("localhost", "127.0.0.1", "::1", *own, *settings.names)}
        return cls(frozenset(names), token, settings.is_public)

    @property
    def session(self) -> str | None:
        """The cookie of a session. It ends when the token changes; nobody can compute it without the token."""
        return self.token and hmac.new(self.token.encode(), b"flyball dashboard", sha256).hexdigest()

    def knows(self, host: str) -> bool:
        """Return whether a Host header names this dashboard; its port does not matter, because ssh may map it."""
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        return name is not None and name in self.names

    def is_token(self, text: str) -> bool:
        """Return whether a text is the token."""
        return self.token is not None and hmac.compare_digest(text.encode(), self.token.encode())

    def admits(self, headers: Headers, cookie_name: str) -> bool:
        """Return whether a request carries the token, or the cookie of a session."""
        if self.session is None:
            return False
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.is_token(given.strip())
        return hmac.compare_digest(_cookie(headers, cookie_name).encode(), self.session.encode())


def cookie_name(request: Request) -> str:
    """Return the name of the session's cookie. It has the port, because cookies do not tell ports apart."""
    return _cookie_name(request.headers)


def _cookie_name(headers: Headers) -> str:
    return f"flyball_{urlsplit('//' + headers.get('host', '')).port or 0}"


def _cookie(headers: Headers, name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return found.value if found else ""


@dataclass(slots=True)
class Guard:
    """Middleware that refuses what may not come in, and adds the security headers to every response."""

    app: ASGIApp
    access: Access = field(kw_only=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. ``request.state.may_act`` says whether it carries the token."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        refused = self._refusal(scope, headers)
        if refused is None:
            scope.setdefault("state", {})["may_act"] = self.access.admits(headers, _cookie_name(headers))
            refused = self._unauthorized(scope)
        await (refused or self.app)(scope, receive, send_safely)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse a request that another site may have caused."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self.access.knows(host):
            return _refuse(421, f"This dashboard is not called {host!r}. Add the name to deployment.dashboard.names.")
        if origin is not None and urlsplit(origin).netloc != host:
            return _refuse(403, f"Requests from {origin!r} are refused.")
        if scope["method"] not in READING and origin is None and "authorization" not in headers:
            return _refuse(403, "A request that changes something needs an Origin header, or the token as a Bearer.")
        return None

    def _unauthorized(self, scope: Scope) -> Response | None:
        """Refuse a request that lacks the token."""
        path, reads = scope["path"], scope["method"] in READING
        if scope["state"]["may_act"] or path.startswith(OPEN_PATHS) or (reads and not self.access.private):
            return None
        if not reads or "text/html" not in Headers(scope=scope).get("accept", ""):
            return _refuse(403, "This needs the token: sign in, or send it as Authorization: Bearer TOKEN.")
        return RedirectResponse(f"/sign-in?to={quote(path)}", status_code=303)


def _refuse(code: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status_code=code)
