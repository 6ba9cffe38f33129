"""Secret key files of machines and people, and a broker's key list."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Literal, get_args

import zmq
from zmq.utils import z85

from flyball.app.core import FlyballError, reading, writing

Role = Literal["head", "worker", "operator", "reader"]
"""Rights of a key to publish; see ``flyball.daemons.rights``. Every role may subscribe."""

ROLES: tuple[Role, ...] = get_args(Role)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
HEX = re.compile("[0-9a-f]{64}")
MAX_LIST_BYTES = 1 << 20
MOST_SECRET_BYTES = 4096
HEADER = "# Keys that the broker admits, one a line: name, role, public key, and until when, if it ends.\n"


class BadKey(FlyballError, code="usage"):
    """A key, key file or list of keys that cannot be used."""


class UnknownKey(FlyballError, code="unknown"):
    """No key of this name is in the list."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair, each of 32 bytes as 64 hexadecimal digits, because Z85 needs quoting in a shell."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r})"  # without the secret, because a traceback may be logged


@dataclass(frozen=True, slots=True)
class Key:
    """An admitted key: the node or person ``name`` that has it, its role, and when it ends (None: never)."""

    name: str
    role: Role
    public: str
    until: datetime | None = field(default=None, compare=False)

    def is_valid(self, now: datetime) -> bool:
        """Return whether the key is valid at a time."""
        return self.until is None or now < self.until

    def line(self) -> str:
        """Return the key as a line of the list."""
        return " ".join((self.name, self.role, self.public, *((self.until.isoformat(),) if self.until else ())))


def new_pair() -> KeyPair:
    """Make a key pair from the system's randomness."""
    public, secret = zmq.curve_keypair()
    return KeyPair(z85.decode(public).hex(), z85.decode(secret).hex())


def check_public(text: str) -> str:
    """Return a public key. Raises ``BadKey`` unless it has 64 hexadecimal digits."""
    if not HEX.fullmatch(text):
        raise BadKey(
            f"{text!r} is not a public key.", hint="It has 64 hexadecimal digits, which `flyball keys new` prints."
        )
    return text


def check_name(name: str) -> str:
    """Return a valid name of a key. Raises ``BadKey`` unless a node could have this name."""
    if not NAME.fullmatch(name):
        raise BadKey(
            f"{name!r} cannot name a key.", hint="Use up to 63 letters, digits, dots, hyphens and underscores."
        )
    return name


def write_secret(path: Path, pair: KeyPair) -> None:
    """Write a secret key to a new file. Only its owner may read the file. Raises ``BadKey`` if the file exists."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            raise BadKey(
                f"{path} exists already.", hint="Choose another name, or give the key a successor: flyball keys rotate"
            ) from None
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(pair.secret + "\n")
            file.flush()
            os.fsync(file.fileno())


def replace_secret(path: Path, pair: KeyPair) -> None:
    """Replace a secret key's file atomically."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    write_secret(scratch, pair)
    scratch.replace(path)


def read_private(path: Path) -> str:
    """Read a short text from a file that nobody else may read.

    Raises:
        BadKey: another user owns the file or may read it.
        UnusableFile: the file cannot be read.
    """
    with reading(path), path.open("rb") as file:
        status, text = os.fstat(file.fileno()), file.read(MOST_SECRET_BYTES)
    if status.st_mode & 0o077:
        raise BadKey(f"{path} can be read by others (mode {status.st_mode & 0o777:o}).", hint=f"Run: chmod 600 {path}")
    if status.st_uid not in (os.getuid(), 0):
        raise BadKey(f"{path} belongs to another user.", hint=f"Run: chown $USER {path}")
    return text.decode("ascii", errors="replace").strip()


def read_secret(path: Path) -> KeyPair:
    """Read a secret key's file.

    Raises:
        BadKey: another user owns the file or may read it, or it holds no key.
        UnusableFile: the file cannot be read.
    """
    secret = read_private(path)
    if not HEX.fullmatch(secret):
        raise BadKey(f"{path} holds no secret key.", hint="Make one: flyball keys new NAME")
    public = zmq.curve_public(z85.encode(bytes.fromhex(secret)))
    return KeyPair(z85.decode(public).hex(), secret)


