"""``flyball league``: members of leagues, their ratings, and self-play's opponents."""

from pathlib import Path
from typing import Any

import click

from flyball.app.api.league_import import read_league
from flyball.app.api.leagues import league_views
from flyball.app.api.runs import RunLocation, open_run
from flyball.app.cli.options import FILE, FOLDER, figure_option, json_option, run_options
from flyball.app.cli.output import note, show, show_table, write_json
from flyball.app.config import RunSettings
from flyball.app.core import LEAST_P, writing
from flyball.app.journal.history import last_settings
from flyball.app.league.document import dump_league
from flyball.app.league.league import League
from flyball.app.status.league import LeagueView, draw_league
from flyball.app.status.summary import UNKNOWN, short, show_outcome, show_progress
from flyball.app.store import ForeignLeague, LeagueFile

LEFT = ("agent", "why", "parent")
COLUMNS = ("agent", "why", "step", "Elo", "95%", "games", "v. current", "met", "parent")


@click.command()
@click.argument("config_key", metavar="[CONFIG]", required=False)
@figure_option("Draw CONFIG's")
@click.option("--export", "document", type=FILE, help="Write CONFIG's league.json.")
@click.option(
    "--import",
    "imported",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take CONFIG's league.json over into --registry; say all three.",
)
@click.option(
    "--adapters", type=FOLDER, help="Of --import: where the paths of adapters in FILE begin.  [default: FILE's folder]"
)
@click.option("--registry", type=FILE, help="A league's file that processes share without a broker; made if need be.")
@click.option(
    "--audit",
    "audited_games",
    metavar="GAMES",
    type=click.IntRange(2),
    help="Play a round robin of CONFIG's members, GAMES a pair, and compare their ratings with it.",
)
@click.option("--workers", default=1, type=click.IntRange(1), help="Processes for --audit.")
@json_option
@run_options
def league(
    location: RunLocation,
    config_key: str | None,
    *,
    figure: Path | None,
    document: Path | None,
    imported: Path | None,
    adapters: Path | None,
    registry: Path | None,
    audited_games: int | None,
    workers: int,
    as_json: bool,
) -> None:
    """Show the league of CONFIG, or of all configurations.

    Elo is the rating as the evaluator published it last, measured from the random bot at 0. It is the best fit (Bradley
    and Terry) to the games among members and the latest current models, all together. Its 95% interval is for comparing
    members; the random bot's own interval is the uncertainty of the zero, which moves all ratings alike. 'games' are
    all that were ever rated, also those against models that have left the league. 'why' is the reason why a member is
    kept: a latest model, for a time (recent), the best one when it came (elite), one of every so many steps (anchor), a
    rung of the scale of ratings (lasting). 'met' is the share of self-play games against the member; the line under a
    table says how many games were played for which reason.

    CONFIG --audit GAMES plays a round robin of up to 24 members. Its games are not journaled, and no rating rests on
    them. The audit reports how far the published ratings are off, how many of their 95% intervals cover the round
    robin's ratings, and how many pairs at least 60 Elo apart have the right order. Both scales get the same mean.

    CONFIG --import FILE --registry FILE checks a league.json, exported or written by hand, and adds its agents and
    games to the file that --registry names, which belongs to CONFIG. Known agents and pairs stay as they are, so a
    repetition changes nothing. The league of a run is in its journal, and is not changed. Agents of language models may
    be folders of PEFT, by paths such as run/adapter_v50: these go into the run's store, and are named by their hashes
    from then on; random_bot and chaos_bot become random and chaos, and ratings count from the random bot at 0.
    """
    if imported or registry or adapters:
        if figure or document or audited_games:
            raise click.UsageError("--import can't be combined with --plot, --export or --audit: use one of them.")
        _import_league(location, imported, adapters, registry, config_key)
        return
    chosen = league_views(location, config_key, note)
    if config_key is None:
        if figure or document or audited_games:
            raise click.UsageError("Say of which configuration: flyball league CONFIG --plot FILE.")
    elif audited_games:
        _audit(location, config_key, chosen[config_key], audited_games, workers, as_json=as_json)
        return
    else:
        _save(location, config_key, chosen[config_key], figure, document)
    if as_json:
        write_json({key: view.json() for key, view in chosen.items()})
    else:
        for key, view in chosen.items():
            _show(key, view)


