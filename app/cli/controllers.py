"""``flyball controllers``: what each controller watches, owns and decided."""

from collections.abc import Iterator
from typing import Any

import click
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from flyball.app.api.runs import RunLocation, check_config, check_played, open_run
from flyball.app.cli.options import json_option, run_options
from flyball.app.cli.output import complain, echo, hanging, note, show, write_json
from flyball.app.controllers.controller import Watched
from flyball.app.replay.controller_reports import ControllerReport, Decision, read_reports
from flyball.app.status.summary import ADVISES_ONLY, one_line, show_clock, summarise
from flyball.app.status.watched import bar, watched_text
from flyball.daemons.clock import SystemClock

BAR_WIDTH = 10
INDENT = 2


@click.command()
@click.argument("config_key", metavar="[CONFIG]", required=False)
@click.option("-n", "--count", default=3, type=click.IntRange(0), show_default=True, help="Decisions of each.")
@json_option
@run_options
def controllers(location: RunLocation, config_key: str | None, *, count: int, as_json: bool) -> None:
    """Show what each controller watches, which knobs it owns, how often it acted, and its last decisions.

    A bar shows how near a value is to the rule's threshold; a full bar has reached it. Some rules ask for more evidence
    before they act. With CONFIG all rules about it are shown, without CONFIG the rule of each controller that is
    nearest to its threshold. A decision is followed by the configuration's rating before it and by the next one after
    it, a quarantine by its end. ± is one standard error. `flyball trace ID` shows what led to a decision.
    """
    with open_run(location) as reader:
        check_config(reader, config_key)
        if config_key is not None:
            check_played(reader, location, config_key)
        folded = read_reports(reader, complain)
        reports = folded.reports(None if config_key is None else (config_key,))
    if as_json:
        write_json([report_json(report, count) for report in reports])
        return
    if folded.settings and folded.settings.advises:
        note(ADVISES_ONLY)
    for number, report in enumerate(reports):
        if number:
            echo()
        show(*_lines(report, count, every_rule=config_key is not None))


def _lines(report: ControllerReport, count: int, *, every_rule: bool) -> Iterator[RenderableType]:
    yield Text(report.name, "bold").append(f"  {report.does}", "not bold")
    knobs = ", ".join(report.knobs) or "none"
    acted = ", ".join(f"{name} {number}" for name, number in sorted(report.counts.items())) or "nothing yet"
    yield _indented(Text(f"knobs: {knobs}"))
    yield _indented(Text(f"emitted: {acted}"))
    if report.trouble:
        yield _indented(Text(one_line(report.trouble)))
    watched = [(key, rule) for key, rules in report.watched.items() for rule in rules]
    if not every_rule:
        watched = sorted(watched, key=lambda pair: pair[1].progress or 0.0)[-1:]
    for key, rule in watched:
        about = "" if every_rule else f"{key}: "
        text = Text(f"{about}{one_line(watched_text(rule, SystemClock().now()))}")
        yield _indented(hanging(Text(bar(rule, BAR_WIDTH)), text))
    for decision in report.decisions[:count]:
        yield _indented(hanging(Text(show_clock(decision.event.recordedtime)), _decision_text(decision)))


def _indented(text: RenderableType) -> Padding:
    return Padding(text, (0, 0, 0, INDENT))


def _decision_text(decision: Decision) -> Text:
    event = decision.event
    about = f" {event.subject}" if event.subject else ""
    text = Text(f"{event.data.event_name}{about}  {summarise(event.data)}")
    if decision.elo_before is not None and decision.elo_after is not None:
        text.append(f"  (rating {decision.elo_before:+.0f}, then {decision.elo_after:+.0f})", "dim")
    if decision.released is not None:
        text.append(
            f"  (released {show_clock(decision.released.recordedtime)}: {decision.released.data.reason})", "dim"
        )
    return text


def report_json(report: ControllerReport, count: int) -> dict[str, Any]:
    """Return a report as JSON: the watched values by configuration, and the latest decisions as CloudEvents."""
    return {
        "name": report.name,
        "does": report.does,
        "knobs": list(report.knobs),
        "emitted": dict(report.counts),
        "trouble": report.trouble,
        "watched": {key: [_watched_json(rule) for rule in rules] for key, rules in report.watched.items()},
        "decisions": [
            {
                "event": decision.event.to_cloudevent(),
                "elo_before": decision.elo_before,
                "elo_after": decision.elo_after,
                "released": decision.released and decision.released.to_cloudevent(),
            }
            for decision in report.decisions[:count]
        ],
    }


def _watched_json(rule: Watched) -> dict[str, Any]:
    until = rule.until.isoformat() if rule.until else None
    return rule._asdict() | {"progress": rule.progress, "until": until}
