"""``flyball report``: what a run trained and decided, and where its time went; or two runs side by side."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from click.core import ParameterSource
from rich.text import Text

from flyball.app.api.run_reader import compare_runs
from flyball.app.api.runs import RunLocation, locate_run, open_run
from flyball.app.api.selection import before_since
from flyball.app.cli.options import FILE, FOLDER, json_option, run_options, run_sources
from flyball.app.cli.output import complain, echo, note, show, show_table, write_json
from flyball.app.core import writing
from flyball.app.dashboard.pages.report import comparison_file, report_file
from flyball.app.replay.run_comparison import ConfigComparison, RunComparison, side_by_side
from flyball.app.replay.run_report import ConfigReport, RunReport, read_report
from flyball.app.status.summary import ADVISES_ONLY, UNKNOWN, one_line, show_age, show_elo, show_time

TRAINED = ("configuration", "Elo", "now", "trained", "promoted", "rejected", "dropped", "open", "rolled back")
STEERED = ("configuration", "stalls", "boosts", "weight", "asked", "time", "evaluation", "")
STRENGTH = ("configuration", "gained A", "gained B", "B - A", "now A", "now B")
TIMES = ("configuration", "A", "B", "B - A")
STDOUT = Path("-")


@click.command()
@click.argument("runs", metavar="[A B]", nargs=-1, type=FOLDER)
@click.option("--since", help="A position, a while (10m, 2h) or a time (ISO 8601); by default the whole run.")
@click.option("--html", "page", type=FILE, help="Write a page that can be sent to somebody, in one FILE; -: stdout.")
@json_option
@run_options
def report(
    location: RunLocation, *, runs: tuple[Path, ...], since: str | None, page: Path | None, as_json: bool
) -> None:
    """Show what a run trained, what strength it gained, what each controller decided, and where its time went.

    Columns: the champion's rating, ± one standard error, at the beginning and now; trainings; trained models that were
    promoted, rejected, dropped without a verdict because another model became current, or open, for their verdict is to
    come; champions rolled back. The initial model counts in none of these, nor does a model that an operator made
    current without a training. Then stalls; boosts of exploration, each of which is an EXPLORATION_BOOST at its
    beginning and one at its end; the curriculum's weight at the beginning and now, which asks for a share of worker
    time (mean: 1); the share of all worker time that the weights asked for so far; the share that was spent; the share
    of that time that evaluations took. Below stand the reason where time is far from what was asked, the decisions and
    observations of each controller, and what an operator should look at.

    With two run folders A and B, show the whole runs side by side: what was played and trained, the rating gained,
    worker time, the settings that differ (from A to B), and the decisions of each controller. The page lays their
    ratings over each other. Configurations of one run alone are only named.
    """
    if runs:
        _check_two(runs, since)
        a, b = (locate_run(folder, location.config_file) for folder in runs)
        comparison = compare_runs(a, b, complain)
        if page is not None:
            _write_page(page, comparison_file(comparison))
        elif as_json:
            write_json(comparison.to_builtins())
        else:
            show_comparison(comparison)
        return
    with open_run(location) as reader:
        after = before_since(reader, since) if since else 0
        made = read_report(reader, complain, after=after)
    if page is not None:
        _write_page(page, report_file(made, location.folder.path.absolute().name))
    elif as_json:
        write_json(made.to_builtins())
    else:
        show_report(made, location)


def _check_two(runs: Sequence[Path], since: str | None) -> None:
    """Refuse anything but two run folders and options that fit them."""
    if len(runs) != 2:
        raise click.UsageError("A B: name two run folders; the report of one is flyball --run FOLDER report.")
    if ParameterSource.COMMANDLINE in run_sources():
        raise click.UsageError("--run names one run, and A B two: use one of them.")
    if since is not None:
        raise click.UsageError("--since is for the report of one run: A and B are compared from their first events on.")


def _write_page(path: Path, text: str) -> None:
    if path == STDOUT:
        echo(text)
        return
    with writing(path):
        path.write_text(text, encoding="utf-8")
    note(f"Wrote {path}.")


def show_report(made: RunReport, location: RunLocation) -> None:
    """Write a run's report to stdout."""
    if made.first is None or made.last is None:
        echo("Nothing has happened in this time.")
        return
    lasted = show_age(made.seconds)
    echo(f"{show_time(made.first)} to {show_time(made.last)} ({lasted}), {made.events:,} events")
    if made.advises:
        echo(ADVISES_ONLY)
    echo("Elo is the champion's, ± one standard error.")
    show_table(TRAINED, map(_trained, made.configs), left=TRAINED[:1])
    echo()
    show_table(STEERED, (_steered(config, made) for config in made.configs), left=(STEERED[0], STEERED[-1]))
    echo()
    show(*(Text(one_line(location.completed(line))) for line in _lines(made)))


