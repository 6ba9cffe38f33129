"""The base of all payloads, and the three kinds of event."""

from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

TYPE_PREFIX = "flyball."


class Kind(StrEnum):
    """Kind of an event: a fact, a request, or a decision."""

    FACT = "fact"
    REQUEST = "request"
    DECISION = "decision"


class Scope(StrEnum):
    """Scope of an event: one configuration (its key is the envelope's subject) or the whole system."""

    CONFIG = "config"
    SYSTEM = "system"


class Value(BaseModel):
    """Base of what payloads are made of: frozen, complete, strict, finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated. Raises ``ValidationError``, also for an unknown field."""
        return self.model_validate({**self.__dict__, **changes})


class Payload(Value):
    """The data of one event type. No field has a default, because a forgotten value would be recorded unnoticed.

    Class arguments: ``type`` is the CloudEvents type without its prefix, ``name`` the event name. ``notable`` marks
    a rare event that matters to an operator: it is logged at INFO, and stays on the screen of ``flyball up``.
    """

    kind: ClassVar[Kind]
    scope: ClassVar[Scope] = Scope.CONFIG
    event_type: ClassVar[str]
    event_name: ClassVar[str]
    dataversion: ClassVar[int]
    notable: ClassVar[bool] = False

    def __init_subclass__(
        cls,
        type: str = "",  # noqa: A002 - the CloudEvents word
        name: str = "",
        version: int = 1,
        *,
        notable: bool = False,
        **kwargs: Any,
    ) -> None:
        """Register what the class arguments say."""
        super().__init_subclass__(**kwargs)
        if type:
            cls.event_type, cls.event_name, cls.dataversion = TYPE_PREFIX + type, name, version
            cls.notable = notable


class Fact(Payload):
    """Something that happened."""

    kind = Kind.FACT


class Request(Payload):
    """Work that is wanted. Its event id names the request in every result."""

    kind = Kind.REQUEST


class Decision(Payload):
    """A knob that was set, by its one owner."""

    kind = Kind.DECISION
