"""``flyball observe``: publish facts from the files of an observed loop."""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import click

from flyball.app.api.runs import RunLocation
from flyball.app.cli.options import run_options
from flyball.app.cli.output import echo, note
from flyball.app.core import OBSERVER
from flyball.app.observing.mapping import ObservedRule
from flyball.app.status.summary import one_line
from flyball.app.telemetry import configure
from flyball.daemons.observer import Complaint, Observer, mapped_rules, run_observer
from flyball.daemons.run_folder import check_present, prepare
from flyball.daemons.supervisor import end_with_stdin

MOST_SHOWN = 20
"""Bad records that are shown one by one."""


@click.command()
@click.option("--check", is_flag=True, help="Read the files once, say what is in them, and publish nothing.")
@click.option("--supervised", is_flag=True, hidden=True, help="End when stdin does.")
@run_options
def observe(location: RunLocation, *, check: bool, supervised: bool) -> None:
    """Publish facts from the files of an observed loop: CSV, JSON lines or TensorBoard's event files.

    The tables of observe in flyball.toml name the files and what their records say. `up` does this itself; --check
    tries tables out. A record is published once, however often its file is read, rewritten or rotated. A bad record
    costs itself; logs/observer.jsonl says why.
    """
    if supervised:
        end_with_stdin()
        check_present(location.folder)
    loaded = location.load()
    rules = mapped_rules(loaded)
    if check:
        _warn_of_missing_promotions(rules)
        sys.exit(_check(Observer(rules)))
    prepare(location.folder)
    log, node = location.folder.log(OBSERVER), loaded.deployment.node
    with configure(OBSERVER, node, log, loaded.deployment.log_level):
        asyncio.run(_run(location))


async def _run(location: RunLocation) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run_observer(location.load(), location.folder, stop)


def _warn_of_missing_promotions(rules: Sequence[ObservedRule]) -> None:
    """Warn of configurations whose current model stays unknown, because most advice is about it."""
    promoted = {rule.config.key for rule in rules if rule.fact == "promotion"}
    for key in sorted({rule.config.key for rule in rules} - promoted):
        note(
            f"WARNING: No rule has the fact promotion for {key}, so none of its models counts as current. "
            "Every candidate will be advised for promotion, and no rejection or rollback. See: flyball docs observing"
        )


def _check(observer: Observer) -> int:
    """Say what is in the files; return 1 if any content cannot be used."""
    counts, complaints = Counter[str](), list[Complaint]()
    for found in chain.from_iterable(observer.look()):
        if isinstance(found, Complaint):
            complaints.append(found)
        else:
            counts[f"{found.config_key} {found.data.event_name}"] += 1
    for name, count in sorted(counts.items()):
        echo(f"{name}: {count}")
    if not counts:
        echo("No fact is in the files yet.")
    for complaint in complaints[:MOST_SHOWN]:
        note(one_line(str(complaint)))
    if len(complaints) > MOST_SHOWN:
        note(f"{len(complaints) - MOST_SHOWN} further records cannot be used.")
    return 1 if complaints else 0
