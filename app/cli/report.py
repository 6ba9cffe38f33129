"""``flyball report``: what a run trained and decided, and where its time went."""

from collections.abc import Iterator
from pathlib import Path

import click

from app.api.runs import RunLocation, open_run
from app.api.selection import before_since
from app.cli.options import FILE, json_option, run_options
from app.cli.output import complain, echo, note, show_table, write_json
from app.core import writing
from app.dashboard.pages.report import report_file
from app.replay.run_report import ConfigReport, RunReport, read_report
from app.status.summary import UNKNOWN, one_line, show_age, show_elo, show_time

COUNTS = ("trainings", "promoted", "refused", "rolled back", "boosts")
COLUMNS = ("configuration", "Elo", "now", *COUNTS, "weight", "time", "evaluation")


@click.command()
@click.option("--since", help="A position, a while (10m, 2h) or a time (ISO 8601); by default the whole run.")
@click.option("--html", "page", type=FILE, help="Write a page that can be sent to somebody, in one FILE.")
@json_option
@run_options
def report(location: RunLocation, *, since: str | None, page: Path | None, as_json: bool) -> None:
    """Show what a run trained, what strength it gained, what each controller decided, and where its time went.

    Columns: the rating at the beginning and now; trainings; candidates promoted and refused; rollbacks; boosts of
    exploration; the curriculum's weight at the beginning and now; the share of all worker time; the share of that time
    that evaluations took. Below stand the decisions and observations of each controller, and what an operator should
    look at.
    """
    with open_run(location) as reader:
        after = before_since(reader, since) if since else 0
        made = read_report(reader, complain, after=after)
    if page is not None:
        with writing(page):
            page.write_text(report_file(made, location.folder.path.absolute().name), encoding="utf-8")
        note(f"Wrote {page}.")
    elif as_json:
        write_json(made.to_builtins())
    else:
        show_report(made)


def show_report(made: RunReport) -> None:
    """Write a report to stdout."""
    if made.first is None or made.last is None:
        echo("Nothing has happened in this time.")
        return
    lasted = show_age((made.last - made.first).total_seconds())
    echo(f"{show_time(made.first)} to {show_time(made.last)} ({lasted}), {made.events:,} events")
    show_table(COLUMNS, (_cells(config, made) for config in made.configs), left=COLUMNS[:1])
    for line in _lines(made):
        echo(one_line(line))


def _cells(config: ConfigReport, made: RunReport) -> tuple[str, ...]:
    seconds = config.worker_time.total
    plateaued = " plateaued" if config.plateaued else ""
    return (
        config.key,
        UNKNOWN if config.elo_before is None else f"{config.elo_before:+.0f}",
        show_elo(config.elo, config.elo_stderr),
        str(config.trainings),
        str(config.promotions),
        str(config.rejections),
        str(config.rollbacks),
        str(config.boosts),
        f"{config.weight_before:.2f} → {config.weight:.2f}{plateaued}",
        f"{seconds / (made.worker_seconds or 1.0):.0%}",
        f"{config.worker_time.evaluation / (seconds or 1.0):.0%}",
    )


def _lines(made: RunReport) -> Iterator[str]:
    yield f"Workers: {made.worker_seconds:,.0f} s, {made.evaluation_share:.0%} of it evaluation."
    for by, counts in made.decided.items():
        yield f"{by}: {', '.join(f'{name} {number}' for name, number in counts.items())}"
    for matter in made.attention:
        yield f"Look at {matter}"
    if not made.attention:
        yield "No configuration waits for an operator. Troubles of machines and daemons: flyball doctor"
