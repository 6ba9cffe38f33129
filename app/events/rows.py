"""Rows: state that is folded from events."""

from typing import Any, Self

from msgspec import Raw, Struct, to_builtins
from msgspec.json import decode, encode, schema
from msgspec.structs import replace
from pydantic import BaseModel


class Row(Struct, frozen=True):
    """Base of all rows, and of the values in them except payloads.

    Reading a row validates it; unknown fields are dropped, because another version may have saved them. Building a row
    does not validate it, because most events change one.
    """

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed. Raises ``TypeError`` for an unknown field."""
        return replace(self, **changes)

    def to_json(self) -> bytes:
        """Return the row as JSON."""
        return encode(self, enc_hook=_written)

    def to_builtins(self) -> Any:
        """Return the row as dictionaries, lists, strings and numbers."""
        return to_builtins(self, enc_hook=lambda payload: payload.model_dump(mode="json"))

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """Read a row from the JSON of ``to_json``. Raises ``msgspec.DecodeError`` for anything else."""
        return decode(text, type=cls, dec_hook=_read)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of what ``to_json`` writes."""
        parts: dict[str, Any] = {}

        def of_payload(kind: type[BaseModel]) -> dict[str, Any]:
            described = kind.model_json_schema()
            parts.update(described.pop("$defs", {}))  # its references start at the schema's root
            return described

        whole = schema(cls, schema_hook=of_payload)
        return {**whole, "$defs": parts | whole.get("$defs", {})}


def _written(payload: BaseModel) -> Raw:
    return Raw(payload.model_dump_json().encode())


def _read(kind: type[BaseModel], value: object) -> BaseModel:
    return kind.model_validate(value, strict=False, extra="ignore")  # not strict: JSON has no tuples
