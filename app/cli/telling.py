"""Telling how a scenario goes: a line a step for people, or JSON."""

import shlex
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from app.cli.output import note, show, write_json
from app.config import RunFolder
from app.dashboard import event_text, summarise
from app.events import Event, Payload
from app.runtime.scenarios import Plan, Seen

STYLES = {"injected": "bold red", "struck": "red", "detected": "yellow", "decided": "magenta", "recovered": "green"}
ID_DIGITS = 12
"""More than elsewhere: they are there to be copied."""


class Teller:
    """Writes to stdout what happens; see ``Audience``.

    Args:
        folder: of the run.
        plan: of the scenario.
        as_json: for programs.
    """

    def __init__(self, folder: RunFolder, plan: Plan, *, as_json: bool) -> None:
        self._folder, self._plan, self._as_json = folder, plan, as_json
        self._over, self._wrong = True, False

    def began(self, trouble: Event[Any]) -> None:
        """See ``Audience.began``."""
        self._over, self._wrong = False, True
        self._write("injected", trouble, 0.0, follows=True)

    def saw(self, seen: Seen) -> None:
        """See ``Audience.saw``."""
        self._write(seen.stage, seen.event, seen.seconds, follows=seen.follows)

    def remedied(self, remedy: Payload) -> None:
        """See ``Audience.remedied``."""
        self._wrong = False
        note(f"put right: {remedy.seed_name} {summarise(remedy)}")

    def ended(self, traces: Mapping[str, str], *, well: bool) -> None:
        """See ``Audience.ended``."""
        self._over, self._wrong = well, self._wrong and not well
        if self._as_json:
            write_json({"stage": "ended" if well else "left", "traces": list(traces)})
            return
        for one, shown in traces.items():
            show(Text(f"flyball --run {self._folder.path} trace {one[:ID_DIGITS]}").append(f"  # {shown}", "dim"))

    def close(self) -> None:
        """Say what stays as it is when the scenario is left before its end, and how to put it right."""
        if not self._over:
            note(self._plan.remains)
        if self._wrong and (remedy := self._plan.remedy):
            about = f" --config-key {self._plan.key}" if self._plan.key else ""
            data = shlex.quote(remedy.model_dump_json())
            note(f"To put it right by hand: flyball --run {self._folder.path} emit {remedy.seed_name} {data}{about}")

    def _write(self, stage: str, event: Event[Any], seconds: float, *, follows: bool) -> None:
        if self._as_json:
            write_json({"stage": stage, "seconds": seconds, "follows": follows, "event": event.to_cloudevent()})
            return
        line = Text(f"{stage:<10}", STYLES[stage])
        line.append(f"{seconds:+9.2f} s  {event.id[:ID_DIGITS]}  ", "dim")
        show(line.append_text(event_text(event)))
