"""Settings as text."""

from collections.abc import Iterator, Mapping
from typing import Any


def flattened(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted names and values of nested settings."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return settings as a table in Markdown."""
    rows = (f"| {name} | {value} |" for name, value in flattened(settings))
    return "\n".join(["| setting | value |", "|---|---|", *rows])
