"""Checks of public functions' arguments, as strict as the commands' options."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from flyball.app.core import BadUsage

Number = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Seeds = Annotated[Sequence[Seed], Field(min_length=1)]
Names = Annotated[Sequence[str], Field(min_length=1)]
Days = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Temperature = Annotated[float, Field(ge=0, le=10)]


def check_arguments(kind: Any, **arguments: object) -> None:
    """Refuse arguments that are not of a type. Raises ``BadUsage``."""
    for name, value in arguments.items():
        try:
            TypeAdapter(kind).validate_python(value)
        except ValidationError as error:
            raise BadUsage(f"{name} is {value!r}: {error.errors()[0]['msg']}.") from error
