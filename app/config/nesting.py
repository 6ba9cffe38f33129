"""Settings by dotted key, and as nested tables."""

from collections.abc import Mapping
from typing import Any


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one mapping of dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        flat |= flatten(value, f"{key}.") if isinstance(value, Mapping) else {key: value}
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping of dotted keys as nested tables: the inverse of ``flatten``."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *tables, name = key.split(".")
        table = tree
        for step in tables:
            table = table.setdefault(step, {})
        table[name] = value
    return tree
