"""``flyball status``: the configurations and daemons of a run."""

from collections import Counter

import click
from rich.text import Text

from flyball.app.api.runs import NotRunning, RunLocation, open_journal, read_status
from flyball.app.cli.options import json_option, run_options
from flyball.app.cli.output import note, show, stdout_console, write_json
from flyball.app.core.clock import SECOND_US, SLOWED, SMALL_JUMP_US
from flyball.app.events.envelope import EPOCH
from flyball.app.journal import JournalReader
from flyball.app.journal.history import open_dead_letters
from flyball.app.status.status import ConfigStatus, Status
from flyball.app.status.summary import ADVISES_ONLY, short, show_age
from flyball.app.status.tables import daemons_table, next_trainings, status_table
from flyball.daemons.clock import MICROSECOND, SystemClock
from flyball.daemons.run_folder import of_other_history
from flyball.daemons.shipping import Shipping, shipping_of

COLUMNS_EXPLAINED = """\b
Columns:
state           blocked until bad data is gone, paused for poor data,
                plateaued: its gain is done, and it gets the least worker time;
                exploration boosted by a factor, or trainings diverged in a
                row
games/s         games of self-play a second, over the last minute
step            trainings of the latest model
champion's Elo  with the random bot at 0, ± one standard error; before the
                champion is rated, of the latest rated model
last rated v. random
                score of the latest rated model, champion or not. Few games (n)
                once the champion scores over 90%: evaluation.saturated_games
last rated v. past champion
                score of that model against the champion some loops ago; "-"
                while its rating has met none but the current champion
loops           trainings whose model was evaluated and decided upon
+/-             trained models promoted and rejected, without the initial one
rollbacks       promotions that were revoked
heard           time since the broker heard the daemon
behind          events that a daemon has not read yet
jobs            running jobs, and the most at once

Below, a line for each configuration says what its next training waits for:
rows, with the time until then at the rate of the last shards, a verdict, a
worker, or the end of a pause. A further line for one that needs attention
has the reason and a remedy.

In JSON, unfolded has the positions of events that a daemon could not read or
fold and that are not voided; refused is the number of refused events;
set_aside are files that belong to another history of the journal; unshipped
is the number of events that are not in deployment.journal.ship, null if unset.
"""


@click.command(epilog=COLUMNS_EXPLAINED)
@json_option
@run_options
def status(location: RunLocation, *, as_json: bool) -> None:
    """Show configurations and daemons.

    If the run is not running, this is its last known state, and the exit code is 3; a daemon is gone if it ended
    without an event, as when its machine failed. While the run is running, the broker knows the living daemons; a
    silent daemon is lost. On a machine without the run's journal, everything comes from the broker.
    """
    now = read_status(location, note)
    head, unfolded, refused, lead_seconds = now.position, set[int](), 0, 0.0
    shipping: Shipping | None = None
    if location.journal.exists():
        with open_journal(location) as reader:
            head, unfolded = reader.head, {dead.position for dead in open_dead_letters(reader)}
            refused = sum(not dead.position for dead in reader.dead_letters())
            lead_seconds = _lead_seconds(reader)
            shipping = shipping_of(location.folder, location.load(), reader, SystemClock().now())
    aside = [str(path.relative_to(location.folder.path)) for path in of_other_history(location.folder)]
    if as_json:
        extra = {
            "head": head,
            "set_aside": aside,
            "unfolded": sorted(unfolded),
            "refused": refused,
            "clock_lead_seconds": lead_seconds,
            "unshipped": shipping and shipping.events,
        }
        write_json(now.to_builtins() | extra)
    else:
        width = stdout_console().width
        waiting = [
            Text(f"{config.key}: {location.completed(config.waiting_for)}")
            for config in now.configs
            if config.waiting_for
        ]
        waiting += [Text(f"{config.key}: {_late_text(config)}") for config in now.configs if config.late]
        show(*_mode(now), status_table(now, width), *next_trainings(now), *waiting, "", daemons_table(now, width))
        counts = Counter(daemon.state for daemon in now.daemons)
        states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none heard of"
        note(f"{head} events; daemons: {states}")
        if unfolded:
            note(f"WARNING: {len(unfolded)} events could not be read or folded. See: flyball journal repair")
        if refused:
            note(f"WARNING: {refused} dead letters of refused events. See: flyball journal dead-letters list")
    if aside:
        note(
            f"WARNING: {len(aside)} files belong to another history of the journal and were set aside. "
            "See: flyball doctor --explain history-replaced"
        )
    _warn_of_late_shipping(shipping)
    if lead_seconds > SMALL_JUMP_US / SECOND_US:
        note(
            f"Recorded time is {lead_seconds:,.0f} s ahead of this machine's clock, which was set back. It goes on, "
            f"at {SLOWED:.0%} of its speed, until the clock has caught up."
        )
    if not now.running:
        heard = [daemon.heard_seconds_ago for daemon in now.daemons]
        last = f"its last event came {show_age(min(heard))} ago" if heard else "no daemon has ever reported"
        raise NotRunning(
            f"The run in {location.folder.path} is not running; {last}.",
            hint=f"Start it: {location.command('up')}",
        )


def _warn_of_late_shipping(shipping: Shipping | None) -> None:
    if shipping and (shipping.is_late or shipping.error):
        note(f"WARNING: The journal is not shipped: {shipping.text} See: flyball doctor --explain journal-not-shipped")


def _mode(now: Status) -> tuple[Text, ...]:
    """Return a line about a run that only advises."""
    return (Text(ADVISES_ONLY),) if now.advises else ()


def _late_text(config: ConfigStatus) -> str:
    return (
        f"model {short(config.model)} has not reached {', '.join(config.late)}; jobs there fetch it when they need it. "
        "Look at the store, and at logs/distribution.jsonl on these nodes"
    )


def _lead_seconds(reader: JournalReader) -> float:
    """Return the seconds that recorded time is ahead of this machine's clock; 0 if it is not, or without events."""
    last = next(reader.headers_back(reader.head), None)
    now_us = (SystemClock().now() - EPOCH) // MICROSECOND
    return max(0, last.recorded_us - now_us) / SECOND_US if last else 0.0
