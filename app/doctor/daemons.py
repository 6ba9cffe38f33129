"""Checks of the broker and the daemons: their presence, versions, lag and restarts."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta

from flyball.app.core import BROKER
from flyball.app.doctor.diagnosis import Symptom
from flyball.app.doctor.facts import Facts
from flyball.app.events import DaemonFact, DaemonStarted, DaemonStopped
from flyball.app.status.obstacles import on_one_line
from flyball.app.status.status import DaemonStatus
from flyball.app.status.summary import show_age

LOOP = timedelta(minutes=10)
LOOP_FAILURES = 3
"""Failures within ``LOOP`` that make a crash loop."""

FAILURE_SHOWN = timedelta(hours=1)
"""Time for which a failure of a broker that has started again is reported."""

LAG_EVENTS = 5_000
"""Fewest unread events at which a daemon is reported. A daemon folds this number in less than a second."""

CATCH_UP_SECONDS = 300.0
"""Time after which a daemon that is not ready yet is reported. A start from saved state takes seconds."""


def broker_unreachable(facts: Facts) -> Iterator[Symptom]:
    """Find a broker that should answer and does not."""
    broker = facts.broker
    if broker is None or broker.problem is None or broker.refused or broker.problem in facts.keys:
        return
    elsewhere = facts.growth is None and facts.unreadable is None  # without a journal here, this is another machine
    if broker.listens or broker.held or elsewhere:
        where = f"{BROKER} at {broker.endpoint}"
        yield Symptom("critical", where, broker.problem.what, broker.problem.hint)


def broker_failed(facts: Facts) -> Iterator[Symptom]:
    """Find a broker that ended by an error. One that has started again is reported for a while."""
    end = facts.broker_end
    if end is None:
        return
    again = facts.recorded is not None and facts.recorded > end.time
    what = f"It ended by an error: {on_one_line(end.reason)}."
    hint = "The whole error is at the end of logs/broker.jsonl."
    if again and facts.now - end.time < FAILURE_SHOWN:
        yield Symptom("warning", BROKER, f"{what} It has started again since.", hint)
    elif not again:
        yield Symptom("critical", BROKER, what, f"{hint} Once its cause is removed, start the run.")


def standby_missing(facts: Facts) -> Iterator[Symptom]:
    """Find a run with two heads of which only one is there."""
    if facts.idle_head and facts.database and not facts.database.stands_by:
        what = "No second head waits there. If the broker that serves ends, the run stands still."
        hint = "Start it on its machine: systemctl start --no-block flyball-head.target, or flyball up --role head. "
        hint += "If it runs, why it does not wait is at the end of logs/broker.jsonl there."
        yield Symptom("warning", facts.idle_head, what, hint)


def run_stopped(facts: Facts) -> Iterator[Symptom]:
    """Find a run that is not running."""
    if facts.status is None or facts.status.running:
        return
    gone = _names(daemon for daemon in facts.status.daemons if daemon.state == "gone")
    what = f"The run is not running; ended without having stopped: {gone}." if gone else "The run is stopped."
    yield Symptom("critical" if gone else "warning", "run", what, "Start it: flyball up, or its services")


def daemon_silent(facts: Facts) -> Iterator[Symptom]:
    """Find daemons without a sign of life. Other daemons of the same name do their jobs, if there are any."""
    for daemon in _daemons(facts):
        if daemon.state != "silent":
            continue
        others = any(other.daemon == daemon.daemon and other.state == "ready" for other in _daemons(facts))
        what = f"No sign of life for {show_age(daemon.heard_seconds_ago)}."
        if any(other.node == daemon.node and other.state == "ready" for other in _daemons(facts)):
            kill = f"kill -9 {daemon.pid}" if daemon.pid else f"restart {daemon.daemon}"
            hint = f"Other daemons of {daemon.node} answer, so its process hangs or has died. There: {kill}"
        else:
            hint = f"All daemons of {daemon.node} are silent. Is it on, does it reach the broker, do its services run?"
        if others:
            what += " Other nodes do its jobs."
        yield Symptom("warning" if others else "critical", f"{daemon.daemon}@{daemon.node}", what, hint)


def daemon_failed(facts: Facts) -> Iterator[Symptom]:
    """Find daemons that ended by an error and have not started again."""
    for daemon in _daemons(facts):
        if daemon.state == "failed" and facts.status and facts.status.running:
            hint = f"Its traceback is in logs/{daemon.daemon}.jsonl. Its supervisor starts it again."
            yield Symptom(
                "critical",
                f"{daemon.daemon}@{daemon.node}",
                f"It ended by an error: {on_one_line(daemon.error or 'unknown')}.",
                hint,
            )


def crash_loop(facts: Facts) -> Iterator[Symptom]:
    """Find daemons that start again and again."""
    failures, reasons = defaultdict[str, int](int), dict[str, str]()
    stopped = dict[str, bool]()
    for event in facts.recent:
        if not isinstance(event.data, DaemonFact):
            continue
        name = _name(event.data)
        if isinstance(event.data, DaemonStarted) and facts.now - event.recordedtime < LOOP:
            failures[name] += not stopped.get(name, True)
        stopped[name] = isinstance(event.data, DaemonStopped)
    here = defaultdict[str, int](int)
    for end in facts.ends:
        if facts.now - end.time < LOOP:
            name = f"{end.daemon}@{facts.node}"
            here[name] += 1
            reasons[name] = f" Last: {on_one_line(end.reason)}."
    for name in sorted(failures.keys() | here.keys()):
        count = max(failures[name], here[name])
        if count >= LOOP_FAILURES:
            what = f"It failed {count} times within {show_age(LOOP.total_seconds())}.{reasons.get(name, '')}"
            daemon = name.partition("@")[0]
            yield Symptom("critical", name, what, f"Its error is at the end of logs/{daemon}.jsonl and .stderr.")


def daemon_lagging(facts: Facts) -> Iterator[Symptom]:
    """Find daemons that are far behind, or do not become ready."""
    started = {_name(event.data): event.recordedtime for event in facts.recent if isinstance(event.data, DaemonStarted)}
    for daemon in _daemons(facts):
        name, where = f"{daemon.daemon}@{daemon.node}", f"logs/{daemon.daemon}.jsonl"
        seconds = (facts.now - started.get(name, facts.now)).total_seconds()
        if daemon.state == "started" and seconds > CATCH_UP_SECONDS:
            what = f"It has not become ready for {show_age(seconds)}."
            yield Symptom("warning", name, what, f"Look whether {where} shows progress.")
        elif daemon.state in ("started", "ready", "degraded") and (daemon.lag or 0) >= LAG_EVENTS:
            hint = f"Is node {daemon.node} overloaded, or the daemon held up? See {where}, and top."
            yield Symptom("warning", name, f"It is {daemon.lag:,} events behind the journal.", hint)


def version_mix(facts: Facts) -> Iterator[Symptom]:
    """Find living daemons of several versions, which may decide differently."""
    versions = defaultdict[str, list[str]](list)
    programs = defaultdict[str, dict[str, str]](dict)
    for daemon in _daemons(facts):
        if daemon.version and daemon.state in ("started", "ready", "degraded", "quarantined"):
            versions[daemon.version.partition("+")[0]].append(f"{daemon.daemon}@{daemon.node}")
            programs[daemon.daemon][daemon.node] = daemon.version
    hint = "Install one version on all machines, and restart the daemons of the others."
    if len(versions) > 1:
        fewest = sorted(versions.items(), key=lambda item: len(item[1]))
        what = "; ".join(f"{version}: {_few(names)}" for version, names in fewest)
        yield Symptom("warning", "daemons", f"Several versions run together. {what}.", hint)
        return
    for name, nodes in programs.items():
        if len(set(nodes.values())) > 1:
            what = f"Its programs differ between the nodes {', '.join(sorted(nodes))}."
            yield Symptom("warning", name, what, hint)


def worker_paused(facts: Facts) -> Iterator[Symptom]:
    """Find workers that get no requests. The reason is that their jobs failed or their games are bad."""
    for daemon in _daemons(facts):
        if daemon.state in ("degraded", "quarantined"):
            how = "is paused after failures" if daemon.state == "degraded" else "is in quarantine"
            hint = f"Test the memory and the software of {daemon.node}. What happened: flyball tail -n 5 'NODE_*'"
            yield Symptom(
                "warning",
                f"{daemon.daemon}@{daemon.node}",
                f"It {how}: {on_one_line(daemon.error or 'unknown')}.",
                hint,
            )


def _daemons(facts: Facts) -> tuple[DaemonStatus, ...]:
    return facts.status.daemons if facts.status and facts.status.running else ()


def _name(fact: DaemonFact) -> str:
    return f"{fact.daemon}@{fact.node}"


def _names(daemons: Iterator[DaemonStatus]) -> str:
    return _few([f"{daemon.daemon}@{daemon.node}" for daemon in daemons])


def _few(names: list[str]) -> str:
    shown = names[:3]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")
