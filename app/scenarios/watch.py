"""Watch a run for a plan's expected steps. Pure."""

from dataclasses import dataclass
from typing import Any

from app.events import Event, Scope
from app.scenarios.plan import Expected, Plan, Stage

TRACED = 6
"""Generations of effects that ``flyball trace`` shows by default."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A step that was seen.

    Attributes:
        stage: what it is in the story.
        event: the event.
        seconds: since the trouble was recorded.
        follows: whether the trouble is among its causes.
    """

    stage: Stage
    event: Event[Any]
    seconds: float
    follows: bool


class Watch:
    """Looks for a plan's steps, in their order, among the events from the trouble on.

    Args:
        plan: what is expected.
        trouble: the recorded trouble.
    """

    def __init__(self, plan: Plan, trouble: Event[Any]) -> None:
        self._plan, self._trouble = plan, trouble
        self._descendants: set[str] = {trouble.id}
        self._shown: dict[str, tuple[str, int]] = {trouble.id: (trouble.id, 0)}  # trace's root, generations after it
        self.seen: list[Seen] = []

    @property
    def awaited(self) -> Expected | None:
        """The step that comes next; ``None`` when all have been seen."""
        return self._plan.expected[len(self.seen)] if len(self.seen) < len(self._plan.expected) else None

    def feed(self, event: Event[Any]) -> Seen | None:
        """Take in the next event. Returns the step that it is, if it is one."""
        cause = event.envelope.causationid
        if cause in self._descendants:
            self._descendants.add(event.id)
        if cause in self._shown and self._shown[cause][1] < TRACED:
            root, generation = self._shown[cause]
            self._shown[event.id] = root, generation + 1
        expected = self.awaited
        if expected is None or not self._is(expected, event):
            return None
        seconds = (event.recorded_us - self._trouble.recorded_us) / 1e6
        found = Seen(expected.stage, event, seconds, follows=event.id in self._descendants)
        self.seen.append(found)
        if event.id not in self._shown:  # its cause shows what else came of it at once
            root = event.envelope.causationid or event.id
            self._shown |= {root: (root, 0), event.id: (root, 1 if root != event.id else 0)}
        return found

    def traces(self) -> dict[str, str]:
        """Return the ids whose traces together show every step, each with the steps that it shows.

        They are the trouble's, unless the steps seen have other causes, and those causes.
        """
        found: dict[str, list[str]] = {}
        for stage, event in (("injected", self._trouble), *((seen.stage, seen.event) for seen in self.seen)):
            found.setdefault(self._shown[event.id][0], []).append(f"{stage}: {event.data.event_name}")
        if len(found) > 1 and len(found[self._trouble.id]) == 1:
            del found[self._trouble.id]
        return {root: ", ".join(steps) for root, steps in found.items()}

    def _is(self, expected: Expected, event: Event[Any]) -> bool:
        if not isinstance(event.data, expected.kind):
            return False
        concerned = event.data.scope is Scope.SYSTEM or self._plan.key in (None, event.subject)
        return concerned and expected.fits(event, [seen.event for seen in self.seen])
