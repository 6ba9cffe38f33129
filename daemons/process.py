"""The composition root of daemons: builds a daemon's adapters from the settings, and runs the daemon."""

import asyncio
import gc
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import structlog

from flyball.app.backends import understood
from flyball.app.bus import ZmqBus
from flyball.app.bus.ports import OtherHistory
from flyball.app.config import CPU, Deployment, RunFolder
from flyball.app.config.loading import Loaded
from flyball.app.config.ray import SharedJobs
from flyball.app.core import BROKER, FlyballError
from flyball.app.engine import Engine, LocalEngine, python_module
from flyball.app.engine.ray_engine import RayEngine
from flyball.app.job_specs import JobContext
from flyball.app.journal import DamagedDatabase, SqliteOutbox, SqliteStateStore
from flyball.app.journal.database import FileReplaced, StorageInUse
from flyball.app.journal.kept_files import set_aside
from flyball.app.journal.opening import OtherJournal, journal_of
from flyball.app.journal.ports import JournalLocation, StoredJournal
from flyball.app.store import FileStore, open_store
from flyball.app.telemetry import FAILED, configure
from flyball.daemons import evaluation, quality_monitor, selfplay_worker, training
from flyball.daemons.bootstrap import check, check_controllers
from flyball.daemons.bounded_engine import BoundedEngine
from flyball.daemons.broker import BrokerVoice, serve, stop_signals
from flyball.daemons.clock import SystemClock, boot_id
from flyball.daemons.evaluation import Evaluator
from flyball.daemons.host import Host, Ports, Rhythm
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.ray_cluster import announced_address
from flyball.daemons.receivers import RECEIVERS
from flyball.daemons.registry import daemons_of
from flyball.daemons.rights import broker_access, client_keys
from flyball.daemons.run_folder import LostJournal, bus_endpoint, check_heads, check_history
from flyball.daemons.saved_state import known_record
from flyball.daemons.shipping import SHIPPER
from flyball.daemons.spec import DaemonSpec
from flyball.daemons.supervisor import Notifier
from flyball.daemons.upkeep import PAUSE_SECONDS, PeriodicCommand, Upkeep

SHARED_JOBS: Mapping[str, SharedJobs] = {
    selfplay_worker.DAEMON.name: "selfplay",
    quality_monitor.DAEMON.name: "inspection",
    training.DAEMON.name: "training",
    evaluation.DAEMON.name: "evaluation",
}
"""Kind of jobs, by daemon, that any machine can run."""

F = TypeVar("F", SqliteStateStore, SqliteOutbox)

KEPT_SHARE = 0.8
"""Share of the store's bound above which blobs that nothing needs are deleted."""

PATIENCE_SECONDS = 7 * 24 * 3600.0
"""Longest wait for the broker to come back. It is long because a daemon can do nothing useful without the broker."""

SHIPPER_PAUSE_SECONDS = 5.0
"""Least time between two starts of the process that ships the journal, which runs as long as the broker."""

OPENING_USEC = 3_600_000_000
"""Longest check and migration of the journal at a start, in microseconds. It is enough for a terabyte."""


def run_daemon(spec: DaemonSpec, loaded: Loaded, folder: RunFolder) -> int:
    """Run a daemon until SIGTERM or SIGINT.

    Returns the exit code: 0 drained, 1 failed, 2 for a broker whose journal was replaced or lost, or is another run's.

    Only this function catches every exception. It logs the exception, and the supervisor restarts the daemon.
    """
    configure(spec.name, loaded.deployment.node, folder.log(spec.name), loaded.deployment.log_level)
    log = structlog.get_logger("daemon")
    try:
        if spec.hosts_own:
            check_controllers(loaded.run)
            spec = daemons_of(loaded.run)[spec.name]
        else:
            check()
        calm_collector()
        if spec.name == BROKER:
            _run_broker(loaded, folder)
        else:
            asyncio.run(_run_hosted(spec, loaded, folder))
    except FlyballError as error:
        log.error(FAILED, error=str(error))  # noqa: TRY400 - the message says it all
        return 2 if spec.name == BROKER and isinstance(error, FileReplaced | LostJournal | OtherJournal) else 1
    except Exception:
        log.exception(FAILED)
        return 1
    return 0


