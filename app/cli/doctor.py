"""``flyball doctor``: find troubles of a run and of this machine. Each finding says what to do."""

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Literal

import click
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from flyball.app.api.runs import RunLocation, is_listening
from flyball.app.cli.options import run_options
from flyball.app.cli.output import echo, note, show, write_json
from flyball.app.core import FlyballError
from flyball.app.core.shipped import shipped
from flyball.app.dashboard.access import url_at
from flyball.app.dashboard.documents import ADDRESS
from flyball.app.doctor.checks import CHECKS
from flyball.app.doctor.diagnosis import LEVELS, RUNBOOKS, Diagnosis, Level, code_of, diagnose, worst
from flyball.app.doctor.facts import Facts
from flyball.app.doctor.gathering import gather
from flyball.daemons.clock import SystemClock

Format = Literal["text", "json", "nagios"]
STYLES: dict[Level, str] = {"critical": "bold red", "warning": "yellow", "notice": "cyan"}
NAGIOS: dict[Level | None, tuple[int, str]] = {
    "critical": (2, "CRITICAL"),
    "warning": (1, "WARNING"),
    "notice": (0, "OK"),
    None: (0, "OK"),
}
UNKNOWN = 3
CODES = {code_of(check): check for check in CHECKS}


@click.command()
@click.option("--format", "form", type=click.Choice(("text", "json", "nagios")), default="text", help="Of the output.")
@click.option(
    "--deep", is_flag=True, help="Also read the whole journal and store, and load all games; may take minutes."
)
@click.option("--explain", type=click.Choice(sorted(CODES)), metavar="CODE", help="Show a finding's runbook instead.")
@run_options
def doctor(location: RunLocation, *, form: Format, deep: bool, explain: str | None) -> None:
    """Look for troubles of a run and of this machine.

    The run need not be running; the machine may be its head or a worker. Each finding has a code, what is wrong and
    what to do. The exit code is 1 if a finding is critical. With --format nagios, the exit codes are those of a Nagios
    plugin: 0 ok, 1 warning, 2 critical, 3 unknown.
    """
    if explain:
        text = runbook(explain)
        show(Markdown(text)) if sys.stdout.isatty() else echo(text)
        return
    clock = SystemClock()
    began = clock.monotonic()
    try:
        facts = gather(location, deep=deep)
        findings = diagnose(facts, CHECKS)
    except FlyballError as error:
        if form != "nagios":
            raise
        echo(f"FLYBALL UNKNOWN - {error}")
        sys.exit(UNKNOWN)
    if form == "nagios":
        code, text = nagios(facts, findings)
        echo(text)
        sys.exit(code)
    seconds = round(clock.monotonic() - began, 3)
    if form == "json":
        values = [_values(finding, location) for finding in findings]
        write_json({"worst": worst(findings), "seconds": seconds, "findings": values})
    else:
        _show(findings, seconds, location)
    if worst(findings) == "critical":
        sys.exit(1)


def _values(finding: Diagnosis, location: RunLocation) -> dict[str, Any]:
    return {
        "code": finding.code,
        **asdict(finding.symptom),
        "hint": location.completed(finding.symptom.hint),
        "runbook": finding.runbook,
    }


def _show(findings: Sequence[Diagnosis], seconds: float, location: RunLocation) -> None:
    """Write findings (severity, code, place; what is wrong; what to do) to stdout, then a summary to stderr."""
    for finding in findings:
        symptom = finding.symptom
        head = Text(f"{symptom.severity:<8} ", STYLES[symptom.severity]).append(finding.code, "bold")
        show(
            head.append(f"  {symptom.where}", "default"),
            _indented(symptom.what),
            _indented(location.completed(symptom.hint), "dim"),
        )
    checked = f"{len(CHECKS)} checks in {seconds:.1f} s"
    if not findings:
        echo(f"No trouble found: {checked}.")
        return
    counts = [f"{number} {severity}" for severity in LEVELS if (number := _count(findings, severity))]
    page = f", or {address}" if (address := page_of(findings[0], location)) else ""
    note(f"{', '.join(counts)}; {checked}. Runbook: flyball doctor --explain {findings[0].code}{page}")


def page_of(finding: Diagnosis, location: RunLocation) -> str | None:
    """Return the address of a finding's runbook in the dashboard. None if nothing listens there."""
    with suppress(FlyballError):
        settings = location.load().deployment.dashboard
        host, port = settings.address, settings.port
        if port and is_listening(f"tcp://{host}:{port}"):
            return f"{url_at(host, port).rstrip('/')}{ADDRESS}/{finding.runbook}"
    return None


def _indented(text: str, style: str = "default") -> Padding:
    """Return a text that stays indented where a narrow terminal wraps it."""
    return Padding(Text(text, style), (0, 0, 0, len("critical ")))


def _count(findings: Sequence[Diagnosis], severity: Level) -> int:
    return sum(finding.symptom.severity == severity for finding in findings)


def nagios(facts: Facts, findings: Sequence[Diagnosis]) -> tuple[int, str]:
    """Return the exit code and output of a Nagios plugin.

    The output is a summary with performance data, then one line for each finding.

    Source: https://nagios-plugins.org/doc/guidelines.html (output, performance data).
    """
    code, state = NAGIOS[worst(findings)]
    lines = [
        f"{finding.symptom.severity} {finding.code} {finding.symptom.where}: {finding.symptom.what}"
        for finding in findings
    ]
    figures: dict[str, str] = {severity: str(_count(findings, severity)) for severity in LEVELS}
    if facts.growth:
        figures |= {"events": f"{facts.growth.events}c", "journal": f"{facts.growth.bytes}B"}
    if facts.disks:
        figures["free"] = f"{facts.disks[0].free_bytes}B"
    data = " ".join(f"{name}={value}" for name, value in figures.items())
    summary = f"{lines[0]}{f' and {len(lines) - 1} more' if len(lines) > 1 else ''}" if lines else "no trouble found"
    # A pipe separates performance data from text, so the text must not contain one.
    return code, "\n".join([f"FLYBALL {state} - {_plain(summary)} | {data}", *map(_plain, lines)])


def _plain(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def runbook(code: str) -> str:
    """Return a finding's section of the runbooks."""
    page = shipped("deploy", "deploy") / RUNBOOKS.partition("/")[2]
    section = re.search(rf"^## {code}\n.*?(?=^## |\Z)", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return section[0].rstrip() if section else f"See {RUNBOOKS}#{code}"
