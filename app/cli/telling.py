"""Telling how a scenario goes: a line a step for people, or JSON."""

import shlex
from collections.abc import Sequence
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
        self._open = False

    def began(self, trouble: Event[Any]) -> None:
        """See ``Audience.began``."""
        self._open = True
        self._write("injected", trouble, 0.0, follows=True)

    def saw(self, seen: Seen) -> None:
        """See ``Audience.saw``."""
        self._write(seen.stage, seen.event, seen.seconds, follows=seen.follows)

    def remedied(self, remedy: Payload) -> None:
        """See ``Audience.remedied``."""
        self._open = False
        note(f"put right: {remedy.seed_name} {summarise(remedy)}")

    def ended(self, traces: Sequence[str]) -> None:
        """See ``Audience.ended``."""
        self._open = False
        if self._as_json:
            write_json({"stage": "ended", "traces": list(traces)})
            return
        for one in traces:
            show(Text(f"flyball --run {self._folder.path} trace {one[:ID_DIGITS]}"))

    def close(self) -> None:
        """Say how to put right what was left wrong."""
        if self._open and (remedy := self._plan.remedy):
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