def calm_collector() -> None:
    """Collect garbage less often, and never examine the objects that exist now.

    A daemon has many long-lived objects, and a collection that examines all of them stops the event loop. The objects
    that events leave behind are freed by reference counting.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _run_broker(loaded: Loaded, folder: RunFolder) -> None:
    voice = BrokerVoice(loaded.deployment.node, boot_id())
    Notifier().tell(f"EXTEND_TIMEOUT_USEC={OPENING_USEC}", "STATUS=checking the journal")
    location = journal_of(folder, loaded.deployment.journal)
    check_history(folder, location)
    check_heads(loaded.deployment)
    if (writer := _take_over(location, loaded)) is None:
        return
    with closing(writer) as journal:
        endpoint, clock = bus_endpoint(folder, loaded.deployment), SystemClock()
        access, settings = broker_access(loaded, clock), loaded.deployment.journal
        command = python_module("flyball.app.cli", "--run", str(folder.path.absolute()))
        archive = (*command, "journal", "archive", "--supervised", "--keep", str(settings.live_events))
        archiving = PeriodicCommand("archiving", archive, folder.errors("archive"), clock)
        upkeep = Upkeep(journal, archiving, settings, clock)
        to_gib = str(KEPT_SHARE * loaded.deployment.store_gib)
        collect = (*command, "store", "gc", "--yes", "--supervised", "--grace-hours", "6", "--to-gib", to_gib)
        own = loaded.deployment.store is None  # another folder may hold other runs' blobs
        room = PeriodicCommand(
            "making room in the store", collect if own else (), folder.errors("gc"), clock, wait_seconds=PAUSE_SECONDS
        )

        ship = (*command, "journal", "ship", "--supervised") if loaded.ship else ()
        shipping = PeriodicCommand("shipping", ship, folder.errors(SHIPPER), clock, pause_seconds=SHIPPER_PAUSE_SECONDS)

        def look() -> None:
            upkeep.look()
            room.look()
            shipping.look()

        with closing(archiving), closing(room), closing(shipping):
            serve(journal, endpoint, loaded, voice, clock, access=access, upkeep=look)


def _take_over(location: JournalLocation, loaded: Loaded) -> StoredJournal | None:
    """Open the journal for writing, beside another head once that one's broker has ended.

    Returns None if this broker is to end first.
    """
    deployment = loaded.deployment
    if deployment.other_head is None:
        return location.writer()
    understood(loaded.run)  # imports the backends now, so that later everybody need not wait for that
    notifier = Notifier()
    structlog.get_logger("broker").info("standing by until the journal is free", other_head=deployment.other_head)
    with stop_signals() as (stopped, _):

        def give_up() -> bool:
            notifier.tell(f"EXTEND_TIMEOUT_USEC={OPENING_USEC}", f"STATUS=standing by for {deployment.other_head}")
            return stopped()

        try:
            return location.writer(wait=True, give_up=give_up)
        except StorageInUse:
            if stopped():
                return None
            raise


async def _run_hosted(spec: DaemonSpec, loaded: Loaded, folder: RunFolder) -> None:
    deployment = loaded.deployment
    spec = sized(spec, deployment)
    kind = spec.worker.kind if spec.worker else None
    compute = deployment.compute(kind) if kind else CPU
    identity = WorkerIdentity(
        name=f"{spec.name}@{deployment.node}",
        node=deployment.node,
        context=JobContext(
            **dict(compute)
            | {
                "store": loaded.store(folder),
                "settings_folder": str(loaded.folder.absolute()),
                "text_servers": None if kind == "training" else deployment.text_servers(folder.path, loaded.folder),
            }
        ),
    )
    if kind:
        structlog.get_logger("daemon").info("device of jobs", **identity.context.model_dump(exclude={"store"}))
    engine = await engine_of(spec, deployment, folder) if spec.worker else None
    store = open_store(identity.context.store)
    own = deployment.store is None  # another folder may hold other runs' blobs
    if engine and own and spec.name == selfplay_worker.DAEMON.name and isinstance(store, FileStore):
        engine = BoundedEngine(engine, spec.capacity, store, deployment.store_bytes, SystemClock())
    stop = asyncio.Event()  # after Ray, which would handle the signals by ending the process
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await run_host(spec, identity, loaded, folder, engine=engine, stop=stop)
    finally:
        if engine:
            await engine.close()


async def run_host(
    spec: DaemonSpec,
    identity: WorkerIdentity,
    loaded: Loaded,
    folder: RunFolder,
    *,
    engine: Engine | None,
    stop: asyncio.Event,
) -> None:
    """Run a daemon's host until ``stop`` is set and its jobs are drained. The engine stays open.

    Raises errors in an ExceptionGroup, or ``OtherHistory`` once the daemon's files of another history are set aside.
    """
    deployment = loaded.deployment
    state_file = migrated_path(folder.state(spec.name, identity.node), spec.name)
    outbox_file = migrated_path(folder.outbox(spec.name, identity.node), spec.name)
    states = opened(SqliteStateStore, state_file, "its content is rebuilt from the journal")
    outbox = opened(SqliteOutbox, outbox_file, "its unsent conclusions are derived again, and its jobs run again")
    sink = spec.sink(folder, deployment, boot_id()) if spec.sink else None
    with closing(states), closing(outbox), closing(sink) if sink else nullcontext():
        endpoint = bus_endpoint(folder, deployment)
        keys = client_keys(loaded)
        bus = ZmqBus(
            endpoint,
            producer=identity.name,
            outbox=outbox,
            deadline_s=PATIENCE_SECONDS,
            keys=keys,
            sole=True,
            patient=True,
            last_record=known_record(states),
            other=deployment.other_head,
        )
        companion = spec.companion(loaded, folder) if spec.companion else None
        ports = Ports(bus, states, SystemClock(), engine, Notifier(), sink, companion)
        rhythm = Rhythm(deployment.heartbeat_seconds, deployment.drain_seconds)
        foreign: BaseExceptionGroup[OtherHistory] | None = None
        try:
            await Host(spec, identity, boot_id(), ports, rhythm).run(stop)
        except* OtherHistory as caught:
            foreign = caught
        finally:
            await bus.close()
        files = [state_file, folder.state(RECEIVERS, identity.node)] if spec.companion else [state_file]
        files += [outbox_file] if outbox.load() else []
    if foreign:
        raise _set_files_aside(files, foreign)


def _set_files_aside(files: Sequence[Path], foreign: BaseExceptionGroup[OtherHistory]) -> OtherHistory:
    """Set a daemon's files of another history aside.

    Returns the error with which the daemon ends. The next start rebuilds the state from the journal. Unsent conclusions
    of the other history are not sent.
    """
    error: BaseException = foreign
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    copies = [set_aside(path) for path in files if path.exists()]
    what = {"error": str(error), "kept_as": list(map(str, copies)), "consequence": "state is rebuilt from the journal"}
    structlog.get_logger("daemon").warning("files of another history of the journal set aside", **what)
    assert isinstance(error, OtherHistory)
    return error


async def engine_of(spec: DaemonSpec, deployment: Deployment, folder: RunFolder) -> Engine:
    """Return the engine of a worker's jobs. Jobs that bring models to this machine always run on this machine."""
    if deployment.engine == "ray" and (jobs := SHARED_JOBS.get(spec.name)):
        address = deployment.ray.address or await announced_address(folder)
        return RayEngine(address, deployment.ray.demand(jobs).resources)
    kind = spec.worker.kind if spec.worker else None
    fork = kind is None or deployment.compute(kind).device == CPU.device  # a fork could not use CUDA
    return LocalEngine(processes_of(spec, deployment), deployment.threads_per_job, nice=5, fork=fork)


