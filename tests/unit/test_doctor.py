"""Checks of ``flyball doctor``: each finds its trouble and has a runbook. No check finds the trouble of another."""

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from socket import create_server

import click
import pytest
from builders import intensity, ready, rejected, rolled_back, training_failed, training_of, unrated
from recorded_run import KEY, NEW, OLD, START, Recording, evaluated, recording, trained

from flyball.app.api.publishing import payload_of
from flyball.app.api.runs import locate_run
from flyball.app.bus.keys import Key
from flyball.app.bus.ports import Present, Sign
from flyball.app.cli.doctor import nagios, page_of, runbook
from flyball.app.cli.group import main
from flyball.app.core import ModelHash
from flyball.app.doctor.checks import CHECKS
from flyball.app.doctor.diagnosis import RUNBOOKS, code_of, diagnose, worst
from flyball.app.doctor.facts import BrokerAnswer, Disk, Facts, Growth, Problem, StoreUse
from flyball.app.doctor.gathering import RECENT
from flyball.app.doctor.training import GATE_HOURS
from flyball.app.events import (
    AccessRefused,
    ClockTick,
    DaemonFailed,
    DaemonStarted,
    DistributionFailed,
    EvaluationRequested,
    ModelDistributed,
    NodeQuarantined,
    Payload,
    RegressionCleared,
    RegressionDetected,
    SelfplayComplete,
    TrainingBlockedByQuality,
    resolve,
)
from flyball.app.journal.ports import DatabaseState
from flyball.app.status.status import Board, ProcessEnd
from flyball.daemons.shipping import Shipping

ROOT = Path(__file__).parents[2]
CODES = [code_of(check) for check in CHECKS]
REVOKED = {"key": "node1", "role": "worker", "reason": "revoked", "address": "training@node1", "detail": ""}
GIB = 1 << 30
PROBLEM = Problem("It is broken.", "Mend it.")
ANSWERS = BrokerAnswer("ipc:///run/bus.sock", listens=True, held=True, problem=None)
HELD_UP = BrokerAnswer("tcp://10.0.0.1:7400", listens=True, held=False, problem=PROBLEM)
REFUSED = replace(HELD_UP, refused=True)
WHO = {"daemon": "training", "node": "laptop"}
WORKER = {"daemon": "selfplay_worker", "node": "node1"}
THIRD = ModelHash("d" * 64)
GATE_SECONDS = round(GATE_HOURS * 3600)
SHIPPING = Shipping("/nfs/ship", 1204, 340.0, limit_seconds=34.0, error="", hint="", beside=False)
SECOND = "tcp://10.0.0.2:7400"
REPLICATED = DatabaseState("flyball", stands_by=True, names="db2", needed=1, connected=1, synchronous=1, behind_bytes=0)
SHARD = next(event.data for event in recording().events if isinstance(event.data, SelfplayComplete))
ASKED = training_of(model=OLD, seed=3, epochs=3)


def started(daemon: str, node: str, version: str = "0.1.0+rows.1", *, is_ready: bool = True) -> tuple[Payload, ...]:
    fact = DaemonStarted(daemon=daemon, node=node, pid=9, version=version)
    return (fact, ready(daemon, node, position=20)) if is_ready else (fact,)


def healthy() -> Recording:
    """Return a run with a living daemon, and a model that plays."""
    run = recording()
    run.add(ModelDistributed(model=OLD, step=0, nodes=("laptop",)), run.events[7])
    run.add(DaemonStarted(**WHO, pid=8, version="0.1.0+rows.1"))
    run.add(ready(position=18))
    run.add(ClockTick(period_seconds=10.0))
    return run


def present(lag: int = 0, *, lost: bool = False, who: dict[str, str] = WHO) -> Present:
    sign = Sign(position=18, lag=lag, jobs=0, requests=0)
    return Present(**who, heard_seconds_ago=20.0 if lost else 1.0, lost=lost, sign=sign)


def facts_of(run: Recording, *table: Present, running: bool = True) -> Facts:
    """Return the facts that doctor would gather about a run. ``table`` holds the daemons that the broker knows."""
    board, now = Board(), run.events[-1].recordedtime + timedelta(seconds=1)
    board.feed(run.events)
    presence = {f"{one.daemon}@{one.node}": one for one in table or (present(),)}
    return Facts(
        now,
        "laptop",
        disks=(Disk(Path("/run"), 100 * GIB, 50 * GIB, 1_000_000),),
        outbox_limit=GIB,
        broker=ANSWERS,
        status=board.status(now, presence if running else None, running=running),
        configs={KEY: board.configs[KEY]},
        run=board.settings,
        recent=tuple(event for event in run.events if type(event.data) in RECENT),
        recorded=run.events[-1].recordedtime,
        growth=Growth(1_000_000, 0, 1000, 1000, 250_000, 100.0),
    )


