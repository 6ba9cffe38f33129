"""Access to a broker: accepted keys and their rights, without sockets."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path

import structlog

from flyball.app.bus.keys import Key, KeyList, KeyPair, Role
from flyball.app.bus.ports import InsecureEndpoint, PublishRefused
from flyball.app.core import NAME_LENGTH, FlyballError
from flyball.app.events import AccessRefused, RefusalReason
from flyball.app.events.frames import Frame

REPORT_S = 60.0
"""Seconds between two reports of one key and reason."""

ZAP_VERSION = b"1.0"

Rights = Mapping[Role, frozenset[str]]
"""The event types that each role may publish."""


class KeyRefused(PublishRefused):
    """The broker does not admit a key, or forbids an action."""


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """A client's key pair, and the public key of its broker."""

    own: KeyPair
    broker: str


def check_endpoint(endpoint: str, *, secured: bool) -> None:
    """Refuse an address that other machines can reach unless it is ``secured`` by keys. Raises ``InsecureEndpoint``."""
    transport, _, rest = endpoint.partition("://")
    if secured or transport in ("ipc", "inproc"):
        return
    host = rest.rpartition(":")[0].strip("[]")
    with suppress(ValueError):  # a host name, not an IP address
        if transport == "tcp" and (host == "localhost" or ip_address(host).is_loopback):
            return
    raise InsecureEndpoint(
        f"The bus is not used at {endpoint} without keys: other machines could connect, and nothing would keep "
        "them out.",
        hint="Make keys: flyball keys new NAME; then set deployment.keys. Or use ipc:///path or tcp://127.0.0.1:port.",
    )


class Refusals:
    """Counts refusals, and limits their reports.

    Each key and reason is reported at most once a minute. All unknown keys share a report, because a stranger can make
    any number of keys.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str | None, RefusalReason], AccessRefused] = {}
        self._reported: dict[tuple[str | None, RefusalReason], float] = {}

    def add(self, key: Key | None, reason: RefusalReason, address: str, detail: str) -> None:
        """Count a refusal; the report shows the latest address and detail."""
        who = key.name if key else None
        before = self._open.get((who, reason))
        self._open[who, reason] = AccessRefused(
            key=who,
            role=key.role if key else None,
            reason=reason,
            address=address[:NAME_LENGTH] or "unknown",
            detail=detail,
            count=1 + (before.count if before else 0),
        )

    def due(self, now: float) -> list[AccessRefused]:
        """Return the reports that are due. ``now`` is in seconds of the monotonic clock."""
        if not self._open:
            return []
        due = [kind for kind in self._open if now - self._reported.get(kind, -REPORT_S) >= REPORT_S]
        self._reported = {kind: at for kind, at in self._reported.items() if now - at < REPORT_S}
        self._reported |= dict.fromkeys(due, now)
        return [self._open.pop(kind) for kind in due]


@dataclass
class Access:
    """A broker's secret key, its list of keys, and roles' rights.

    The list is read again whenever its file changes. If the file cannot be read, the error is logged and the previous
    list stays in force.

    Args:
        pair: the broker's key pair.
        path: the file with the list.
        rights: the event types of each role.
        now: returns the time of day, which decides when keys end.
    """

    pair: KeyPair
    path: Path
    rights: Rights
    now: Callable[[], datetime]
    refusals: Refusals = field(default_factory=Refusals)

    def __post_init__(self) -> None:
        """Read the list. Raises ``BadKey`` or ``UnusableFile``."""
        self._version, self._refreshed_at = self._list_version(), self.now()
        self._keys = {key.public: key for key in KeyList.read(self.path).keys}

    def key(self, public: str | None) -> Key | None:
        """Return a valid key; None for any other."""
        key = self._keys.get(public or "")
        return key if key and key.is_valid(self.now()) else None

    def refresh(self) -> bool:
        """Read a changed list again; return True if keys could have ended or been revoked since the last call."""
        now, version = self.now(), self._list_version()
        ended = any(key.until and self._refreshed_at < key.until <= now for key in self._keys.values())
        self._refreshed_at = now
        if version == self._version:
            return ended
        self._version = version
        try:
            self._keys = {key.public: key for key in KeyList.read(self.path).keys}
        except FlyballError as error:
            structlog.get_logger("bus").error("list of keys not read, the last one stays in force", error=str(error))
        return True

    def check_producer(self, key: Key, producer: str) -> None:
        """Refuse a producer whose part after ``@`` is not the key's name. Raises ``KeyRefused``.

        The broker's own key may name any node, because two heads share it (ADR-043).
        """
        name, _, node = producer.partition("@")
        if not name or (node != key.name and key.public != self.pair.public):
            raise KeyRefused(
                f"The key of {key.name} may not speak as {producer!r}.",
                hint=f"Set deployment.node to {key.name}, or use the key of {node or 'that node'}.",
            )

    def check_types(self, key: Key, frame: Frame) -> None:
        """Refuse a frame with types that the key may not publish. The key's role decides. Raises ``KeyRefused``."""
        if foreign := sorted(set(frame.types) - self.rights[key.role]):
            raise KeyRefused(
                f"The {key.role} key of {key.name} may not publish {', '.join(foreign)}.",
                hint="Publish it from the head, or with an operator's key.",
            )

    def answer(self, request: list[bytes]) -> list[bytes]:
        """Return the answer to a ZAP request.

        A key that has ended or is not in the list is refused and counted.

        Source: https://rfc.zeromq.org/spec/27
        """
        match request:
            case [version, number, _, address, _, b"CURVE", raw] if version == ZAP_VERSION and len(raw) == 32:
                public = raw.hex()
                if self.key(public):
                    return [ZAP_VERSION, number, b"200", b"OK", public.encode(), b""]
                key = self._keys.get(public)
                reason: RefusalReason = "ended" if key else "unknown_key"
                self.refusals.add(key, reason, address.decode(errors="replace"), f"public key {public}")
        number = request[1] if len(request) > 1 else b""
        return [ZAP_VERSION, number, b"400", b"This key is not authorized.", b"", b""]

    def _list_version(self) -> tuple[int, int, int] | None:
        """Return the version of the list's file, which changes whenever the file does; None without a file."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
