"""Gathering the facts of a run and of this machine. They come from the run's files, its journal and its broker."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, get_args

from flyball.app.api.runs import (
    ASK_SECONDS,
    RunLocation,
    board_on,
    broker_silence,
    connected,
    find_broker,
    last_failure,
    no_run,
    open_journal,
    past_events,
    read_board,
    silent,
)
from flyball.app.bus.access import KeyRefused
from flyball.app.bus.keys import Key, KeyList, read_secret
from flyball.app.bus.ports import BrokerUnavailable
from flyball.app.config import Deployment
from flyball.app.config.devices import AUTO, JobKind
from flyball.app.config.loading import Loaded
from flyball.app.core import BROKER, FlyballError
from flyball.app.core.clock import SECOND_US
from flyball.app.doctor.facts import BrokerAnswer, Disk, Facts, Growth, Problem, StoreUse
from flyball.app.events import (
    AccessRefused,
    ClockTick,
    DaemonFailed,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    Event,
    ModelRolledBack,
    Payload,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.journal import JournalReader, NotAJournal, history
from flyball.app.journal.database import ServerRefused, ServerUnavailable, StorageError
from flyball.app.journal.history import open_dead_letters, voided_events
from flyball.app.journal.opening import OtherJournal
from flyball.app.journal.outbox import MAX_BYTES as OUTBOX_BYTES
from flyball.app.journal.ports import StoredReader
from flyball.app.language.packages import require_packages
from flyball.app.language.text_server import TextServer
from flyball.app.status.status import Board, Presence, ProcessEnd, ask_presence
from flyball.app.store import BlobStore, DamagedBlob, FileStore, MissingBlob, open_store
from flyball.app.store.blobs import model_remedy
from flyball.app.telemetry import last_records
from flyball.daemons.bootstrap import check_controllers
from flyball.daemons.clock import SystemClock
from flyball.daemons.forecast import forecast
from flyball.daemons.run_folder import is_held, of_other_history
from flyball.daemons.shipping import shipping_of
from flyball.daemons.suitability import check_bots, check_devices, check_playable, check_trainers

RECENT: frozenset[type[Payload]] = frozenset(
    {AccessRefused, ClockTick, DaemonFailed, DaemonReady, DaemonStarted, DaemonStopped, ModelRolledBack}
)
"""Event types whose latest events the checks read."""

RECENT_EVENTS = 50_000
"""Latest events of all types that are searched for recent ones. A cluster of 36 nodes records as many in two days."""

QUICK_EVENTS = 5_000
"""Latest events whose records are checked without --deep."""

SAMPLE_EVENTS = 10_000
"""Latest events over which the journal's growth is measured."""

BOARD_SECONDS = 10.0
"""Longest wait for the board from the bus. The board may have to be folded from years of events."""

GPUS = "nvidia[0-9]*"


@dataclass(frozen=True, slots=True)
class _Answers:
    """The broker's answers, or the reason why there are none."""

    broker: BrokerAnswer
    presence: Presence | None = None
    board: Board | None = None
    recent: tuple[Event[Any], ...] = ()


def gather(place: RunLocation, *, deep: bool) -> Facts:
    """Gather the facts.

    Args:
        place: the run folder; on a worker's machine it has no journal.
        deep: also read the whole journal and store, and check that all configurations can be played.

    Raises ``NotAJournal`` if there is neither a run nor an address of a broker.
    """
    now = SystemClock().now()
    try:
        loaded = place.load()
    except FlyballError as error:
        facts = replace(Facts(now, os.uname().nodename), settings=(_problem(error),))
        return _with_journal(place, None, facts, None, deep=deep)
    here = _has_journal(place)
    answers = _ask(place, loaded, board=not here)
    if not here and not answers.broker.listens and loaded.deployment.endpoint is None:
        raise no_run(place.folder)
    facts = _of_machine(place, loaded, Facts(now, loaded.deployment.node), answers.broker, deep=deep)
    facts = replace(facts, recent=answers.recent, recorded=answers.recent[-1].recordedtime if answers.recent else None)
    facts = _with_journal(place, loaded, facts, answers.presence, deep=deep)
    if answers.board:
        facts = _with_board(facts, answers.board, answers.presence, running=True)
    return _with_store(place, loaded, facts, deep=deep)