def after(*payloads: Payload, table: tuple[Present, ...] = (), times: int = 1) -> Facts:
    run = healthy()
    for payload in payloads * times:
        run.add(payload, run.events[7] if payload.scope == SHARD.scope else None)
    return facts_of(run, *table)


def key(name: str, days: float | None) -> Key:
    return Key(name, "worker", f"{len(name):064x}", None if days is None else START + timedelta(days=days))


def jumped() -> Facts:
    """Return a run whose recorded time jumps between two ticks."""
    run = healthy()
    run.add(ClockTick(period_seconds=10.0))
    late = replace_time(run, 3600)
    return replace(late, now=late.recent[-1].recordedtime, recorded=late.recent[-1].recordedtime)


def stuck_at_its_start() -> Facts:
    """Return a run with a living daemon that started ten minutes ago and is stuck before it is ready."""
    run = healthy()
    run.add(*started(**WORKER, is_ready=False))
    facts = facts_of(run, present(), present(who=WORKER))
    return replace(facts, now=facts.now + timedelta(minutes=10))


def replace_time(run: Recording, seconds: int) -> Facts:
    last = run.events[-1]
    run.events[-1] = type(last)(last.envelope, last.sequence, last.recorded_us + seconds * 1_000_000, last.source)
    return facts_of(run)


def regressed() -> RegressionDetected:
    return RegressionDetected(model=OLD, last_good=NEW, elo_drop=60.0, severity="severe", games=80, opponent="random")


def undecided() -> Payload:
    return evaluated(OLD, 0, 9.0, 110).model_copy(update={"purpose": "gate", "undecided_games": 10})


def test_gate_whose_games_are_all_alike_is_explained() -> None:
    """A solved game's gate repeats a game for each seat, and every candidate is rejected as undecided."""
    gate = undecided().model_copy(update={"undecided_games": 0})
    repeated = gate.results[0].model_copy(update={"distinct_games": 2})
    alike = after(gate.model_copy(update={"results": (repeated,)}))
    (found,) = [one for one in diagnose(alike, CHECKS) if one.code == "gate-undecided"]
    assert "All games of the latest gate end alike" in found.symptom.what
    assert "gate-undecided" not in codes(after(gate))


def gate_left(seconds: int, *news: Payload, is_rated: bool = True) -> Facts:
    """Return a run of a candidate with nothing about it after ``news``, except for a shard some seconds later."""
    run = healthy()
    asked = run.add(ASKED, run.events[7])
    rating = (evaluated(THIRD, 1, 9.0, 110),) if is_rated else ()
    for payload in (trained(THIRD, 1, asked.id), *rating, *news, SHARD):
        run.add(payload, asked)
    return replace_time(run, seconds - 1)


def large(event: SelfplayComplete) -> SelfplayComplete:
    return event.model_copy(update={"shard": event.shard.model_copy(update={"rows": 1_000_000})})


