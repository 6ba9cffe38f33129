"""The base of settings and of other frozen models: unknown fields are errors."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError


class FrozenModel(BaseModel):
    """Base of all frozen models, settings among them."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with changes. Raises ``ValidationError``, also for an unknown field."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}  # without cached properties
        return self.model_validate(fields | changes)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_booleans(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse booleans for numbers, because pydantic would read them as 1 or 0. Numbers as text stay valid."""
        if info.field_name in _numbers_of(cls) and _holds_boolean(value):
            raise PydanticCustomError("boolean", "Input should be a number, which true and false are not")
        return value


@cache
def _numbers_of(model: type[FrozenModel]) -> frozenset[str]:
    """Return the fields whose types include numbers but not booleans."""
    types = {name: set(_types(field.annotation)) for name, field in model.model_fields.items()}
    return frozenset(name for name, named in types.items() if named & {int, float} and not named & {bool, Any})


def _types(annotation: Any) -> Iterator[Any]:
    """Iterate over the types in an annotation."""
    for part in get_args(annotation):
        yield from (type(part),) if isinstance(part, bool) else _types(part)
    yield getattr(annotation, "__supertype__", annotation)


def _holds_boolean(value: Any) -> bool:
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return isinstance(value, bool) or any(map(_holds_boolean, parts))


class ManifestPart(FrozenModel):
    """Base of a model's manifest and of the settings in it.

    A manifest leaves out the fields in ``later`` that have their default. They were added when models existed already,
    and a model that does not use them keeps its bytes, and so its hash.
    """

    later: ClassVar[frozenset[str]] = frozenset()

    @property
    def left_out(self) -> dict[str, Any]:
        """The fields to leave out, as ``exclude`` of ``model_dump_json``."""
        fields = type(self).model_fields
        unused = {name: True for name in self.later if getattr(self, name) == fields[name].get_default()}
        parts = {name: part.left_out for name in fields if isinstance(part := getattr(self, name), ManifestPart)}
        return {name: part for name, part in parts.items() if part} | unused