def _has_journal(place: RunLocation) -> bool:
    """Return whether this machine has the journal, even if it can't be reached now."""
    try:
        return place.journal.exists()
    except FlyballError:
        return True


def _problem(error: FlyballError) -> Problem:
    return Problem(error.message, error.hint)


def _problems(*checks: Callable[[], object]) -> tuple[Problem, ...]:
    """Return the errors that checks raise."""
    problems = list[Problem]()
    for check in checks:
        try:
            check()
        except FlyballError as error:
            problems.append(_problem(error))
    return tuple(problems)


def _ask(place: RunLocation, loaded: Loaded, *, board: bool) -> _Answers:
    """Ask the broker which daemons are alive.

    With ``board``, also ask for a board and the latest events, because this machine has no journal.
    """
    (endpoint, listens), held = find_broker(place.folder, loaded.deployment), is_held(place.folder)
    if not listens:
        hint = "Look whether the head runs, and at logs/broker.jsonl there."
        return _Answers(
            BrokerAnswer(endpoint, listens=False, held=held, problem=Problem("Nothing listens there.", hint))
        )
    try:
        presence, latest_board, recent = asyncio.run(_answers(place, board=board))
    except BrokerUnavailable:
        silence = _problem(broker_silence(endpoint))
        return _Answers(BrokerAnswer(endpoint, listens=True, held=held, problem=silence))
    except FlyballError as error:
        refused = isinstance(error, KeyRefused)
        return _Answers(BrokerAnswer(endpoint, listens=True, held=held, problem=_problem(error), refused=refused))
    return _Answers(BrokerAnswer(endpoint, listens=True, held=held, problem=None), presence, latest_board, recent)


async def _answers(place: RunLocation, *, board: bool) -> tuple[Presence, Board | None, tuple[Event[Any], ...]]:
    async with connected(place, ASK_SECONDS, producer="doctor") as bus:
        presence = await ask_presence(bus)
        if not board:
            return presence, None, ()
        try:
            async with asyncio.timeout(BOARD_SECONDS):
                latest_board = await board_on(bus)
        except TimeoutError:
            return presence, None, ()
        after = max(0, latest_board.position - RECENT_EVENTS)
        return presence, latest_board, tuple([event async for event in past_events(bus, RECENT, after=after)])


def _of_machine(place: RunLocation, loaded: Loaded, facts: Facts, broker: BrokerAnswer, *, deep: bool) -> Facts:
    """Add the facts of this machine."""
    deployment, run, folder = loaded.deployment, loaded.run, loaded.folder
    devices = [deployment.compute(kind).device for kind in get_args(JobKind)]
    checks = [
        lambda: check_trainers(run, folder),
        lambda: check_controllers(run),
        *((lambda: check_playable(run), lambda: check_bots(run, folder)) if deep else ()),  # they load PyTorch
    ]
    keys, admitted = _keys(loaded)
    outboxes = sorted(place.folder.outbox("daemon", "node").parent.glob("*.sqlite"))
    return replace(
        facts,
        settings=_problems(*checks),
        gpu=next(iter(_problems(lambda: check_devices(deployment))), None),
        has_gpu=any(Path("/dev").glob(GPUS)),
        uses_gpu=any(device == AUTO or device != "cpu" for device in devices),
        keys=keys,
        admitted=admitted,
        disks=tuple(_disks(place, loaded)),
        outbox_bytes={path.stem: path.stat().st_size for path in outboxes},
        outbox_limit=OUTBOX_BYTES,
        broker=broker,
        idle_head=_idle_head(deployment, broker),
        ends=tuple(_ends(place.folder.log("supervisor"))),
        set_aside=tuple(of_other_history(place.folder)),
        broker_end=last_failure(place.folder, BROKER),
        text_servers={address: _of_text_server(address) for address in deployment.text.servers},
    )


