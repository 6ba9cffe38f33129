"""Access to the dashboard, for reading and for actions (ADR-035).

A request is refused for a foreign Host, against DNS rebinding, and for a foreign Origin, against forged requests.
Writing needs the token, in a header or as a session's cookie; so does reading, once other machines can reach the
dashboard.
"""

from dataclasses import dataclass, field
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flyball.app.dashboard.access import Access

OPEN_PATHS = ("/static/", "/sign-in")
"""Paths that need no token."""

READING = frozenset({"GET", "HEAD"})
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # without a referrer, browsers would send forms with Origin: null
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(slots=True)
class Guard:
    """Middleware that refuses unsafe requests and adds security headers to responses."""

    app: ASGIApp
    access: Access = field(kw_only=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. ``request.state.may_act`` says whether the request carries the token."""
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
            scope.setdefault("state", {})["may_act"] = self.access.admits(headers)
            refused = self._unauthorized(scope)
        await (refused or self.app)(scope, receive, send_safely)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse a request that another site may have caused."""
        host, origin = ",".join(headers.getlist("host")), headers.get("origin")
        if not self.access.knows(host):
            return _refuse(421, f"This dashboard is not called {host!r}. Add the name to deployment.dashboard.names.")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
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
