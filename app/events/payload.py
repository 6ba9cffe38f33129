"""The base of all payloads, and the three kinds of event (DESIGN §1.3)."""

from enum import StrEnum
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

TYPE_PREFIX = "flyball."


class Kind(StrEnum):
    """What an event is: something that happened, work that is wanted, or a knob that was set."""

    FACT = "fact"
    REQUEST = "request"
    DECISION = "decision"


class Scope(StrEnum):
    """What an event is about: one configuration (its key is the envelope's subject) or the whole system."""

    CONFIG = "config"
    SYSTEM = "system"


class Value(BaseModel):
    """Base of what payloads are made of: frozen, complete, finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Payload(Value):
    """The data of one event type. No field has a default: what matters is said (DESIGN §1.3).

    Class arguments: ``type`` is the CloudEvents type without its prefix, ``name`` the seed name.
    """

    kind: ClassVar[Kind]
    scope: ClassVar[Scope] = Scope.CONFIG
    event_type: ClassVar[str]
    seed_name: ClassVar[str]
    dataversion: ClassVar[int]

    def __init_subclass__(cls, type: str = "", name: str = "", version: int = 1, **kwargs: Any) -> None:  # noqa: A002 - the CloudEvents word
        """Register the names given as class arguments."""
        super().__init_subclass__(**kwargs)
        if type:
            cls.event_type, cls.seed_name, cls.dataversion = TYPE_PREFIX + type, name, version


class Fact(Payload):
    """Something that happened."""

    kind = Kind.FACT


class Request(Payload):
    """Work that is wanted. Its event id names the request in every result."""

    kind = Kind.REQUEST


class Decision(Payload):
    """A knob that was set, by its one owner."""

    kind = Kind.DECISION