def processes_of(spec: DaemonSpec, deployment: Deployment) -> int:
    """Return this machine's number of processes for a daemon's jobs."""
    jobs = SHARED_JOBS.get(spec.name)
    return getattr(deployment.processes, jobs) if jobs else spec.capacity


def sized(spec: DaemonSpec, deployment: Deployment) -> DaemonSpec:
    """Return a daemon with a job for each process; an evaluation takes all processes, because it has many parts."""
    return spec if spec.worker is Evaluator else replace(spec, capacity=processes_of(spec, deployment))


def migrated_path(path: Path, daemon: str) -> Path:
    """Return the path of a daemon's file, after renaming an older file that is named without the node."""
    older = path.with_name(f"{daemon}.sqlite")
    if older.is_file() and not path.exists():
        for rest in ("-wal", "-shm", ""):  # last the database, whose name marks completion
            with suppress(FileNotFoundError):
                older.with_name(older.name + rest).rename(path.with_name(path.name + rest))
    return path


def opened(kind: Callable[[Path], F], path: Path, consequence: str) -> F:
    """Open one of a daemon's own files. A damaged file is renamed, reported, and replaced by a new one."""
    file: F | None = None
    try:
        file = kind(path)
        file.load()
    except DamagedDatabase as error:
        if file:
            file.close()
        aside = path.with_name(path.name + ".damaged")
        path.replace(aside)
        for rest in ("-wal", "-shm"):
            path.with_name(path.name + rest).unlink(missing_ok=True)
        what = {"error": error.message, "kept_as": str(aside), "consequence": consequence}
        structlog.get_logger("daemon").error("damaged file set aside", **what)
        return kind(path)
    return file
