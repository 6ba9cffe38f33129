"""``flyball up --profile demo``: troubles planted one after the other, announced before and explained after.

Each act is a process of ``flyball scenario``, so what it does can be repeated by hand in any run.
"""

import asyncio
import textwrap
from asyncio.subprocess import DEVNULL
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from flyball.app.api.runs import RunLocation, locate_run
from flyball.app.cli.group import EXIT_CODES
from flyball.app.cli.output import json_text, stdout_console
from flyball.app.cli.up_screen import Screen
from flyball.app.config import RunSettings
from flyball.app.core import FlyballError, writing
from flyball.app.engine.programs import python_module
from flyball.app.events import Event
from flyball.app.scenarios.demonstration import ACTS, STUCK, Act, settings_text

PROFILE = "demo"
FOLDER = Path("demo")
"""The run folder of the demonstration."""

READING_SECONDS = 7.0
"""Time to read an announcement before the trouble is planted, and an explanation before the next act."""

READY_SECONDS, WAIT_SECONDS = 120, 240
"""Longest times until a trouble can be planted, and until it is over, on a slow machine."""

MOST_COLUMNS = 110

Say = Callable[[str], None]
Run = Callable[[Sequence[str]], Awaitable[int]]
"""Function that runs a command to its end, and returns its exit code."""


class RunToKeep(FlyballError, code="run_exists"):
    """A folder with a run, in which nothing may be planted."""


def prepare_demonstration(location: RunLocation, *, named: bool) -> RunLocation:
    """Return the location of a new run with the demonstration's settings.

    The folder is ``demo`` unless the command named one (``named``). ``flyball.toml`` is written unless there is one.

    Raises ``RunToKeep`` if the folder has a run, because troubles would be planted in it.
    """
    if not named:
        location = locate_run(FOLDER, location.config_file)
    folder = location.folder
    if folder.has_journal:
        other = locate_run(f"{folder.path}2", location.config_file)
        raise RunToKeep(
            f"There is a run in {folder.path} already, and the demonstration begins one of its own.",
            hint=f"Begin another: {other.command('up', '--profile', PROFILE)}. Or go on with that run, without planted "
            f"troubles: {location.command('up')}",
        )
    if location.config_file is None and not folder.settings.exists():
        with writing(folder.settings):
            folder.path.mkdir(parents=True, exist_ok=True)
            folder.settings.write_text(settings_text(), encoding="utf-8")
    return location


def refuse_options(**given: object) -> None:
    """Refuse options that do not go with the demonstration, by name. Raises ``click.UsageError``."""
    for name, value in given.items():
        if value:
            raise click.UsageError(
                f"--profile {PROFILE} has its own configurations on one machine: leave --{name} out."
            )


class StoryScreen(Screen):
    """Plain output without the run's events, because the demonstration shows those that matter."""

    def event(self, event: Event[Any], settings: RunSettings | None = None) -> None:
        """Show nothing."""


class Demonstration:
    """All acts, in a run that is starting.

    Args:
        location: the run.
        dashboard: address of its dashboard; empty: there is none.
        as_json: whether output is JSON.
    """

    def __init__(self, location: RunLocation, dashboard: str, *, as_json: bool = False) -> None:
        self._location, self._dashboard, self._as_json = location, dashboard.rstrip("/"), as_json

    async def play(self, say: Say, run: Run) -> None:
        """Play all acts. An act that the loop does not answer in time is reported, and the next one follows.

        Args:
            say: writes what is told before and after an act.
            run: runs the command of an act, which writes its steps.
        """
        loop, seen = asyncio.get_running_loop(), 0
        began = loop.time()
        say(
            self._text(
                f"A demonstration of {len(ACTS)} acts, in two and a half to six minutes. Ctrl-C ends it at any time.",
                {
                    "Steps": "a trouble is injected, and strikes the loop; it is detected, decided upon, and recovered "
                    "from. Not all steps are shown: flyball tail shows every event."
                },
            )
        )
        for number, act in enumerate(ACTS, 1):
            minutes, seconds = divmod(int(loop.time() - began), 60)
            title = f"Act {number} of {len(ACTS)}, {minutes}:{seconds:02}: {act.title}"
            say(self._text(title, announcement(act, self._location, self._dashboard)))
            await asyncio.sleep(READING_SECONDS)
            say(self._text(f"Waiting for {act.waits}."))
            code = await run(self._command(act))
            seen += code == 0
            say(self._text("", conclusion(act, code, self._location)))
            await asyncio.sleep(READING_SECONDS)
        end = f"{seen} of {len(ACTS)} troubles were noticed, answered and overcome. The run stops; its report follows."
        notes = {
            "Plateau": f"If the report calls {STUCK} plateaued again, it is right: a small game is soon learned "
            "completely, and then its worker time belongs to the other one.",
            "Look": f"{self._location.command('dashboard')} shows the run that has stopped.",
            "Go on": f"{self._location.command('up')} continues it, without planted troubles.",
        }
        say(self._text(end, notes))

    def _command(self, act: Act) -> Sequence[str]:
        file = self._location.config_file
        options = ("--run", str(self._location.folder.path), *(("--config-file", str(file)) if file else ()))
        waits = ("--ready", str(READY_SECONDS), "--wait", str(WAIT_SECONDS))
        as_json = ("--json",) if self._as_json else ()
        return python_module("flyball.app.cli", *options, "scenario", act.scenario, act.key, *waits, *as_json)

    def _text(self, title: str, notes: Mapping[str, str] | None = None) -> str:
        """Return a title and notes with their names, as lines or as JSON."""
        if self._as_json:
            return json_text({"demonstration": title, **(notes or {})})
        return "\n".join(_lines(title, notes or {}))


def announcement(act: Act, location: RunLocation, dashboard: str) -> Mapping[str, str]:
    """Return what is said before an act, by names."""
    answers = (
        f"{controller} ({', '.join(kind.event_name for kind in kinds)})" for controller, kinds in act.answers.items()
    )
    page = (f"{dashboard}{act.page}",) if dashboard else ()
    return {
        "Planted": act.planted,
        "Watch": act.watch,
        "Answers": ", then ".join(answers),
        "Look": "; ".join((*(location.command(*words) for words in act.commands), *page)),
    }


def conclusion(act: Act, code: int, location: RunLocation) -> Mapping[str, str]:
    """Return what is said after an act whose command ended with an exit code, by names."""
    if code == 0:
        return {"Why": act.explained}
    again = location.command("scenario", act.scenario, act.key)
    if code == EXIT_CODES["unavailable"]:
        missed = f"A step did not come within {WAIT_SECONDS} s: the last one above is the last that was seen."
    else:
        missed = "Nothing was planted, for the reason above."
    return {"Not seen": f"{missed} The demonstration goes on. To try it again in a run that is running: {again}"}


def _lines(title: str, notes: Mapping[str, str]) -> Iterator[str]:
    """Return the lines of a title and of notes, within the width of the terminal."""
    width = min(MOST_COLUMNS, stdout_console().width)
    if title:
        yield ""
        yield from textwrap.wrap(title, width)
    for name, text in notes.items():
        first = f"  {name + ':':<10}"
        yield from textwrap.wrap(
            text, width, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
        )


async def run_command(command: Sequence[str]) -> int:
    """Run a command that writes to this process's stdout and stderr. It ends with its caller."""
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, start_new_session=True)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