def _idle_head(deployment: Deployment, broker: BrokerAnswer) -> str:
    """Return the address of the head whose broker does not serve; empty unless the other one's does."""
    if deployment.other_head is None or not broker.listens:
        return ""
    return (deployment.endpoint or "") if broker.endpoint == deployment.other_head else deployment.other_head


def _of_text_server(address: str) -> Problem | None:
    """Return why a text server does not answer; None if it does."""

    def ask() -> None:
        require_packages()
        with closing(TextServer(address)) as server:
            server.models()

    return next(iter(_problems(ask)), None)


def _keys(loaded: Loaded) -> tuple[tuple[Problem, ...], tuple[Key, ...]]:
    """Return problems of the key files, and the admitted keys. Only the head knows the admitted keys."""
    keys, admitted = loaded.deployment.keys, KeyList()

    def read_list() -> None:
        nonlocal admitted
        if keys.allowed:
            admitted = KeyList.read(loaded.folder / keys.allowed)

    secret = loaded.folder / keys.secret if keys.secret else None
    problems = _problems(lambda: secret and read_secret(secret), read_list)
    return problems, admitted.keys


def _disks(place: RunLocation, loaded: Loaded) -> Iterator[Disk]:
    """Iterate over the distinct file systems of run folder and store."""
    seen = set[int]()
    store = loaded.store(place.folder)
    for path in (place.folder.path, *((Path(store),) if "://" not in store else ())):
        with suppress(OSError):
            status, device = os.statvfs(path), path.stat().st_dev
            if device not in seen:
                seen.add(device)
                size, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
                yield Disk(path, size, free, status.f_favail if status.f_files else None)


def _ends(log: Path) -> Iterator[ProcessEnd]:
    """Iterate over the failures in the last part of the supervisor's log."""
    for record in last_records(log):
        with suppress(ValueError, KeyError, TypeError):
            attributes = record["attributes"]
            if attributes["what"] in ("failed", "hopeless"):
                yield ProcessEnd(attributes["child"], datetime.fromisoformat(record["timestamp"]), attributes["reason"])


def _with_journal(
    place: RunLocation, loaded: Loaded | None, facts: Facts, presence: Presence | None, *, deep: bool
) -> Facts:
    """Add the journal's facts, as far as it can be read."""
    try:
        if not place.journal.exists():
            return facts
        with open_journal(place) as reader:
            missing = tuple(map(_problem, reader.missing()))
            damage = map(_problem, reader.damage() if deep else reader.latest_damage(QUICK_EVENTS))
            facts = replace(
                facts,
                damage=tuple(problem for problem in damage if problem not in missing),
                missing=missing,
                concerns=tuple(map(_problem, reader.concerns())),
                database=reader.database_state(),
            )
            facts = _with_events(place, reader, loaded, facts)
            board = read_board(place.folder, reader, silent)
    except FlyballError as error:
        if type(error) is NotAJournal:  # an empty file: the run begins at this moment
            return facts
        problem = _problem(error)
        if isinstance(error, ServerUnavailable | ServerRefused | OtherJournal):
            return replace(facts, concerns=(problem,))
        if isinstance(error, StorageError) and not isinstance(error, NotAJournal):
            return replace(facts, unreadable=problem)
        return facts if problem in facts.damage else replace(facts, damage=(*facts.damage, problem))
    running = facts.broker is not None and (facts.broker.listens or facts.broker.held)
    return _with_board(facts, board, presence, running=running)


