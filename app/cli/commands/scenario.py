"""``flyball scenario``: make a trouble in a running loop, and see what the loop does about it."""

import asyncio

import click

from app.cli.bus import connected
from app.cli.place import Place, json_option, placed
from app.cli.playing import Player
from app.cli.selecting import check_config, open_journal
from app.cli.telling import Teller
from app.dashboard import show_age
from app.journal import history
from app.runtime.past import last_settings
from app.runtime.scenarios import READS, SCENARIOS, Known, Plan, Pointless, choose, known_of
from app.runtime.settings import UnknownConfig
from app.store import FileStore

DEADLINE_S = 10.0


@click.command(epilog="  ".join(f"{name}: {one.purpose}." for name, one in SCENARIOS.items()))
@click.argument("name", type=click.Choice(list(SCENARIOS)), metavar=f"{{{'|'.join(SCENARIOS)}}}")
@click.argument("config_key", metavar="[CONFIG]", required=False)
@click.option(
    "--wait",
    "seconds",
    default=300.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds until the loop must have recovered; 0 makes the trouble and leaves.",
)
@json_option
@placed
def scenario(place: Place, name: str, config_key: str | None, *, seconds: float, as_json: bool) -> None:
    """Make a trouble in a running loop, and follow how it is detected, decided upon and recovered from.

    It gets in as an operator's mistake or a broken node would: as an event, or an artifact in the store. Without
    CONFIG, the first configuration that has what the trouble needs is chosen; dead-node takes none. Each step is
    printed as it is seen, then the commands that show how one led to another.
    """
    plan = _plan(place, name, config_key, seconds)
    teller = Teller(place.folder, plan, as_json=as_json)
    try:
        asyncio.run(_play(place, plan, teller, seconds))
    finally:
        teller.close()


def _plan(place: Place, name: str, config_key: str | None, seconds: float) -> Plan:
    chosen = SCENARIOS[name]
    if config_key is not None and not chosen.takes_config:
        raise click.UsageError(f"{name} strikes whichever configuration comes next: leave CONFIG out.")
    known = _known(place, config_key)
    store = FileStore(place.folder.store)
    plan = chosen.plan(choose(chosen, known, config_key, store), store)
    if 0 < seconds < plan.least_seconds:
        raise Pointless(
            f"{name} cannot be over within {seconds:g} s: with the settings of this run it takes at least "
            f"{show_age(plan.least_seconds)}.",
            hint=f"Use --wait {2 * plan.least_seconds:g}, or make it and leave with --wait 0. To see it sooner, "
            f"put these lines into {place.folder.settings} and start the loop again:\n{plan.shorten}",
        )
    return plan


def _known(place: Place, config_key: str | None) -> dict[str, Known]:
    with open_journal(place) as reader:
        check_config(reader, config_key)
        settings = last_settings(reader)
        known = known_of(settings, history(reader, types=READS, on_dead=lambda _: None)) if settings else {}
    if config_key is not None and config_key not in known:
        raise UnknownConfig(f"This run does not play {config_key}.", hint=f"It plays {', '.join(known)}.")
    return known


async def _play(place: Place, plan: Plan, teller: Teller, seconds: float) -> None:
    loaded = place.load()
    async with connected(place, loaded, DEADLINE_S) as bus:
        await Player(bus, plan, teller, loaded.deployment.heartbeat_seconds).play(seconds)
