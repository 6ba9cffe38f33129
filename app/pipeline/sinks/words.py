"""Settings as text."""

from collections.abc import Mapping
from typing import Any

from app.config import flatten


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return settings as a table in Markdown."""
    rows = (f"| {name} | {value} |" for name, value in flatten(settings).items())
    return "\n".join(["| setting | value |", "|---|---|", *rows])