def _with_events(place: RunLocation, reader: StoredReader, loaded: Loaded | None, facts: Facts) -> Facts:
    """Add the journal's size and growth, latest events and dead letters."""
    head, limit = reader.head, loaded.deployment.journal.live_events if loaded else 0
    recorded_us = _recorded_us(reader, head)
    sampled = head - SAMPLE_EVENTS >= reader.first  # in a short journal, empty pages would count as growth
    hours = (recorded_us - _recorded_us(reader, head - SAMPLE_EVENTS)) / SECOND_US / 3600 if sampled else 0.0
    size = reader.size()
    dead = reader.dead_letters()
    after = max(reader.first - 1, head - RECENT_EVENTS)
    voided = voided_events(reader)
    recent = history(reader, after=after, types=RECENT, on_dead=lambda _: None)
    return replace(
        facts,
        growth=Growth(
            bytes=size.bytes,
            archive_bytes=size.archive_bytes,
            events=head,
            live_events=head - size.archived,
            limit=limit or head,
            events_per_hour=SAMPLE_EVENTS / hours if hours else None,
            is_local=size.is_local,
        ),
        shipping=shipping_of(place.folder, loaded, reader, facts.now) if loaded else None,
        recent=tuple(event for event in recent if event.sequence not in voided),
        recorded=EPOCH + timedelta(microseconds=recorded_us) if head else None,
        unfolded=len({letter.position for letter in open_dead_letters(reader)}),
        refused=sum(not letter.position for letter in dead),
    )


def _recorded_us(reader: JournalReader, position: int) -> int:
    """Return when the event at a position was recorded. In microseconds since 1970; 0 without an event."""
    record = next(reader.headers_back(position), None)
    return record.recorded_us if record else 0


def _with_board(facts: Facts, board: Board, presence: Presence | None, *, running: bool) -> Facts:
    status = board.status(facts.now, presence, running=running)
    played = {config.key for config in status.configs}
    rows = {key: row for key, row in board.configs.items() if key in played}
    return replace(facts, status=status, configs=rows, run=board.settings)


def _with_store(place: RunLocation, loaded: Loaded, facts: Facts, *, deep: bool) -> Facts:
    """Add whether the store is usable and current models are sound.

    Without ``deep``, a store by URL is only opened, because reading models out of it may take long.
    """
    name = loaded.store(place.folder)
    try:
        blobs = open_store(name, cached=False)
    except FlyballError as error:
        return replace(facts, store=_problem(error))
    if isinstance(blobs, FileStore):
        most, own = loaded.deployment.store_bytes, loaded.deployment.store is None
        expected = sum(forecast(loaded.run).values()) if deep and not facts.settings else None  # it plays some games
        facts = replace(facts, store_use=StoreUse(blobs.total_bytes(), most, expected, own))
    # As recorded, because this command may have been given other settings than the run.
    is_external = (facts.run or loaded.run).is_external
    models = {key: row.model for key, row in facts.configs.items() if row.model and not is_external}
    if "://" not in name:
        if models and not os.access(name, os.R_OK | os.W_OK | os.X_OK):
            hint = "Is it mounted, and does this user own it?"
            return replace(facts, store=Problem(f"The folder {name} cannot be read and written.", hint))
    elif not deep:
        return facts
    read = {key: _problems(partial(blobs.get, model)) for key, model in models.items()}
    damaged = {
        key: Problem(f"Its current model cannot be read. {problem.what}", model_remedy(key, models[key]))
        for key, problems in read.items()
        for problem in problems
    }
    if deep and (damage := _damaged_blobs(blobs)):
        what = f"{len(damage)} blobs are damaged, first: {damage[0].what}"
        damaged["store"] = Problem(what, "All of them: flyball store verify")
    return replace(facts, models=damaged)


def _damaged_blobs(blobs: BlobStore) -> list[Problem]:
    """Read all blobs; return the problems of the damaged ones."""
    problems = list[Problem]()
    for key in blobs.keys():  # noqa: SIM118 - a store is no mapping
        try:
            with suppress(MissingBlob):  # deleted meanwhile
                blobs.get(key)
        except DamagedBlob as error:
            problems.append(_problem(error))
    return problems
