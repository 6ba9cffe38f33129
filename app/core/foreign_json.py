"""JSON of foreign files."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return the content of JSON. Raises ``ValueError`` if it is not JSON, or nested too deep to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
