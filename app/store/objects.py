"""A blob store in an object store, such as S3, by fsspec."""

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from flyball.app.config.store_address import StoreAddress
from flyball.app.core import FlyballError
from flyball.app.store.blobs import KEY, StoredBlob, checked_key, key_of, missing, verified

T = TypeVar("T")

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between the attempts at a request: a server that is away for a minute only delays."""

DEFAULTS: Mapping[str, Mapping[str, Any]] = {"s3": {"config_kwargs": {"retries": {"total_max_attempts": 1}}}}
"""Options of file systems by scheme, unless an address sets them: requests are repeated here, not in botocore, too."""

MD5 = re.compile(r"[0-9a-f]{32}")

REFUSALS = frozenset(
    {"CredentialRetrievalError", "NoCredentialsError", "PartialCredentialsError", "PermissionError", "ProfileNotFound"}
)
"""Names of fsspec's and botocore's errors about credentials; never retried."""

MISUSE = (ImportError, TypeError, ValueError)
"""Errors of an address or its options; never retried."""

MODIFIED = ("LastModified", "last_modified", "updated", "modified", "created")
"""File systems' names for the time of an object's last change."""


class UnusableStore(FlyballError, code="usage"):
    """A store that is missing, lacks its package, or refuses its options."""


class StoreRefused(FlyballError, code="usage"):
    """A store that refuses the credentials, or an access by their owner."""


class StoreUnavailable(FlyballError, code="unavailable"):
    """A store that did not answer for too long."""


class RemoteFiles:
    """The file system of an object store, whose requests are repeated after transient errors.

    Args:
        address: of the store.
        pauses: seconds between attempts at a request.
        sleep: waits for a number of seconds.
        setting: that names the store, for the hints of errors.
    """

    def __init__(
        self,
        address: StoreAddress,
        pauses: Sequence[float] = PAUSES,
        sleep: Callable[[float], None] = time.sleep,
        setting: str = "deployment.store",
    ) -> None:
        self._address, self._pauses, self._sleep, self._setting = address, tuple(pauses), sleep, setting
        self._options = {**DEFAULTS.get(address.scheme, {}), **address.options}

    @property
    def _stripped(self) -> str:
        return self._address.root.partition("://")[2]

    def _files(self) -> Any:
        """Return this thread's file system, which fsspec keeps."""
        import fsspec  # late, because most processes use no store by URL

        return fsspec.filesystem(self._address.scheme, use_listings_cache=False, **self._options)

    def _with_retries(self, request: Callable[[Any], T]) -> T:
        """Make a request, and repeat it after transient errors.

        Raises ``FileNotFoundError``, ``UnusableStore``, ``StoreRefused`` or ``StoreUnavailable``.
        """
        for pause in (*self._pauses, None):
            try:
                return request(self._files())
            except FileNotFoundError:
                raise
            except MISUSE as error:
                raise UnusableStore(
                    f"{self._address.root} cannot be opened: {_reason_of(error)}.",
                    hint="For s3:// install 'flyball[s3]', for gs:// gcsfs, for abfs:// adlfs; then look at the "
                    f"options in {self._setting}.",
                ) from error
            except Exception as error:  # each library behind fsspec has errors of its own
                if REFUSALS.intersection(kind.__name__ for kind in type(error).__mro__):
                    raise StoreRefused(
                        f"{self._address.root} refuses access: {_reason_of(error)}.", hint=_CREDENTIALS_HINT
                    ) from error
                if pause is None:
                    raise StoreUnavailable(
                        f"{self._address.root} does not answer: {type(error).__name__}: {_reason_of(error)}.",
                        hint=f"Does it run, and is {self._setting} its address?",
                    ) from error
                self._sleep(pause)
        raise AssertionError("unreachable")

    def _send(self, path: str, data: bytes, *, unless_there: bool = False) -> None:
        """Write an object; ``unless_there``, only if it is missing or differs. Raises as ``_with_retries``."""

        def send(files: Any) -> None:
            if not (unless_there and _holds(files, path, data)):
                files.pipe_file(path, data)
                if (arrived := files.info(path)["size"]) != len(data):
                    raise OSError(f"{arrived} of {len(data)} bytes arrived")

        try:
            self._with_retries(send)
        except FileNotFoundError as error:
            raise UnusableStore(
                f"{self._address.root} does not exist: {_reason_of(error)}.",
                hint=f"Make the bucket, or correct {self._setting}.",
            ) from error

    def _remove(self, path: str) -> None:
        """Delete an object, if it is stored. Raises as ``_with_retries``."""
        with suppress(FileNotFoundError):
            self._with_retries(lambda files: files.rm_file(path))