@dataclass(frozen=True)
class KeyList:
    """The keys that a broker admits. A name may have several keys, as long as they have one role."""

    keys: tuple[Key, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "KeyList":
        """Parse the list's text. Raises ``BadKey``, which names the line."""
        keys: dict[str, Key] = {}
        roles: dict[str, Role] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                key = _parse_line(line)
            except BadKey as error:
                raise _bad_line(number, error.message) from error
            if key.public in keys:
                raise _bad_line(number, f"{keys[key.public].name} has this key already.")
            if roles.setdefault(key.name, key.role) != key.role:
                raise _bad_line(number, f"{key.name} has the role {roles[key.name]} already.")
            keys[key.public] = key
        return cls(tuple(keys.values()))

    @classmethod
    def read(cls, path: Path) -> "KeyList":
        """Read a list that only its owner may change; empty if missing. Raises ``BadKey`` or ``UnusableFile``."""
        with reading(path):
            try:
                with path.open("rb") as file:
                    status, data = os.fstat(file.fileno()), file.read(MAX_LIST_BYTES + 1)
            except FileNotFoundError:
                return cls()
        if status.st_mode & 0o022:
            raise BadKey(f"{path} can be changed by others.", hint=f"Run: chmod go-w {path}")
        if len(data) > MAX_LIST_BYTES:
            raise BadKey(f"{path} has more than {MAX_LIST_BYTES} bytes.", hint="Is it the right file?")
        try:
            return cls.parse(data.decode())
        except UnicodeDecodeError as error:
            raise BadKey(f"{path} is not a text in UTF-8.", hint="Is it the right file?") from error

    def write(self, path: Path) -> None:
        """Replace a list's file atomically. A broker never reads half of a list."""
        scratch = path.with_name(f"{path.name}.{os.getpid()}")
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(HEADER + "".join(f"{key.line()}\n" for key in self.keys))
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(path)

    def of(self, name: str) -> tuple[Key, ...]:
        """Return a name's keys. Raises ``UnknownKey``."""
        keys = tuple(key for key in self.keys if key.name == name)
        if not keys:
            names = ", ".join(sorted({key.name for key in self.keys})) or "no keys"
            raise UnknownKey(f"No key of {name!r} is authorized.", hint=f"There are: {names}.")
        return keys

    def authorize(self, key: Key) -> "KeyList":
        """Return the list with another key. Raises ``BadKey`` for a known key, or for a second role of a name."""
        return KeyList.parse("\n".join(listed.line() for listed in (*self.keys, key)))

    def revoke(self, name: str, public: str | None = None) -> "KeyList":
        """Return the list without a name's keys, or without ``public`` alone. Raises ``UnknownKey``."""
        revoked = {key for key in self.of(name) if public in (None, key.public)}
        if not revoked:
            raise UnknownKey(f"{name!r} has no key {public}.", hint="See: flyball keys list")
        return KeyList(tuple(key for key in self.keys if key not in revoked))

    def rotate(self, name: str, public: str, until: datetime | None) -> "KeyList":
        """Return the list with a new key of a name, whose other keys end at ``until`` at the latest, if given."""
        role = self.of(name)[0].role
        ends = [replace(key, until=_earlier(key.until, until)) if key.name == name else key for key in self.keys]
        return KeyList(tuple(ends)).authorize(Key(name, role, public))


def _bad_line(number: int, why: str) -> BadKey:
    what = f"Line {number} of the list of keys: {why}"
    return BadKey(what, hint="A line is NAME ROLE PUBLIC_KEY, and a time when it ends.")


def _earlier(first: datetime | None, second: datetime | None) -> datetime | None:
    return min(first, second) if first and second else first or second


def _parse_line(line: str) -> Key:
    match line.split():
        case [name, role, public, *rest] if len(rest) <= 1:
            return Key(check_name(name), _role(role), check_public(public), _until(rest))
    raise BadKey("it has not three or four words.")


def _role(text: str) -> Role:
    for role in ROLES:
        if text == role:
            return role
    raise BadKey(f"{text!r} is not a role; there are {', '.join(ROLES)}.")


def _until(words: Sequence[str]) -> datetime | None:
    if not words:
        return None
    with suppress(ValueError):
        if (until := datetime.fromisoformat(words[0])).tzinfo is not None:
            return until
    raise BadKey(f"{words[0]!r} is not a time with its zone, such as 2030-01-31T12:00:00+00:00.")