BASE = facts_of(healthy())
PLANTED: dict[str, Callable[[], Facts]] = {
    "settings-unusable": lambda: replace(BASE, settings=(PROBLEM,)),
    "key-unusable": lambda: replace(BASE, keys=(PROBLEM,)),
    "key-expiring": lambda: replace(BASE, admitted=(key("node1", 2), key("node1", None), key("node22", 2))),
    "key-refused": lambda: replace(BASE, broker=REFUSED),
    "disk-full": lambda: replace(BASE, disks=(Disk(Path("/run"), 100 * GIB, GIB, 1_000_000),)),
    "outbox-filling": lambda: replace(BASE, outbox_bytes={"training@laptop": 200 * GIB}),
    "clock-skew": lambda: replace(BASE, recorded=BASE.now + timedelta(hours=2)),
    "store-unusable": lambda: replace(BASE, store=PROBLEM),
    "store-full": lambda: replace(BASE, store_use=StoreUse(5 * GIB, 5 * GIB, None, deletes=True)),
    "text-server-away": lambda: replace(BASE, text_servers={"http://127.0.0.1:8000": PROBLEM}),
    "model-damaged": lambda: replace(BASE, models={KEY: PROBLEM}),
    "gpu-missing": lambda: replace(BASE, gpu=PROBLEM),
    "gpu-unused": lambda: replace(BASE, has_gpu=True),
    "journal-damaged": lambda: replace(BASE, damage=(PROBLEM,)),
    "journal-server": lambda: replace(BASE, concerns=(PROBLEM,)),
    "journal-unreadable": lambda: replace(BASE, unreadable=PROBLEM),
    "journal-replica-behind": lambda: replace(BASE, database=replace(REPLICATED, connected=0, synchronous=0)),
    "history-replaced": lambda: replace(BASE, set_aside=(Path("state/feedback@laptop.sqlite.other-history"),)),
    "archive-missing": lambda: replace(BASE, missing=(PROBLEM,)),
    "archive-behind": lambda: replace(BASE, growth=Growth(10**6, 0, 400_000, 400_000, 250_000, 100.0)),
    "journal-not-shipped": lambda: replace(BASE, shipping=SHIPPING),
    "journal-growth": lambda: replace(BASE, growth=Growth(10**9, 0, 10**5, 10**5, 250_000, 10**6)),
    "dead-letters": lambda: replace(BASE, unfolded=1),
    "broker-unreachable": lambda: replace(BASE, broker=HELD_UP),
    "broker-failed": lambda: replace(BASE, broker_end=ProcessEnd("broker", BASE.now, "journal.sqlite was replaced")),
    "standby-missing": lambda: replace(BASE, idle_head=SECOND, database=replace(REPLICATED, stands_by=False)),
    "run-stopped": lambda: facts_of(recording(), running=False),
    "daemon-silent": lambda: facts_of(healthy(), present(lost=True)),
    "daemon-failed": lambda: after(DaemonFailed(**WHO, error="boom")),
    "crash-loop": lambda: after(*started(**WHO, is_ready=False), times=3),
    "daemon-lagging": lambda: facts_of(healthy(), present(lag=6000)),
    "version-mix": lambda: after(
        *started(**WORKER, version="0.2.0+rows.1", is_ready=False), table=(present(), present(who=WORKER))
    ),
    "worker-paused": lambda: after(
        *started(**WORKER),
        NodeQuarantined(worker="selfplay_worker@node1", lasts_seconds=60, reason="bad games"),
        table=(present(), present(who=WORKER)),
    ),
    "training-blocked": lambda: after(TrainingBlockedByQuality(reason="parity")),
    "livelock": lambda: after(large(SHARD)),
    "training-failing": lambda: after(training_failed("r", "diverged"), times=3),
    "gate-unplayed": lambda: gate_left(GATE_SECONDS),
    "gate-undecided": lambda: after(undecided()),
    "evaluation-overdue": lambda: after(unrated(NEW), times=3),
    "regression": lambda: after(regressed()),
    "distribution-failing": lambda: after(
        DistributionFailed(
            model=NEW, step=1, node="laptop", attempt=2, retry_seconds=60, damaged=False, readable=None, error="no room"
        )
    ),
}


def codes(facts: Facts) -> set[str]:
    return {one.code for one in diagnose(facts, CHECKS)}


@pytest.mark.parametrize(
    "facts",
    [
        lambda: BASE,
        lambda: Facts(START, "laptop"),
        lambda: after(regressed(), RegressionCleared(model=OLD)),
        lambda: after(*[training_failed("r", "diverged")] * 2),
        lambda: gate_left(2 * GATE_SECONDS, is_rated=False),
        lambda: replace(BASE, idle_head=SECOND, database=REPLICATED),
        lambda: replace(BASE, idle_head=SECOND),
    ],
    ids=[
        "healthy",
        "nothing known",
        "a trouble that ended",
        "two failures are no series",
        "no rating, no gate",
        "a second head and a replica",
        "a second head, asked where the database cannot be read",
    ],
)
def test_run_without_trouble_has_no_findings(facts: Callable[[], Facts]) -> None:
    assert codes(facts()) == set()


