"""``flyball scenario``: cause a trouble in a running loop, and follow it."""

import asyncio
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import sleep
from typing import Any

import click
from rich.text import Text

from flyball.app.api.runs import RunLocation, connected
from flyball.app.api.scenarios import plan_scenario
from flyball.app.bus import Bus, Subscription
from flyball.app.cli.options import json_option, run_options
from flyball.app.cli.output import echo, hanging, note, show, stdout_console, write_json
from flyball.app.core import FlyballError, derive_id
from flyball.app.events import Event, Payload, Scope, follow, originate
from flyball.app.journal import NotAJournal
from flyball.app.scenarios import SCENARIOS, Expected, NotReady, ObservedStep, Plan, Pointless, Watch
from flyball.app.status.summary import event_text, show_age, summarise
from flyball.daemons.clock import SystemClock, boot_id

STYLES = {"injected": "bold red", "struck": "red", "detected": "yellow", "decided": "magenta", "recovered": "green"}
STAGE_COLUMNS = 9
ID_DIGITS = 12
"""Digits of printed ids; more than elsewhere, because users copy these."""

DEADLINE_S = 10.0

LOOK_S = 2.0
"""Seconds between two looks at a loop that lacks what a scenario needs."""


class NeverCame(FlyballError, code="unavailable"):
    """An event that a scenario waits for was not seen in time."""

    def __init__(self, awaited: Expected, seconds: float) -> None:
        what = f"{awaited.kind.event_name}, by which the trouble would be {awaited.stage},"
        super().__init__(f"{what} did not come within {seconds:g} s.", hint=awaited.doubt)


@click.command(epilog="  ".join(f"{name}: {entry.purpose}." for name, entry in SCENARIOS.items()))
@click.argument("name", type=click.Choice(list(SCENARIOS)), metavar=f"{{{'|'.join(SCENARIOS)}}}")
@click.argument("config_key", metavar="[CONFIG]", required=False)
@click.option(
    "--wait",
    "seconds",
    default=300.0,
    type=click.FloatRange(0),
    help="Seconds until the loop must have recovered; 0 makes the trouble and leaves.",
)
@click.option(
    "--ready",
    "ready_seconds",
    default=0.0,
    type=click.FloatRange(0),
    help="Seconds to wait for a loop that still lacks what the trouble needs.",
)
@json_option
@run_options
def scenario(
    location: RunLocation, name: str, config_key: str | None, *, seconds: float, ready_seconds: float, as_json: bool
) -> None:
    """Cause a trouble in a running loop, and follow the recovery.

    The command follows how the trouble is detected, decided upon and recovered from. The trouble gets in as an
    operator's mistake or a broken node would: as an event, or an artifact in the store. Without CONFIG, the first
    configuration that has what the trouble needs is chosen; dead-node takes none. Each step is printed as it is seen,
    then the commands that show how one led to another.
    """
    plan = _plan(location, name, config_key, seconds, ready_seconds)
    reporter = Reporter(location, plan, as_json=as_json)
    try:
        asyncio.run(_play(location, plan, reporter, seconds))
    finally:
        reporter.close()


def _plan(location: RunLocation, name: str, config_key: str | None, seconds: float, ready_seconds: float) -> Plan:
    chosen = SCENARIOS[name]
    if config_key is not None and not chosen.takes_config:
        raise click.UsageError(f"{name} strikes whichever configuration comes next: leave CONFIG out.")
    plan = _planned_when_ready(location, name, config_key, ready_seconds)
    if 0 < seconds < plan.least_seconds:
        raise Pointless(
            f"{name} cannot be over within {seconds:g} s: with the settings of this run it takes at least "
            f"{show_age(plan.least_seconds)}.",
            hint=f"Use --wait {2 * plan.least_seconds:g}, or make it and leave with --wait 0. To see it sooner, "
            f"put these lines into {location.folder.settings} and start the loop again:\n{plan.shorten}",
        )
    return plan


def _planned_when_ready(location: RunLocation, name: str, config_key: str | None, seconds: float) -> Plan:
    """Plan a scenario once the loop has what it needs.

    Raises ``NotReady``, or ``NotAJournal`` for a run that has not begun, if that takes more than ``seconds``.
    """
    clock, lack = SystemClock(), ""
    end = clock.monotonic() + seconds
    while True:
        try:
            return plan_scenario(location, name, config_key)
        except (NotReady, NotAJournal) as error:
            if clock.monotonic() >= end:
                raise
            if error.message != lack:
                lack = error.message
                note(f"waiting: {lack}")
        sleep(LOOK_S)


async def _play(location: RunLocation, plan: Plan, reporter: "Reporter", seconds: float) -> None:
    async with connected(location, DEADLINE_S) as bus:
        await Player(bus, plan, reporter, location.load().deployment.heartbeat_seconds).play(seconds)