def _save(location: RunLocation, key: str, view: LeagueView, figure: Path | None, document: Path | None) -> None:
    if figure:
        draw_league(view, key, figure)
    if document:
        with writing(document):
            document.write_bytes(dump_league(view.league, location.folder.path.absolute().name, key))


def _audit(location: RunLocation, key: str, view: LeagueView, games: int, workers: int, *, as_json: bool) -> None:
    from flyball.app.cli.auditing import audit_json, audit_league, show_audit  # loads torch

    with open_run(location) as reader:
        settings = last_settings(reader) or RunSettings()
    audit = audit_league(location, view, settings.config(key), settings.seed, games=games, workers=workers)
    if as_json:
        write_json({key: audit_json(audit, view, games)})
    else:
        show_audit(key, audit, view)


def _import_league(
    location: RunLocation, imported: Path | None, adapters: Path | None, registry: Path | None, config_key: str | None
) -> None:
    if imported is None or registry is None or config_key is None:
        raise click.UsageError("Say all three: flyball league CONFIG --import FILE --registry FILE.")
    league, metadata = read_league(imported, adapters, config_key, location)
    if metadata.config_key not in (None, config_key):
        raise ForeignLeague(
            f"{imported} is the league of {metadata.config_key}, not of {config_key}.",
            hint="Ratings of different games cannot be compared: name the configuration that it is about.",
        )
    file = LeagueFile(registry, metadata.run_name, config_key, baselines=())
    before = set[str]()

    def merge(registered: League) -> League:
        before.update(registered.agents)
        return registered.merged(league)

    with writing(registry):
        after = file.update(merge)
    write_json({"agents": len(after.agents), "new": sorted(set(after.agents) - before), "registry": str(registry)})


def _show(key: str, view: LeagueView) -> None:
    show_table(COLUMNS, map(_cells, view.members()), left=LEFT, title=key)
    if view.progress:
        show(f"the model rated last against an earlier champion: {show_progress(view.progress)}")
    played = ", ".join(f"{category} {games:,}" for category, games in view.met.most_common())
    show(f"games of self-play by reason: {played}" if played else "no games of self-play against the league yet")
    if cycle := view.cycle():
        first, second, third = (short(agent) for agent in cycle.agents)
        bound = max(cycle.p_value, LEAST_P)
        show(f"a circle: {first} beats {second}, {second} beats {third}, {third} beats {first}, p < {bound:.2g}")
    show("")


def _against_champion(member: dict[str, Any]) -> str:
    """Return a member's score against the champion; in graded games, its mean outcome in the latest match first."""
    if member["champion_score"] is None:
        return UNKNOWN
    return ", ".join(filter(None, (show_outcome(member["outcome"]), f"{1 - member['champion_score']:.0%}")))


def _cells(member: dict[str, Any]) -> tuple[str, ...]:
    why = ", ".join(member["roles"]) or ("bot" if member["kind"] == "baseline" else "")
    interval = member["interval"]
    return (
        short(member["agent"]) if member["kind"] == "checkpoint" else member["agent"],
        f"{why}, current".lstrip(", ") if member["champion"] else why,
        UNKNOWN if member["step"] is None else str(member["step"]),
        UNKNOWN if member["elo"] is None else f"{member['bound'] or ''} {member['elo']:+.0f}".lstrip(),
        UNKNOWN if interval is None else f"{interval[0]:+.0f} … {interval[1]:+.0f}",
        f"{member['games']:,}",
        _against_champion(member),
        f"{member['met']:.0%}" if member["met"] else UNKNOWN,
        short(member["parent"]) if member["parent"] else UNKNOWN,
    )
