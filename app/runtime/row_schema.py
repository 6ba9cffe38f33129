"""Whether saved rows are of this program's schema: those of another version would be refused, or worse, misread.

The schemas of their rows are saved beside the rows. A reducer whose rows come to mean something else under the same
names must rename a field.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from typing import Any

from app.events import AnyRow
from app.events.schemas import shape
from app.runtime.fold import HOST, RowKey

SCHEMAS_KEY: RowKey = (HOST, "schemas")


def schemas_of(reducers: Iterable[Any]) -> bytes:
    """Return what is to be saved for reducers, or their classes: a hash of each one's row type.

    Descriptions don't count.
    """
    return json.dumps({reducer.name: _digest(reducer.row) for reducer in reducers}).encode()


def readable(saved: Mapping[RowKey, bytes], reducers: Iterable[Any]) -> bool:
    """Whether all saved rows of these reducers, or of these classes, were saved under the present schemas."""
    then = json.loads(saved.get(SCHEMAS_KEY, b"{}"))
    now = json.loads(schemas_of(reducers))
    return all(then.get(owner) == now[owner] for owner in {owner for owner, _ in saved} & now.keys())


@cache
def _digest(row: type[AnyRow]) -> str:
    return sha256(json.dumps(shape(row.model_json_schema())).encode()).hexdigest()
