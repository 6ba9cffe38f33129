"""Saved rows of another version: recognised by their schemas, carried over where readable.

A reducer that changes the meaning of a field must rename the field.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import Any

from msgspec import MsgspecError
from pydantic import ValidationError

from app.config import RunSettings
from app.events import AnyRow
from app.events.schemas import shape
from app.runtime.fold import HOST, SETTINGS_KEY, RowKey

SCHEMAS_KEY: RowKey = (HOST, "schemas")


def schemas_of(reducers: Iterable[Any]) -> bytes:
    """Return the schemas to save: a hash of each reducer's row type, and of the settings.

    Descriptions don't count.
    """
    hosted = {HOST: _digest(RunSettings)}
    return json.dumps(hosted | {reducer.name: _digest(reducer.row) for reducer in reducers}).encode()


def readable(saved: Mapping[RowKey, bytes], reducers: Iterable[Any]) -> bool:
    """Return whether all saved rows of these reducers, or of these classes, were saved under the present schemas."""
    then = json.loads(saved.get(SCHEMAS_KEY, b"{}"))
    now = json.loads(schemas_of(reducers))
    return all(then.get(owner) == now[owner] for owner in {owner for owner, _ in saved} & now.keys())


def program_of(reducers: Iterable[Any]) -> str:
    """Return the version of a daemon's program; other versions may decide differently."""
    return f"{version('flyball')}+rows.{sha256(schemas_of(reducers)).hexdigest()[:8]}"


def carried_over(saved: Mapping[RowKey, bytes], reducers: Iterable[Any]) -> dict[RowKey, bytes] | None:
    """Return saved rows under the current schemas; ``None`` if one is unreadable.

    Fields that are gone are left out, and new ones get their defaults.
    """
    kinds = {reducer.name: reducer.row for reducer in reducers}
    carried = dict(saved)
    try:
        for (owner, name), row in saved.items():
            kind = RunSettings if (owner, name) == SETTINGS_KEY else kinds.get(owner)
            if kind is not None:
                schema = kind.model_json_schema()
                fitted = _fitted(json.loads(row), schema, schema.get("$defs", {}))
                carried[owner, name] = kind.model_validate_json(json.dumps(fitted)).model_dump_json().encode()
    except (MsgspecError, ValidationError, json.JSONDecodeError):
        return None
    return carried


def _fitted(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    """Return a JSON value without the fields of objects that a schema does not know."""
    while "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return _fitted(value, _likeliest(value, schema["anyOf"], definitions), definitions)
    if isinstance(value, dict):
        fields, others = schema.get("properties"), schema.get("additionalProperties")
        if fields is not None:
            return {name: _fitted(value[name], fields[name], definitions) for name in value if name in fields}
        if isinstance(others, dict):
            return {name: _fitted(one, others, definitions) for name, one in value.items()}
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        rest = schema.get("items") or {}
        kinds = [*first, *[rest] * (len(value) - len(first))]
        return [_fitted(one, kind, definitions) for one, kind in zip(value, kinds, strict=False)]
    return value


def _likeliest(value: Any, options: Sequence[Mapping[str, Any]], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the option that knows most fields of a value."""

    def known(option: Mapping[str, Any]) -> int:
        while "$ref" in option:
            option = definitions[option["$ref"].rpartition("/")[2]]
        if isinstance(value, dict) and option.get("type") == "object":
            return 1 + len(option.get("properties", {}).keys() & value)
        return int(isinstance(value, list) and option.get("type") == "array")

    return max(options, key=known)


@cache
def _digest(row: type[AnyRow | RunSettings]) -> str:
    return sha256(json.dumps(shape(row.model_json_schema())).encode()).hexdigest()
