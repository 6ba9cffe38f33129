"""Identifiers. All of them are derived from their cause, so that doing a thing twice names it once.

Source: DESIGN §1.8 (idempotent by construction).
"""

from hashlib import blake2b
from struct import Struct
from typing import NewType

ConfigKey = NewType("ConfigKey", str)
"""Names one game configuration, for instance ``connect_four_2p``."""

EventId = NewType("EventId", str)
"""Names one event: 32 hexadecimal digits when derived here."""

ModelHash = NewType("ModelHash", str)
"""SHA-256 of a model's parameters, 64 hexadecimal digits."""

ShardKey = NewType("ShardKey", str)
"""SHA-256 of a shard of experience, 64 hexadecimal digits."""

RANDOM = "random"
"""The built-in player that chooses evenly among the legal actions; the zero of every rating."""

HEURISTIC = "heuristic"
"""The built-in player that knows something of its game; not every game has one."""

ANCHOR = "anchor_"
"""What the roles of lasting anchors begin with."""

NEWEST_ANCHOR = f"{ANCHOR}1"
"""The role of the newest lasting anchor."""

_LENGTH = Struct(">I")


def derive_id(*parts: str | int) -> EventId:
    """Derive an id from its cause: the same parts always give the same id.

    Parts are length-prefixed, so ``("ab", "c")`` and ``("a", "bc")`` differ.
    """
    return EventId(blake2b(prefixed(*parts), digest_size=16).hexdigest())


def prefixed(*parts: str | int) -> bytes:
    """Write parts one after the other, each after its length: what ids and chance are hashed from."""
    written = b""
    for part in parts:
        encoded = str(part).encode()
        written += _LENGTH.pack(len(encoded)) + encoded
    return written
