"""Opening a store by the name that jobs get. The name is a folder, or a URL with this node's cache."""

import os
from collections.abc import Mapping
from getpass import getuser
from pathlib import Path
from tempfile import NamedTemporaryFile, gettempdir
from typing import Any

from flyball.app.config.store_address import CACHE, CACHE_GIB, StoreAddress
from flyball.app.store.blobs import BlobStore, FileStore
from flyball.app.store.cache import BlobCache, CachedStore
from flyball.app.store.objects import ObjectStore, UnusableStore

GIB = 1 << 30


def open_store(name: str | Path, *, cached: bool = True) -> BlobStore:
    """Return the store at a folder or URL.

    Without ``cached``, this node's cache is not used. No request is sent to a server yet. Raises ``UnusableStore``.
    """
    address = _parse_address(name)
    if address.is_folder:
        return FileStore(address.root)
    options = dict(address.options)
    folder, gib = options.pop(CACHE, None), options.pop(CACHE_GIB, 0)
    store = ObjectStore(address.replace_options(options))
    return CachedStore(store, BlobCache(Path(folder), round(gib * GIB))) if folder and cached else store


def check_folder(name: str | Path) -> None:
    """Try to write to a folder; a URL is not tried, because only daemons have credentials. Raises ``UnusableStore``."""
    address = _parse_address(name)
    if not address.is_folder:
        return
    try:
        with NamedTemporaryFile(dir=address.root, prefix=".written-by-a-check-"):
            pass
    except FileNotFoundError as error:
        raise UnusableStore(
            f"The store's folder {address.root} does not exist.", hint="Mount it, or make it, before the daemons start."
        ) from error
    except OSError as error:
        user, uid = getuser(), os.geteuid()
        raise UnusableStore(
            f"{user} (uid {uid}) cannot write to the store's folder {address.root}: {error.strerror}.",
            hint=f"Let {user} own it (chown {user}: {address.root}), and have the same uid on all machines.",
        ) from error


def scratch_folder(name: str | Path) -> Path:
    """Return a folder for jobs' temporary files: the store's, this node's cache, or the system's temporary folder."""
    address = _parse_address(name)
    options: Mapping[str, Any] = address.options
    return Path(address.root if address.is_folder else options.get(CACHE) or gettempdir())


def _parse_address(name: str | Path) -> StoreAddress:
    try:
        return StoreAddress.parse(str(name))
    except ValueError as error:
        raise UnusableStore(f"The store cannot be opened: {error}.", hint="Correct deployment.store.") from error