@pytest.mark.parametrize("code", CODES)
def test_check_finds_its_trouble_and_no_other(code: str) -> None:
    found = diagnose(PLANTED[code](), CHECKS)
    assert {one.code for one in found} == {code}
    assert all(one.symptom.where and one.symptom.what.endswith((".", ":")) and one.symptom.hint for one in found)


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (lambda: replace(BASE, ends=(ProcessEnd("broker", BASE.now, "exit code 1"),) * 3), "crash-loop"),
        (jumped, "clock-skew"),
        (lambda: replace(BASE, now=BASE.now + timedelta(minutes=2)), "clock-skew"),
        (stuck_at_its_start, "daemon-lagging"),
        (lambda: after(rolled_back(OLD, NEW), times=3), "livelock"),
        (lambda: after(intensity("paused"), *[SHARD] * 3), "livelock"),
        (lambda: after(AccessRefused(**REVOKED, count=3)), "key-refused"),
        (lambda: replace(BASE, disks=(Disk(Path("/run"), 100 * GIB, 50 * GIB, 3),)), "disk-full"),
        (lambda: replace(BASE, store_use=StoreUse(91 * GIB, 100 * GIB, None, deletes=True)), "store-full"),
        (lambda: replace(BASE, store_use=StoreUse(GIB, 100 * GIB, 101 * GIB, deletes=False)), "store-full"),
    ],
)
def test_trouble_with_another_sign_is_found(facts: Callable[[], Facts], code: str) -> None:
    assert code in codes(facts())


@pytest.mark.parametrize(
    ("state", "severity", "what"),
    [
        (replace(REPLICATED, needed=2), "critical", "wait for 2 of the replicas db2, and 1 of them answer"),
        (replace(REPLICATED, connected=0, synchronous=None), "critical", "and 0 of them answer: nothing is recorded"),
        (replace(REPLICATED, synchronous=None), "notice", "user flyball may not see how far the 1 replicas"),
        (replace(REPLICATED, behind_bytes=65 << 20), "warning", "lacks the last 68 MB"),
    ],
)
def test_replica_finding_says_what_is_known(state: DatabaseState, severity: str, what: str) -> None:
    (found,) = diagnose(replace(BASE, database=state), CHECKS)
    assert (found.code, found.symptom.severity) == ("journal-replica-behind", severity)
    assert what in found.symptom.what


def test_livelock_names_the_settings_and_their_values() -> None:
    (found,) = diagnose(after(rolled_back(OLD, NEW), times=3), CHECKS)
    for text in ("elo0 = -80", "watchdog.threshold = 2.6", "evaluation.temperature = 0.3"):
        assert text in found.symptom.hint


def test_broker_that_started_again_is_a_warning_for_an_hour() -> None:
    end = ProcessEnd("broker", BASE.now, "journal.sqlite-wal was deleted")
    facts = replace(BASE, broker_end=end, recorded=BASE.now + timedelta(seconds=1))
    (found,) = diagnose(facts, CHECKS)
    assert (found.code, found.symptom.severity) == ("broker-failed", "warning")
    late = BASE.now + timedelta(hours=1, seconds=1)
    assert codes(replace(facts, now=late, recorded=late)) == set()
    assert "broker-failed" in codes(replace(facts, now=late, recorded=BASE.now)), "it has not started again"


def test_gate_that_is_asked_for_or_played_is_no_trouble() -> None:
    request = EvaluationRequested(purpose="gate", model=THIRD, step=1, seed=1)
    failed = unrated(THIRD, "gate")
    played = evaluated(THIRD, 1, 9.0, 110).model_copy(update={"purpose": "gate"})
    late = [gate_left(GATE_SECONDS - 1), *(gate_left(GATE_SECONDS - 1, one) for one in (request, failed, played))]
    assert [codes(facts) for facts in late] == [set()] * 4
    assert codes(gate_left(GATE_SECONDS, rejected(THIRD, OLD))) == set()
    for news in ((), (request,), (failed,), (played,)):
        (found,) = diagnose(gate_left(GATE_SECONDS, *news), CHECKS)
        assert found.code == "gate-unplayed"
        assert "for 2.0 h" in found.symptom.what
        data = re.search(r"EVALUATION_REQUESTED '(.*)' --config-key", found.symptom.hint)
        assert data
        assert payload_of(EvaluationRequested, data[1]) == request


def test_refused_key_that_was_admitted_since_is_not_found() -> None:
    node1 = key("node1", None)
    unknown = {"key": None, "role": None, "reason": "unknown_key", "address": "10.0.0.2"}
    strange = AccessRefused(**unknown, detail=f"public key {node1.public}", count=1)
    over = after(strange, AccessRefused(**REVOKED, count=3))
    assert codes(replace(over, admitted=(node1,))) == set()
    assert [one.symptom.where for one in diagnose(over, CHECKS)] == ["unknown key at 10.0.0.2", "node1"]
    assert codes(replace(over, growth=None)) == set(), "only the head knows which keys are admitted"


