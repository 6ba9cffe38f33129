"""POST requests to webhooks.

They run on asyncio, so that a slow server delays nothing else and an attempt can be cancelled. No proxies and no
redirects: a webhook that answers with a redirect has another address.
"""

import asyncio
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from urllib.parse import urlsplit

from app.core import FlyballError

MOST_HEADER_BYTES = 1 << 16
LONGEST_RETRY_SECONDS = 3600.0
"""Longest wait that a server may ask for."""

FINAL = frozenset({400, 413, 415, 422})
"""Statuses that refuse this message whenever it is sent.

Other statuses may be about the address, the token, or the moment.
"""

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?\r\n")


class Undelivered(FlyballError):
    """A receiver did not take a message.

    Attributes:
        retry_seconds: the wait that the receiver asks for; ``None``: it asks for none.
        is_final: whether the receiver would refuse the same message again.
    """

    def __init__(
        self, message: str, *, hint: str = "", retry_seconds: float | None = None, is_final: bool = False
    ) -> None:
        super().__init__(message, hint=hint or "It is tried again.")
        self.retry_seconds, self.is_final = retry_seconds, is_final


async def post(url: str, body: bytes, headers: Mapping[str, str], now: datetime) -> None:
    """Send a POST request; return once the server accepts it (2xx).

    Args:
        url: of HTTP or HTTPS; errors do not show its path, which may hold a secret.
        body: the request's content.
        headers: in addition to ``Host``, ``Content-Length``, ``Connection`` and ``User-Agent``.
        now: the time of day, for a server that names the time of the next attempt.

    Raises ``Undelivered``. There is no limit on time: the caller sets one.
    """
    parts = urlsplit(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = {
        "Host": parts.netloc.rpartition("@")[2],
        "User-Agent": f"flyball/{version('flyball')}",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **headers,
    }
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    if any(unsafe in target + value for value in lines.values() for unsafe in "\r\n"):
        raise Undelivered(f"The address or token of {host} has a line break in it.", is_final=True)
    request = f"POST {target} HTTP/1.1\r\n{text}\r\n".encode() + body
    try:
        reader, writer = await asyncio.open_connection(
            host,
            parts.port or (443 if secure else 80),
            ssl=ssl.create_default_context() if secure else None,
            limit=MOST_HEADER_BYTES,
        )
        try:
            writer.write(request)
            await writer.drain()
            status, answer = await _answer(reader)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
    except (OSError, UnicodeError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise Undelivered(f"{host} cannot be reached: {str(error) or type(error).__name__}.") from error
    _check(host, status, answer, now)


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the status and the headers of an answer.

    Informational answers (1xx) that come before it are skipped.
    """
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        found = _STATUS.match(head)
        status = int(found[1]) if found else 0
        if not 100 <= status < 200:
            return status, head


def _check(host: str, status: int, head: bytes, now: datetime) -> None:
    """Raise ``Undelivered`` unless a status means that the message was accepted."""
    if 200 <= status < 300:
        return
    if not status:
        raise Undelivered(f"{host} does not speak HTTP.", hint="Look at the port of its address.")
    hint = "The address or token may be wrong." if 300 <= status < 500 and status not in (408, 425, 429) else ""
    raise Undelivered(
        f"{host} answered {status}.",
        hint=hint,
        retry_seconds=retry_after(head, now),
        is_final=status in FINAL,
    )


def retry_after(head: bytes, now: datetime) -> float | None:
    """Return the wait that the header ``Retry-After`` asks for.

    In seconds, at most an hour; ``None`` without the header. Source: RFC 9110, 10.2.3: a number of seconds, or a date.
    """
    found = re.search(rb"(?i)\r\nretry-after:[ \t]*([^\r\n]*)", head)
    if found is None:
        return None
    text = found[1].decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), LONGEST_RETRY_SECONDS)
    try:
        until = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    seconds = (until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds()
    return min(max(0.0, seconds), LONGEST_RETRY_SECONDS)