class ObjectStore(RemoteFiles):
    """Blobs as objects ``root/ab/cd/abcd…`` of an object store; see ``RemoteFiles``.

    A folder store has the same layout, so either can be copied to the other.

    An object appears whole or not at all. A process killed while it uploads a large one leaves parts that no reader
    sees.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectStore) and str(self._address) == str(other._address)

    def __hash__(self) -> int:
        return hash(str(self._address))

    def put(self, data: bytes) -> str:
        """See ``BlobStore.put``. A blob that is stored intact is not sent again.

        Also raises ``UnusableStore``, ``StoreRefused`` or ``StoreUnavailable``.
        """
        key = key_of(data)
        self._send(self._path(key), data, unless_there=True)
        return key

    def get(self, key: str) -> bytes:
        """See ``BlobStore.get``. Also raises ``UnusableStore``, ``StoreRefused`` or ``StoreUnavailable``."""
        path = self._path(checked_key(key))
        try:
            data: bytes = self._with_retries(lambda files: files.cat_file(path))
        except FileNotFoundError:
            raise missing(key) from None
        return verified(key, data)

    def has(self, key: str) -> bool:
        """See ``BlobStore.has``."""
        path = self._path(checked_key(key))
        try:
            self._with_retries(lambda files: files.info(path))
        except FileNotFoundError:
            return False
        return True

    def delete(self, key: str) -> None:
        """See ``BlobStore.delete``."""
        self._remove(self._path(checked_key(key)))

    def keys(self) -> Iterator[str]:
        """See ``BlobStore.keys``."""
        return (blob.key for blob in self.entries())

    def entries(self) -> Iterator[StoredBlob]:
        """See ``BlobStore.entries``."""
        try:
            objects = self._with_retries(lambda files: files.find(self._stripped, detail=True))
        except FileNotFoundError:
            return
        for path, info in objects.items():
            key = path.rpartition("/")[2]
            if KEY.fullmatch(key) and path == f"{self._stripped}/{key[:2]}/{key[2:4]}/{key}":
                yield StoredBlob(key, info["size"], _modification_time(info))

    def _path(self, key: str) -> str:
        return f"{self._address.root}/{key[:2]}/{key[2:4]}/{key}"


_CREDENTIALS_HINT = (
    "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY on this machine, or write them to ~/.aws/credentials. Their owner "
    "needs the rights to list the bucket, and to get, put and delete its objects."
)


def _reason_of(error: Exception) -> str:
    return str(error).rstrip(".")


def _holds(files: Any, path: str, data: bytes) -> bool:
    """Return whether an object has this content.

    S3 knows the MD5 of an object that came in one part. Any other object of the same size is read.
    """
    try:
        info = files.info(path)
    except FileNotFoundError:
        return False
    if info["size"] != len(data):
        return False
    tag = str(info.get("ETag", "")).strip('"')
    if MD5.fullmatch(tag):
        return tag == hashlib.md5(data, usedforsecurity=False).hexdigest()
    content: bytes = files.cat_file(path)
    return content == data


def _modification_time(info: dict[str, Any]) -> datetime | None:
    """Return the time of an object's last change; None if unknown. File systems give a time, or seconds since 1970."""
    for name in MODIFIED:
        match info.get(name):
            case datetime() as time:
                return time
            case float() as seconds:
                return datetime.fromtimestamp(seconds, UTC)
    return None
