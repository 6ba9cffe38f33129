"""Compare a history's conclusions under its own and other settings. Pure.

The comparison is open loop: all recorded facts stay. Other settings would have led to other games, but their results
are unknown. Recomputed decisions replace the recorded ones: controllers read the new decisions, and no longer read
those that would not have been taken.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from msgspec.structs import replace
from pydantic import JsonValue

from flyball.app.config import ForeignSettings, RunSettings
from flyball.app.config.loading import changed
from flyball.app.controllers.fold import Conclusion, Fold
from flyball.app.events import Envelope, Event, Payload, RunConfigured
from flyball.app.replay.replaying import controllers
from flyball.daemons.bootstrap import check_controllers
from flyball.daemons.registry import daemons_of

SOURCE = "what-if@replay"

Change = Literal["missing", "added", "replaced", "changed"]
"""Effect of other settings on a conclusion. The conclusion is gone, new, of another type, or has other content."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A conclusion that other settings change; ``position`` and ``time`` are its cause's."""

    kind: Change
    position: int
    time: datetime
    by: str
    before: Envelope[Payload] | None
    after: Envelope[Payload] | None

    @property
    def envelope(self) -> Envelope[Payload]:
        """The conclusion under the other settings; a missing one, as recorded."""
        return self.envelopes[-1]

    @property
    def envelopes(self) -> tuple[Envelope[Payload], ...]:
        """``before`` and ``after``, without ``None``."""
        return tuple(envelope for envelope in (self.before, self.after) if envelope)


class WhatIf:
    """Folds a history with the run's settings and with others.

    Args:
        values: the settings that differ, by dotted key.
        past: the run's settings, the latest first; they name its user-defined controllers.
        voided: positions of events to leave out.

    Raises:
        BadSettings: the other settings are invalid, or a user-defined controller cannot be used.
    """

    def __init__(
        self, values: Mapping[str, Any], *, past: Sequence[RunSettings] = (), voided: Collection[int] = ()
    ) -> None:
        self._values, self._tables = values, frozenset[str]().union(*map(_tables, past))
        others = [RunSettings.model_validate(self._change(settings)) for settings in past]
        for settings in others[:1]:
            check_controllers(settings)
        daemons = daemons_of(*past, *others)
        self._real, self._other = (Fold(controllers(daemons), voided=voided) for _ in range(2))
        self._instead: dict[str, Envelope[Payload] | None] = {}
        read = (controller.reads | controller.emits for spec in daemons.values() for controller in spec.controllers)
        self.reads: frozenset[type[Payload]] = frozenset({RunConfigured}).union(*read)

    def feed(self, event: Event[Payload]) -> list[Divergence]:
        """Fold one event; return the conclusions that differ."""
        concluded = {conclusion.envelope.id: conclusion for conclusion in self._real.feed((event,)).conclusions}
        divergences = list[Divergence]()
        waiting = deque(self._alter(event))
        while waiting:
            for conclusion in self._other.feed((waiting.popleft(),)).conclusions:
                before = concluded.pop(conclusion.envelope.id, None)
                if before is None:
                    waiting.append(Event(conclusion.envelope, event.sequence, event.recorded_us, SOURCE))
                    divergences.append(_divergence("added", event, None, conclusion))
                elif before.envelope != conclusion.envelope:
                    self._instead[conclusion.envelope.id] = conclusion.envelope
                    if before.envelope.subject == conclusion.envelope.subject:
                        same_type = type(before.envelope.data) is type(conclusion.envelope.data)
                        kind: Change = "changed" if same_type else "replaced"
                        divergences.append(_divergence(kind, event, before, conclusion))
                    else:  # equal ids only mean the same index under a cause: these two are unrelated
                        divergences.append(_divergence("missing", event, before, None))
                        divergences.append(_divergence("added", event, None, conclusion))
        for before in concluded.values():
            self._instead[before.envelope.id] = None
            divergences.append(_divergence("missing", event, before, None))
        return divergences

    def _alter(self, event: Event[Payload]) -> tuple[Event[Payload], ...]:
        """Return the event under the other settings, if it would exist."""
        if event.id in self._instead:
            instead = self._instead.pop(event.id)
            return () if instead is None else (replace(event, envelope=instead),)
        if isinstance(event.data, RunConfigured):
            with suppress(ForeignSettings):
                settings = self._change(RunSettings.recorded(event.data.settings, event.source))
                data = event.data.replace(settings=settings)
                return (replace(event, envelope=replace(event.envelope, data=data)),)
        return (event,)

    def _change(self, settings: RunSettings) -> dict[str, JsonValue]:
        """Return settings with those values whose tables the settings have.

        A run may have got a configuration or a controller later. Tables that no settings have are errors.
        """
        absent = {table for table in self._tables - _tables(settings) if f"{table}use" not in self._values}
        return changed(
            settings, {key: value for key, value in self._values.items() if not key.startswith(tuple(absent))}
        )


def _tables(settings: RunSettings) -> frozenset[str]:
    """Return the key prefixes of a run's configurations and own controllers."""
    games, own = (f"games.{key}." for key in settings.by_key), (f"controllers.{name}." for name in settings.controllers)
    return frozenset((*games, *own))


def _divergence(kind: Change, cause: Event[Payload], before: Conclusion | None, after: Conclusion | None) -> Divergence:
    either = after or before
    assert either is not None
    envelopes = (before and before.envelope, after and after.envelope)
    return Divergence(kind, cause.sequence, cause.recordedtime, either.by, *envelopes)
