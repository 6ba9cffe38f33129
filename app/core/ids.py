"""Identifiers, all derived from their cause, so that a repetition has the same id."""

import re
from hashlib import blake2b
from struct import Struct
from typing import Annotated, NewType

from pydantic import AfterValidator, Field

NAME_LENGTH = 255
SHA256 = "[0-9a-f]{64}"
_HASH = re.compile(rf"(?<![0-9a-f]){SHA256}(?![0-9a-f])")
HASH_DIGITS = 8
"""Digits of a hash in texts for people."""

Name = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH)]
"""Names a daemon, a node, a worker, a metric."""

PLAIN = "[A-Za-z0-9][A-Za-z0-9._-]*"


def plain_name(name: str) -> str:
    """Return a name that is safe in paths and pages. Raises ``ValueError``."""
    if not re.fullmatch(PLAIN, name):
        raise ValueError("a name has letters, digits, '.', '_' and '-', and begins with a letter or digit")
    return name


NodeName = Annotated[str, Field(min_length=1, max_length=120), AfterValidator(plain_name)]
DaemonName = Annotated[str, Field(min_length=1, max_length=120), AfterValidator(plain_name)]
"""Shorter than ``Name``, because a producer is named ``daemon@node``."""

ConfigKey = NewType("ConfigKey", Name)
"""Names one game configuration, for instance ``connect_four_2p``."""

EventId = NewType("EventId", Name)
"""Names one event: 32 hexadecimal digits when derived here."""

ModelHash = NewType("ModelHash", Annotated[str, Field(pattern=f"^{SHA256}$")])
"""SHA-256 of a model's parameters, 64 hexadecimal digits."""

ShardKey = NewType("ShardKey", Annotated[str, Field(pattern=f"^{SHA256}$")])
"""SHA-256 of a shard of experience, 64 hexadecimal digits."""

RANDOM = "random"
"""The built-in player that chooses uniformly among the legal actions; the zero of every rating."""

HEURISTIC = "heuristic"
"""The built-in player that follows a rule of thumb; not every game has one."""

SOLVER = "solver"
"""The judge that plays perfectly; not every game has one."""

MCTS = "mcts"
"""The judges by Monte Carlo tree search: ``mcts:1000`` has 1,000 playouts a move."""

BOT = "[a-z][a-z0-9_]{0,39}"

BotName = Annotated[str, Field(pattern=f"^{BOT}$")]
"""Names a bot: a built-in player, or one in a configuration's ``bots``. It is shorter than a hash."""

PlayerName = Annotated[str, Field(pattern=f"^({SHA256}|{BOT})$")]
"""Names a player: a model by its hash, a bot by its name."""

ANCHOR = "anchor_"
"""Prefix of the roles of lasting anchors."""

NEWEST_ANCHOR = f"{ANCHOR}1"
"""The role of the newest lasting anchor."""

BROKER = "broker"
"""The daemon that records every event; its name as a producer is ``broker@node``."""

OBSERVER = "observer"
"""The program that publishes facts from the files of an observed loop; its name as a producer is ``observer@node``."""

_LENGTH = Struct(">I")


def is_model(player: str) -> bool:
    """Return whether a player is a model, named by its hash; all other players are bots."""
    return re.fullmatch(SHA256, player) is not None


def is_judge(player: str) -> bool:
    """Return whether a player is a judge, which plays in evaluations by an operator, and never in training."""
    return player.partition(":")[0] in (SOLVER, MCTS)


def split_search(player: str) -> tuple[str, int | None]:
    """Split a name such as ``champion+64`` into model and search positions.

    The second value is the number of positions that the model searches for a move, or None if it does not search.
    """
    model, _, positions = player.rpartition("+")
    searches = model and positions.isascii() and positions.isdigit()
    return (model, int(positions)) if searches else (player, None)


def is_broker(producer: str) -> bool:
    """Return whether a producer is a broker."""
    return producer.partition("@")[0] == BROKER


def hashes_in(text: str) -> list[str]:
    """Return the hashes of contents in a text, such as an address that ends with one."""
    return _HASH.findall(text)


def is_observer(producer: str) -> bool:
    """Return whether a producer is an observer, whose facts no request preceded."""
    return producer.partition("@")[0] == OBSERVER


def derive_id(*parts: str | int) -> EventId:
    """Derive an id from its cause.

    The same parts always give the same id. Parts are length-prefixed, so ``("ab", "c")`` and ``("a", "bc")`` differ.
    """
    return EventId(blake2b(prefixed(*parts), digest_size=16).hexdigest())


def prefixed(*parts: str | int) -> bytes:
    """Join parts, each prefixed by its length, as input of the hashes for ids and seeds."""
    written = b""
    for part in parts:
        encoded = str(part).encode()
        written += _LENGTH.pack(len(encoded)) + encoded
    return written
