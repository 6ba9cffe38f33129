"""The address of a store: a folder, or a URL with options."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from json import dumps, loads
from typing import Annotated, Any, Self
from urllib.parse import parse_qsl, quote, urlsplit

from pydantic import BeforeValidator

FOLDER = "file"
OBJECT_STORES = ("s3", "gs", "abfs")
"""Schemes of stores whose uploads appear whole or not at all."""

CREDENTIAL = re.compile(r"key|secret|token|password|user|credential|connection_string", re.IGNORECASE)
"""Pattern of credential options, refused because settings, logs and specs are shown."""

OWNED = re.compile(r"//[^/?#]*@")
"""Pattern of an option, such as ``endpoint_url``, whose URL names a user."""

CACHE, CACHE_GIB = "cache", "cache_gib"
"""Options of a URL that name this node's cache and its size; the settings add them for jobs."""

StoreName = Annotated[str, BeforeValidator(str)]
"""A folder or URL, as jobs get it; a ``Path`` is accepted, too."""


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The parsed name of a store.

    Attributes:
        scheme: ``file`` for a folder.
        root: the folder, or the URL without its options.
        options: of the URL's file system (fsspec), such as ``endpoint_url``.
    """

    scheme: str
    root: str
    options: Mapping[str, Any]

    @classmethod
    def parse(cls, name: str) -> Self:
        """Parse a folder's path, or a URL such as ``s3://bucket/prefix?endpoint_url=http://host:9000``.

        Raises ``ValueError`` for another scheme, a URL without a bucket, and one with credentials.
        """
        if "://" not in name:
            return cls(FOLDER, name, {})
        parts = urlsplit(name)
        if parts.scheme == FOLDER:
            return cls(FOLDER, parts.path, {})
        if parts.scheme not in OBJECT_STORES:
            schemes = ", ".join(f"{scheme}://" for scheme in OBJECT_STORES)
            raise ValueError(f"{parts.scheme}:// is not supported: write a folder, or a URL that begins with {schemes}")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        has_secret = any(CREDENTIAL.search(option) or OWNED.search(text) for option, text in options.items())
        if "@" in parts.netloc or has_secret:
            raise ValueError("a store's URL has no credentials: put them into the environment, or ~/.aws/credentials")
        if not parts.netloc or parts.fragment:
            raise ValueError(f"{name!r} is no store: write {parts.scheme}://BUCKET/PREFIX")
        root = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        return cls(parts.scheme, root, {option: _read(text) for option, text in options.items()})

    @property
    def is_folder(self) -> bool:
        """True for a folder, which needs no cache."""
        return self.scheme == FOLDER

    def replace_options(self, options: Mapping[str, Any]) -> Self:
        """Return the address with other options."""
        return type(self)(self.scheme, self.root, options)

    def __str__(self) -> str:
        texts = {name: value if isinstance(value, str) else dumps(value) for name, value in self.options.items()}
        query = "&".join(f"{name}={quote(text, safe='/:')}" for name, text in texts.items())
        return f"{self.root}?{query}" if query else self.root


def _read(text: str) -> Any:
    """Return the boolean or number that a text spells, or the text."""
    try:
        value = loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text
