"""POST requests to webhooks.

No proxies and no redirects: a webhook that answers with a redirect has another address.
"""

import logging
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from urllib.parse import urlsplit

from flyball.app.core import FlyballError

for _library in ("httpx2", "httpcore2"):
    logging.getLogger(_library).setLevel(logging.WARNING)  # they log addresses, which may hold a secret

LONGEST_RETRY_SECONDS = 3600.0
"""Longest wait that a server may ask for."""

FINAL = frozenset({400, 413, 415, 422})
"""Statuses that refuse this message whenever it is sent.

Other statuses may be about the address, the token, or the moment.
"""


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
        headers: in addition to those of the HTTP library.
        now: the time of day, for a server that names the time of the next attempt.

    Raises ``Undelivered``. There is no limit on time: the caller sets one.
    """
    from httpx2 import AsyncClient, Auth, HTTPError, InvalidURL, LocalProtocolError, RemoteProtocolError

    host = urlsplit(url).hostname or ""
    fields = {"User-Agent": f"flyball/{version('flyball')}", **headers}
    encoded = {name.encode(): value.encode() for name, value in fields.items()}  # a token need not be ASCII
    try:
        async with (
            AsyncClient(verify=ssl.create_default_context(), trust_env=False, timeout=None) as client,
            # ``Auth`` adds nothing; without it, a name in the address would replace the token.
            client.stream("POST", url, content=body, headers=encoded, auth=Auth()) as answer,
        ):
            _check(host, answer.status_code, answer.headers.get("retry-after"), now)
    except LocalProtocolError:  # its text has the token in it
        raise Undelivered(f"The token of {host} has a line break or the like in it.", is_final=True) from None
    except RemoteProtocolError as error:
        raise Undelivered(f"{host} does not speak HTTP: {error}", hint="Look at the port of its address.") from error
    except (HTTPError, InvalidURL, UnicodeError) as error:
        raise Undelivered(f"{host} cannot be reached: {str(error) or type(error).__name__}.") from error


def _check(host: str, status: int, wait: str | None, now: datetime) -> None:
    """Raise ``Undelivered`` unless a status means that the message was accepted."""
    if 200 <= status < 300:
        return
    hint = "The address or token may be wrong." if 300 <= status < 500 and status not in (408, 425, 429) else ""
    raise Undelivered(
        f"{host} answered {status}.",
        hint=hint,
        retry_seconds=None if wait is None else retry_after(wait, now),
        is_final=status in FINAL,
    )


def retry_after(text: str, now: datetime) -> float | None:
    """Return the wait that a header ``Retry-After`` asks for, in seconds, at most an hour; ``None``: unreadable.

    Source: RFC 9110, 10.2.3: a number of seconds, or a date.
    """
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), LONGEST_RETRY_SECONDS)
    try:
        until = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    seconds = (until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds()
    return min(max(0.0, seconds), LONGEST_RETRY_SECONDS)
