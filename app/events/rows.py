"""Rows of state that are folded from events."""

from typing import Any, Literal, Self

from msgspec import Raw, Struct
from msgspec.json import decode, encode, schema
from msgspec.structs import replace
from pydantic import BaseModel

from app.events.payload import Value


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of rows that change at most events: msgspec copies them in a quarter of the time of a ``Value``.

    What a row is read from is validated, what it is built from is not. It may hold values. Its methods are those of
    values that hosts use: to them both are rows.
    """

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed. Raises ``TypeError`` for a field that there is not."""
        return replace(self, **changes)

    def model_dump_json(self) -> str:
        """Write it as JSON."""
        return encode(self, enc_hook=_written).decode()

    def model_dump(self, *, mode: Literal["json"]) -> Any:  # noqa: ARG002 - there is no other
        """Return it as what JSON can say."""
        return decode(encode(self, enc_hook=_written))

    @classmethod
    def model_validate_json(cls, text: bytes | str) -> Self:
        """Read what ``model_dump_json`` wrote.

        Raises:
            msgspec.DecodeError: it is something else.
        """
        return decode(text, type=cls, dec_hook=_read)

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of what ``model_dump_json`` writes."""
        parts: dict[str, Any] = {}

        def of_value(kind: type[BaseModel]) -> dict[str, Any]:
            described = kind.model_json_schema()
            parts.update(described.pop("$defs", {}))  # its references begin at the root of the schema
            return described

        whole = schema(cls, schema_hook=of_value)
        return {**whole, "$defs": parts | whole.get("$defs", {})}


AnyRow = Value | Row


def _written(value: BaseModel) -> Raw:
    return Raw(value.model_dump_json().encode())


def _read(kind: type[BaseModel], value: object) -> BaseModel:
    return kind.model_validate(value, strict=False)  # JSON has no tuples
