"""Protocol of pure controllers: events and rows in, changes and emissions out.

State is a table of frozen rows, mostly one for each configuration, under its key. An event's cost therefore does not
depend on the number of configurations. The host of a reducer applies the changes, writes the emissions as events that
follow from their cause, and saves rows and cursor in one transaction.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from flyball.app.events.envelope import Cause, Event
from flyball.app.events.payload import Payload
from flyball.app.events.rows import Row

R = TypeVar("R", bound=Row)


class Emission(NamedTuple):
    """An event to emit."""

    data: Payload
    subject: str | None = None  # the configuration; None: the cause's
    evidence: Cause | None = (
        None  # the earlier event that it follows from, when the cause only set the time, as ticks do
    )


class Step(Struct, Generic[R], frozen=True):
    """The effect of one event. A row that maps to ``None`` is deleted."""

    rows: Mapping[str, R | None] = MappingProxyType({})
    emissions: tuple[Emission, ...] = ()


class Reducer(Protocol[R]):
    """A pure controller: built from the run's settings, without mutable state."""

    name: ClassVar[str]  # unique; part of the id of everything it emits
    reads: ClassVar[frozenset[type[Payload]]]  # the payload types that its host passes to it
    emits: ClassVar[frozenset[type[Payload]]]  # the payload types it may emit; its host refuses anything else

    @property
    def row(self) -> type[R]:
        """The type of its rows."""

    def step(self, rows: Mapping[str, R], event: Event[Payload]) -> Step[R]:
        """Fold one event. Pure: the only clock is ``event.recordedtime``."""


class Follower(Protocol[R]):
    """A reducer that also gets another reducer's events and rows. See ``Reducer``."""

    name: ClassVar[str]
    follows: ClassVar[str]  # name of the followed reducer
    reads: ClassVar[frozenset[type[Payload]]]  # in addition to the types of the followed reducer
    emits: ClassVar[frozenset[type[Payload]]]

    @property
    def row(self) -> type[R]:
        """The type of its rows."""

    def step(self, rows: Mapping[str, R], event: Event[Payload], followed: Mapping[str, Any]) -> Step[R]:
        """Fold one event; ``followed`` are the followed reducer's rows after it."""


H = TypeVar("H", bound=Callable[..., Step[Any]])


def handles(*types: type[Payload]) -> Callable[[H], H]:
    """Mark a method of a ``HandlerReducer`` as handler of event types. Raises ``TypeError`` for anything else."""
    for kind in types:
        if not hasattr(kind, "event_name"):
            raise TypeError(f"handles takes event types, such as events.TrainingCompleted, not {kind!r}")

    def mark(handler: H) -> H:
        handler.handled_types = types  # type: ignore[attr-defined]
        return handler

    return mark


class HandlerReducer:
    """Base of reducers with a handler for each event type. ``reads`` lists the handled types."""

    reads: ClassVar[frozenset[type[Payload]]] = frozenset()
    _handlers: ClassVar[Mapping[type[Payload], str]] = MappingProxyType({})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Register the handlers of the class. Raises ``TypeError`` if two handle the same type."""
        super().__init_subclass__(**kwargs)
        own: dict[type[Payload], str] = {}
        for name, member in vars(cls).items():
            for kind in getattr(member, "handled_types", ()):
                if own.setdefault(kind, name) != name:
                    raise TypeError(f"{cls.__name__} handles {kind.__name__} twice: {own[kind]}, {name}")
        if own:
            cls._handlers = {**cls._handlers, **own}
            cls.reads = frozenset(cls._handlers)

    def step(self, rows: Mapping[str, Any], event: Event[Payload], *arguments: Mapping[str, Any]) -> Step[Any]:
        """Fold one event by the handler of its type. The handler gets the same arguments."""
        handler: Callable[..., Step[Any]] = getattr(self, self._handlers[type(event.data)])
        return handler(rows, event, *arguments)