class Reporter:
    """Writes a scenario's progress to stdout."""

    def __init__(self, location: RunLocation, plan: Plan, *, as_json: bool) -> None:
        self._location, self._plan, self._as_json = location, plan, as_json
        self._settings = location.load().run
        self._over, self._wrong = True, False

    def began(self, trouble: Event[Any]) -> None:
        """Report that the trouble is recorded."""
        self._over, self._wrong = False, True
        self._write("injected", trouble, 0.0, follows=True)

    def saw(self, seen: ObservedStep) -> None:
        """Report an expected step."""
        self._write(seen.stage, seen.event, seen.seconds, follows=seen.follows)

    def remedied(self, remedy: Payload, position: int) -> None:
        """Report that the remedy was published, and its position in the journal."""
        self._wrong = False
        text = f"put right at position {position}: {remedy.event_name} {summarise(remedy)}"
        for line in textwrap.wrap(text, stdout_console().width):
            note(line)

    def ended(self, traces: Mapping[str, str], *, well: bool) -> None:
        """Report the end of the scenario. ``traces`` maps the ids whose traces show the steps to the steps' names."""
        self._over, self._wrong = well, self._wrong and not well
        if self._as_json:
            write_json({"stage": "ended" if well else "left", "traces": list(traces)})
            return
        for event_id, steps in traces.items():
            # In one line however long, because the rest of a wrapped comment would run as a command when pasted.
            echo(f"{self._location.command('trace', event_id[:ID_DIGITS])}  # {steps}")

    def close(self) -> None:
        """Report what remains of an unfinished scenario, and how to remedy it."""
        if not self._over:
            note(self._plan.remains)
        if self._wrong and (remedy := self._plan.remedy):
            about = ("--config-key", self._plan.key) if self._plan.key else ()
            command = self._location.command("emit", remedy.event_name, remedy.model_dump_json(), *about)
            note(f"To put it right by hand: {command}")

    def _write(self, stage: str, event: Event[Any], seconds: float, *, follows: bool) -> None:
        if self._as_json:
            write_json({"stage": stage, "seconds": seconds, "follows": follows, "event": event.to_cloudevent()})
            return
        head = Text(f"{seconds:+9.2f} s  {event.sequence:>5}  {event.id[:ID_DIGITS]}  ", "dim")
        text = Text().append_text(head).append_text(event_text(event, self._settings))
        show(hanging(Text(f"{stage:<{STAGE_COLUMNS}}", STYLES[stage]), text))


class Player:
    """Plays one scenario on the bus of a running loop. ``pulse_s`` is the period of the plan's pulses, in seconds."""

    def __init__(self, bus: Bus, plan: Plan, reporter: Reporter, pulse_s: float) -> None:
        self._bus, self._plan, self._reporter, self._pulse_s = bus, plan, reporter, pulse_s
        self._clock, self._boot, self._published = SystemClock(), boot_id(), 0

    async def play(self, seconds: float) -> None:
        """Cause the trouble, then follow the run for at most ``seconds``. Raises ``NeverCame``."""
        position = await self._publish(self._plan.trouble)
        async with self._bus.subscribe(after=position - 1) as subscription:
            events: Sequence[Event[Any]] = ()
            while not events:
                events = (await anext(subscription)).events
            trouble, *later = events
            self._reporter.began(trouble)
            if seconds:
                watch = Watch(self._plan, trouble)
                try:
                    await self._follow(subscription, watch, later, seconds)
                finally:
                    self._reporter.ended(watch.traces(), well=watch.awaited is None)

    async def _follow(
        self, subscription: Subscription, watch: Watch, events: Sequence[Event[Any]], seconds: float
    ) -> None:
        plan, began = self._plan, self._clock.monotonic()
        beats_at, end = began + self._pulse_s, began + seconds
        while True:
            for event in events:
                if seen := watch.feed(event):
                    self._reporter.saw(seen)
                    if plan.remedy and plan.remedy_after == len(watch.seen) - 1:
                        position = await self._publish(plan.remedy, seen.event)
                        self._reporter.remedied(plan.remedy, position)
            if watch.awaited is None:
                return
            now = self._clock.monotonic()
            if (left := end - now) <= 0:
                raise NeverCame(watch.awaited, seconds)
            if plan.pulse and not watch.seen and now >= beats_at:
                beats_at = now + self._pulse_s
                await self._publish(plan.pulse)
            events = ()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, self._pulse_s)):
                    events = (await anext(subscription)).events

    async def _publish(self, data: Payload, cause: Event[Any] | None = None) -> int:
        subject, now = self._plan.key if data.scope is Scope.CONFIG else None, self._clock.now()
        if cause is not None:
            return await self._bus.publish(follow(data, cause.cause, by="cli", subject=subject, time=now))
        self._published += 1
        event_id = derive_id("cli", self._boot, self._published)
        return await self._bus.publish(originate(data, event_id=event_id, time=now, subject=subject))
