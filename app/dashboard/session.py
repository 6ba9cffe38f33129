"""Signing in with the token, and out."""

from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from flyball.app.dashboard.access import Access, cookie_name
from flyball.app.dashboard.layout import render

MOST_BYTES = 65_536
"""Largest form that is read."""


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form. The last value of a repeated field counts. Empty for a form that is too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            return {}
    fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True)
    return {name: values[-1] for name, values in fields.items()}


def _local(path: str) -> str:
    """Return a path of this site; "/" for anything else. Otherwise a link could lead to another site."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else "/"


async def sign_in(request: Request) -> Response:
    """Show the form, or begin a session."""
    access: Access = request.app.state.access
    to = _local(request.query_params.get("to", "/"))
    if request.method != "POST":
        return render(request, "sign_in.html", to=to, wrong=False)
    fields = await form_of(request)
    if access.session is None or not access.is_token(fields.get("token", "").strip()):
        return render(request, "sign_in.html", status_code=403, to=to, wrong=True)
    response = RedirectResponse(_local(fields.get("to", "/")), status_code=303)
    secure = request.headers.get("x-forwarded-proto") == "https"
    response.set_cookie(cookie_name(request.headers), access.session, httponly=True, samesite="strict", secure=secure)
    return response


async def sign_out(request: Request) -> Response:
    """End the session."""
    response = RedirectResponse("/", status_code=303)
    response.delete_cookie(cookie_name(request.headers), httponly=True, samesite="strict")
    return response


ROUTES = (Route("/sign-in", sign_in, methods=["GET", "POST"]), Route("/sign-out", sign_out, methods=["POST"]))