def _trained(config: ConfigReport) -> tuple[str, ...]:
    return (
        config.key,
        show_elo(config.elo_before, config.elo_before_stderr),
        show_elo(config.elo, config.elo_stderr),
        str(config.trainings),
        str(config.promotions),
        str(config.rejections),
        str(config.dropped),
        str(config.awaiting),
        str(config.rollbacks),
    )


def _steered(config: ConfigReport, made: RunReport) -> tuple[str, ...]:
    seconds = config.worker_time.total
    return (
        config.key,
        str(config.stalls),
        str(config.boosts),
        f"{config.weight_before:.2f} → {config.weight:.2f}",
        f"{config.asked:.0%}",
        f"{made.time_share(config):.0%}",
        f"{config.worker_time.evaluation / (seconds or 1.0):.0%}",
        "plateaued" if config.plateaued else "",
    )


def _lines(made: RunReport) -> Iterator[str]:
    yield f"Workers: {made.worker_seconds:,.0f} s, {made.evaluation_share:.0%} of it evaluation."
    yield from filter(None, (made.apart, made.dropped_text))
    for by, counts in made.decided.items():
        yield f"{by}: {', '.join(f'{name} {number}' for name, number in counts.items())}"
    for matter in made.attention:
        yield f"Look at {matter}"
    if not made.attention:
        yield "No configuration waits for an operator. Troubles of machines and daemons: flyball doctor"
    yield "To decide something yourself: flyball emit --help"


def show_comparison(made: RunComparison) -> None:
    """Write two runs side by side to stdout."""
    echo(one_line(f"A: {made.a.name}"))
    echo(one_line(f"B: {made.b.name}"))
    echo()
    show_table(("", "A", "B"), side_by_side(made.a.report, made.b.report), left=("",))
    if made.configs:
        echo("\nElo, ± one standard error: gained since the first rating, and now")
        show_table(STRENGTH, map(_strength, made.configs), left=STRENGTH[:1])
        echo("\nSeconds of workers")
        show_table(TIMES, map(_times, made.configs), left=TIMES[:1])
    for name, keys in (("A", made.only_a), ("B", made.only_b)):
        if keys:
            echo(f"\nOnly in {name}: {', '.join(keys)}")
    echo("\nSettings that differ (A → B):" if made.settings else "\nNo setting differs.")
    for setting in made.settings:
        echo(one_line(f"{setting.name}: {setting.a} → {setting.b}"))
    if made.decided:
        echo("\nDecisions and observations")
        rows = ((counts.by, counts.event, f"{counts.a:,}", f"{counts.b:,}") for counts in made.decided)
        show_table(("by", "event", "A", "B"), rows, left=("by", "event"))


def _strength(config: ConfigComparison) -> tuple[str, ...]:
    gains = (config.gained_a, config.gained_b, config.difference)
    ratings = (show_elo(side.elo, side.elo_stderr) for side in (config.a, config.b))
    return (config.key, *(UNKNOWN if gain is None else show_elo(gain.elo, gain.stderr) for gain in gains), *ratings)


def _times(config: ConfigComparison) -> tuple[str, ...]:
    a, b = config.a.worker_time.total, config.b.worker_time.total
    return (config.key, f"{a:,.0f}", f"{b:,.0f}", f"{b - a:+,.0f}")