def test_silent_daemon_beside_others_of_its_node_is_to_be_killed() -> None:
    (alone,) = diagnose(after(table=(present(lost=True),)), CHECKS)
    assert alone.symptom.hint.startswith("All daemons of laptop are silent.")
    for other in ({"daemon": "evaluation", "node": "laptop"}, {"daemon": "training", "node": "node2"}):
        (found,) = diagnose(after(*started(**other), table=(present(lost=True), present(who=other))), CHECKS)
        assert found.code == "daemon-silent"
        if other["node"] == "laptop":
            assert found.symptom.hint.endswith("kill -9 8")
        else:
            assert found.symptom.severity == "warning", "it has a substitute"


def test_findings_are_listed_worst_first() -> None:
    facts = replace(BASE, has_gpu=True, damage=(PROBLEM,), unfolded=1)
    found = diagnose(facts, CHECKS)
    assert [one.symptom.severity for one in found] == ["critical", "warning", "notice"]
    assert worst(found) == "critical"


@pytest.mark.parametrize(
    ("facts", "code", "state"),
    [
        (BASE, 0, "OK - no trouble found | critical=0 "),
        (replace(BASE, has_gpu=True), 0, "OK - notice gpu-unused "),
        (replace(BASE, unfolded=1), 1, "WARNING - warning dead-letters "),
        (
            replace(BASE, damage=(Problem("a | b\nc", "Mend it."),), unfolded=1),
            2,
            "CRITICAL - critical journal-damaged",
        ),
    ],
)
def test_nagios_output_has_state_text_and_figures(facts: Facts, code: int, state: str) -> None:
    found = diagnose(facts, CHECKS)
    status, text = nagios(facts, found)
    summary, *lines = text.splitlines()
    assert (status, len(lines)) == (code, len(found))
    assert summary.startswith(f"FLYBALL {state}")
    assert re.fullmatch(r"(\w+=\d+[cB]? ?)+", summary.partition(" | ")[2])
    assert "|" not in "".join(lines)


PAGE = (ROOT / RUNBOOKS).read_text(encoding="utf-8")
TITLE = re.compile(r"^## (.+)$", re.MULTILINE)


def test_runbook_has_an_address_where_a_dashboard_listens(tmp_path: Path) -> None:
    (one,) = diagnose(replace(BASE, has_gpu=True), CHECKS)
    with create_server(("127.0.0.1", 0)) as dashboard:
        port = dashboard.getsockname()[1]
        (tmp_path / "flyball.toml").write_text(f"[deployment.dashboard]\nport = {port}\n")
        address = page_of(one, locate_run(tmp_path))
        assert address == f"http://127.0.0.1:{port}/docs/deploy/runbooks.md#gpu-unused"
    assert page_of(one, locate_run(tmp_path)) is None, "nothing listens there any more"
    (tmp_path / "flyball.toml").write_text("nonsense = 1\n")
    assert page_of(one, locate_run(tmp_path)) is None


@pytest.mark.parametrize("code", CODES)
def test_runbook_tells_symptom_diagnosis_action_and_undo(code: str) -> None:
    assert sorted(TITLE.findall(PAGE)) == sorted(CODES)
    labels = re.findall(r"^\*\*(\w+)\.\*\*", runbook(code), re.MULTILINE)
    assert labels == ["Symptom", "Doctor", "Diagnosis", "Action", "Undo"]


COMMANDS = sorted({" ".join(one.split()) for one in re.findall(r"`(flyball [^`]+)`", PAGE)})
PLACEHOLDERS = {"HASH": "a" * 64, "NEW": "0.001", "OLD": "0.002", "NODE": "node1"}


@pytest.mark.parametrize("command", COMMANDS)
def test_runbook_command_exists(command: str) -> None:
    """The name and options exist, and event data fits its type."""
    words = shlex.split(command)[1:]
    found: click.Command = main
    while words and isinstance(found, click.Group):
        found = found.get_command(click.Context(found), words.pop(0)) or pytest.fail(command)
    known = {name for param in found.params for name in param.opts}
    assert {word for word in words if word.startswith("-")} <= known
    if found.name == "emit" and len(words) > 1:
        data = words[1]
        for name, value in PLACEHOLDERS.items():
            data = re.sub(rf"\b{name}\b", value, data)
        payload_of(resolve(words[0]), data)
