"""``flyball up``: all daemons of a run, supervised and watched."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict
from typing import Any, NamedTuple

import click
import structlog
from click.core import ParameterSource

from flyball.app.api.following import BrokerWatch, JournalWatch
from flyball.app.api.runs import RunLocation, is_listening, open_journal
from flyball.app.cli import demonstration, group
from flyball.app.cli.demonstration import Demonstration, StoryScreen, run_command
from flyball.app.cli.options import json_option, run_options, run_sources
from flyball.app.cli.output import complain, note
from flyball.app.cli.streams import OutputFailed, discard_output, tolerate_closed_output
from flyball.app.cli.up_screen import LiveScreen, Screen, is_usual
from flyball.app.config import PROFILES, RunSettings
from flyball.app.config.dashboard import DashboardSettings
from flyball.app.config.layers import COMMAND_LINE
from flyball.app.config.loading import Loaded, variable
from flyball.app.core import BROKER, OBSERVER, FlyballError
from flyball.app.dashboard.access import Access, AddressTaken, listen, url_of
from flyball.app.engine import fork_server
from flyball.app.engine.programs import can_fork, python_module
from flyball.app.engine.ray_engine import check_ray
from flyball.app.journal.history import last_settings, past_settings
from flyball.app.journal.ports import JournalLocation
from flyball.app.status.summary import ADVISES_ONLY
from flyball.app.telemetry import check_wandb, configure
from flyball.daemons import monitoring
from flyball.daemons.bootstrap import check_settings
from flyball.daemons.clock import SystemClock
from flyball.daemons.open_files import allow_open_files
from flyball.daemons.ray_cluster import cluster_command, is_own_cluster, ray_environment
from flyball.daemons.registry import MACHINE_ROLES, MachineRole, left_to_participants, names_of
from flyball.daemons.run_folder import (
    AlreadyRunning,
    FolderLock,
    FolderLost,
    bus_endpoint,
    check_heads,
    check_history,
    prepare,
)
from flyball.daemons.suitability import check_lasting, incomparable_ratings
from flyball.daemons.supervisor import ChildReport, ChildSpec, Supervisor

LOOK_SECONDS = 0.5
AFTER_DRAIN_SECONDS = 5.0
"""Time after its jobs' ``drain_seconds`` until a daemon is killed."""

FORK_SERVER = "fork_server"

PRELOADED = (
    "flyball.app.cli.daemon",
    "flyball.daemons.process",
    "flyball.app.cli.dashboard",
    "flyball.app.core.loaded_compiler",
    "flyball.app.dashboard.server",
    "flyball.app.learning.jobs",
    "flyball.app.learning.search_training",
    "flyball.app.play.inspection",
    "flyball.app.play.matches",
    "flyball.app.play.selfplay",
    "flyball.app.store.checkpoints",
)
"""Modules that the fork server imports: those of daemons, of the dashboard, and of jobs."""


MOST_REPORTED = 20_000
"""Events of a journal whose report is shown when the run ends."""


@click.command()
@click.option(
    "--profile",
    type=click.Choice([*PROFILES, demonstration.PROFILE]),
    help="Which configurations to run; demo: two, for some minutes, with planted troubles, in the run folder demo.",
)
@click.option("--config", "configs", multiple=True, metavar="KEY", help="Run this configuration; may be repeated.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the run.")
@click.option(
    "--role",
    type=click.Choice(MACHINE_ROLES),
    help="Only a head's daemons, which record and decide, or a worker's, which run jobs.",
)
@click.option("--for", "seconds", type=click.FloatRange(0, min_open=True), help="Stop after this many seconds.")
@json_option
@run_options
def up(
    location: RunLocation,
    *,
    profile: str | None,
    configs: tuple[str, ...],
    seed: int | None,
    role: MachineRole | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Start all daemons of a run and watch them.

    Ctrl-C stops the daemons in order; a second Ctrl-C does not wait. A cluster has one head, where the broker runs, and
    workers: --role names what this machine is.
    """
    allow_open_files()
    is_demo = profile == demonstration.PROFILE
    if is_demo:
        demonstration.refuse_options(config=configs, role=role)
        named = not run_sources() <= {None, ParameterSource.DEFAULT}
        location, profile = demonstration.prepare_demonstration(location, named=named), None
        click.get_current_context().find_root().obj["run_dir"] = location.folder.path  # for the hints of errors
    overrides = {"profile": profile, "configs": list(configs) or None, "seed": seed}
    loaded = location.load({key: value for key, value in overrides.items() if value is not None})
    if group.whole_process and loaded.deployment.fork_server:
        fork_server.begin(PRELOADED, group.go_on)
    check_settings(loaded)
    check_wandb(loaded.deployment.wandb, "deployment.wandb")
    if loaded.deployment.engine == "ray":
        check_ray()
    Access.of(loaded.deployment.dashboard, loaded.folder)  # refuses an unsafe token now, before anything runs
    if not _run_all(location, loaded, role, seconds=seconds, is_demo=is_demo, as_json=as_json):
        sys.exit(1)


def _run_all(
    location: RunLocation,
    loaded: Loaded,
    role: MachineRole | None,
    *,
    seconds: float | None,
    is_demo: bool,
    as_json: bool,
) -> bool:
    """Run the daemons until a stop, and show the report. Returns whether all of them ended in order."""
    folder, deployment = location.folder, loaded.deployment
    prepare(folder)
    with closing(FolderLock(folder)) as lock, ExitStack() as stack:
        if role != "worker":
            if is_listening(endpoint := bus_endpoint(folder, deployment)):
                raise AlreadyRunning(
                    f"A broker listens at {endpoint} already.", hint="Stop it, or choose another run folder."
                )
            check_heads(deployment)
            check_history(folder, location.journal)
        before = _check_journal(location.journal, loaded.run, shared=deployment.other_head is not None)
        title = f"Run folder {folder.path.absolute()}; daemons log to {folder.log('*')}. Ctrl-C stops."
        if loaded.run.advises:
            title = f"{ADVISES_ONLY}\n{title}"
        elif loaded.run.is_external:
            start = location.command("participate", "KIND")
            title += f"\nParticipants play, train and evaluate. To start one: {start} -- COMMAND"
        specs = child_specs(location, loaded, role)
        specs.needed[:0] = fork_server_specs(location, loaded)
        shown, server = open_dashboard(deployment.dashboard, role)
        address = ""
        if loaded.observe and role != "worker":
            specs.others.append(observer_spec(location, loaded))
        if server is not None:
            specs.others.append(dashboard_spec(location, loaded, stack.enter_context(server).fileno()))
            address = url_of(server)
        click.echo(title, err=True)
        if shown:
            click.echo(shown, err=True)
            title = f"{shown}\n{title}"
        demo = Demonstration(location, address, as_json=as_json) if is_demo else None
        screen = _screen(title, demo, as_json=as_json)
        with configure("supervisor", deployment.node, folder.log("supervisor"), deployment.log_level, echo=False):
            fine = asyncio.run(_up(location, loaded, specs, lock=lock, seconds=seconds, screen=screen, demo=demo))
            _show_report(location, before, wanted=role != "worker" and not as_json)
    return fine


def _screen(title: str, demo: Demonstration | None, *, as_json: bool) -> Screen:
    """Return what shows the run. A demonstration needs lines that stay."""
    if as_json or not (demo or sys.stdout.isatty()):
        return Screen(as_json=as_json)
    return StoryScreen() if demo else LiveScreen(title)


def _show_report(location: RunLocation, after: int, *, wanted: bool) -> None:
    """Show what the run did since a position. A long run's report takes too long, so it is left to its command."""
    from flyball.app.cli.report import show_report  # only now, because the start must not wait for its imports
    from flyball.app.replay.run_report import read_report

    if not wanted:
        return
    with suppress(FlyballError), open_journal(location) as reader, _tolerant():
        if reader.head > MOST_REPORTED:
            note(f"What it did: {location.command('report')}")
        else:
            show_report(read_report(reader, complain, after=after), location)


def open_dashboard(settings: DashboardSettings, role: MachineRole | None) -> tuple[str, socket.socket | None]:
    """Return a line about the dashboard, and its open socket.

    The socket outlives restarts of the dashboard's process. It is ``None`` if there is no dashboard. A run goes on
    without a dashboard, for instance if another run's has the port.
    """
    if role == "worker" or not settings.start:
        return "", None
    try:
        server = listen(settings)
    except AddressTaken as error:
        return f"No dashboard: {error.message} {error.hint}", None
    return f"Dashboard: {url_of(server)}", server


def _check_journal(location: JournalLocation, settings: RunSettings, *, shared: bool = False) -> int:
    """Migrate an old journal; warn of games left out; refuse damage and unfit settings, which would stop the broker.

    A journal that is ``shared`` with another head is only read, because the other broker may write it. Returns the
    position of its last event.
    """
    head = 0
    if location.is_begun():
        opened = location.reader() if shared else location.writer()
        # The settings are closed too, because their reader would fail later in a closed journal.
        with closing(opened) as journal, closing(past_settings(journal)) as past:
            check_lasting(past, settings)
            earlier, head = last_settings(journal), journal.head
        if earlier is not None:
            _warn_of_games_left_out(earlier, settings)
            for warning in incomparable_ratings(earlier, settings):
                click.echo(f"WARNING: {warning}", err=True)
    return head


def _warn_of_games_left_out(earlier: RunSettings, settings: RunSettings) -> None:
    """Warn of games that would no longer be played, because a start with another file's settings looks alike."""
    if left_out := sorted({config.key for config in earlier.configs} - {config.key for config in settings.configs}):
        click.echo(
            f"WARNING: These settings leave out {', '.join(left_out)}, which this run has played until now. "
            "If that is not intended, stop, and name the settings' file: flyball --config-file FILE",
            err=True,
        )


class Specs(NamedTuple):
    """The processes of a run."""

    needed: list[ChildSpec]  # by the others
    others: list[ChildSpec]


async def _up(
    location: RunLocation,
    loaded: Loaded,
    specs: Specs,
    *,
    lock: FolderLock,
    seconds: float | None,
    screen: Screen,
    demo: Demonstration | None,
) -> bool:
    stop, hurry = asyncio.Event(), asyncio.Event()
    watch = JournalWatch(location)
    with screen:
        _stop_on_signals(screen, stop, hurry)
        supervisor = Supervisor(
            [*specs.needed, *specs.others],
            SystemClock(),
            _reporter(screen, stop),
            needed=len(specs.needed),
            drain_seconds=loaded.deployment.drain_seconds + AFTER_DRAIN_SECONDS,
        )
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, stop.set)
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(_watch(watch, location, loaded, screen, stop))
            guard = group.create_task(_guard(lock, screen, stop))
            if demo:
                group.create_task(_play(demo, stop))
            fine = await supervisor.run(stop, hurry)
            watcher.cancel()
            guard.cancel()
        with _tolerant():
            _show_news(watch, screen)
            screen.status(watch.board.status(SystemClock().now(), None, running=True))
        try:
            lock.check()
            watch.save()
        except FolderLost:
            return False
        unknown = supervisor.cut_short() if seconds is not None else []
        if unknown:
            with _tolerant():
                screen.say(f"The time was over before these had started: {', '.join(unknown)}. Give --for more.")
    return fine and not unknown


def child_specs(location: RunLocation, loaded: Loaded, role: MachineRole | None = None) -> Specs:
    """Return a process for each daemon.

    The others need the broker, and the Ray cluster if the run starts one. The monitoring daemon is left out if the
    settings ask it for nothing, and so are the daemons that only participants host.
    """
    folder, environment = location.folder, child_environment(location, loaded)
    cluster = []
    if is_own_cluster(loaded.deployment):
        environment |= ray_environment(folder)
        cluster = [ChildSpec("ray", cluster_command(folder, loaded.deployment), folder.errors("ray"))]
    command = python_module("flyball.app.cli", "--run", str(folder.path.absolute()), "daemon", "run")
    unneeded = left_to_participants(loaded.run)
    if not loaded.deployment.is_monitored:
        unneeded |= {monitoring.DAEMON.name}
    names = [name for name in names_of(role) if name not in unneeded]
    daemons = [ChildSpec(name, (*command, name, "--supervised"), folder.errors(name), environment) for name in names]
    broker = [spec for spec in daemons if spec.name == BROKER]
    return Specs([*broker, *cluster], [spec for spec in daemons if spec not in broker])


def fork_server_specs(location: RunLocation, loaded: Loaded) -> list[ChildSpec]:
    """Return the process that forks the others, which start by themselves without it."""
    if not (loaded.deployment.fork_server and can_fork()):
        return []
    command, errors = python_module("flyball.app.engine.fork_server", *PRELOADED), location.folder.errors(FORK_SERVER)
    return [ChildSpec(FORK_SERVER, command, errors, vital=False, serves_forks=True)]


def observer_spec(location: RunLocation, loaded: Loaded) -> ChildSpec:
    """Return the process that follows the files of an observed loop."""
    command = python_module("flyball.app.cli", "--run", str(location.folder.path.absolute()), "observe", "--supervised")
    return ChildSpec(OBSERVER, command, location.folder.errors(OBSERVER), child_environment(location, loaded))


def dashboard_spec(location: RunLocation, loaded: Loaded, fd: int) -> ChildSpec:
    """Return the dashboard's process, which serves at an open socket. The run goes on if the dashboard cannot start."""
    folder = location.folder
    command = python_module(
        "flyball.app.cli", "--run", str(folder.path.absolute()), "dashboard", "--supervised", "--fd", str(fd)
    )
    errors, environment = folder.errors("dashboard"), child_environment(location, loaded)
    return ChildSpec("dashboard", command, errors, environment, fds=(fd,), vital=False)


def child_environment(location: RunLocation, loaded: Loaded) -> dict[str, str]:
    """Return the variables that pass this process's command-line settings to a child."""
    values = loaded.values()
    overrides = {key: values[key] for key, origin in loaded.origins.items() if origin == COMMAND_LINE}
    environment = {variable(key): json.dumps(value) for key, value in overrides.items()}
    file = location.config_file or location.folder.settings
    if file.is_file():  # named, so that a daemon which starts after its removal refuses to run with other settings
        environment["FLYBALL_CONFIG_FILE"] = str(file.absolute())
    return environment


@contextmanager
def _tolerant(on_closed: Callable[[], None] | None = None) -> Iterator[None]:
    """Let the run go on if its output cannot be shown.

    Once nobody reads stdout, ``on_closed`` is called. Output for a full disk is dropped.
    """
    log = structlog.get_logger("supervisor")

    def closed() -> None:
        log.warning("nobody reads stdout any more", consequence="the run stops" if on_closed else None)
        if on_closed:
            note("Nobody reads stdout any more: the run stops.")
            on_closed()

    try:
        with tolerate_closed_output(closed):
            yield
    except OutputFailed as error:
        click.echo(
            f"stdout cannot be written: {error.strerror}. The run goes on, and shows nothing more there.", err=True
        )
        log.warning("stdout cannot be written", error=error.strerror)
        discard_output()


async def _guard(lock: FolderLock, screen: Screen, stop: asyncio.Event) -> None:
    """Stop the run in order once its folder is gone."""
    log, reported = structlog.get_logger("supervisor"), ""
    while True:
        try:
            lock.check()
        except (FlyballError, OSError) as error:
            if str(error) != reported:
                reported = str(error)
                log.error("run folder", error=reported)  # noqa: TRY400 - the message says it all
                with _tolerant():
                    screen.say(reported)
            if isinstance(error, FolderLost):
                stop.set()
                return
        await asyncio.sleep(LOOK_SECONDS)


def _reporter(screen: Screen, stop: asyncio.Event) -> Callable[[ChildReport], None]:
    log = structlog.get_logger("supervisor")

    def report(report: ChildReport) -> None:
        write: Any = log.error if report.what in ("failed", "hopeless", "killed") else log.info
        fields = asdict(report)
        write(f"{report.name} {report.what}", child=fields.pop("name"), **fields)
        # The fork server is no daemon of the run, so its usual reports are not shown.
        if report.name != FORK_SERVER or not is_usual(report):
            with _tolerant(stop.set):
                screen.report(report)

    return report


def _stop_on_signals(screen: Screen, stop: asyncio.Event, hurry: asyncio.Event) -> None:
    """Stop the run at a signal; at a second one do not wait."""

    def on_signal(number: signal.Signals) -> None:
        structlog.get_logger("supervisor").info("asked to stop", signal=number.name)
        if stop.is_set():
            hurry.set()
            return
        stop.set()
        with _tolerant():
            screen.say("Stopping: running jobs get their time. Ctrl-C again does not wait.")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores it
            asyncio.get_running_loop().add_signal_handler(number, on_signal, number)


async def _play(demo: Demonstration, stop: asyncio.Event) -> None:
    """Play a demonstration, and then stop the run. A stop ends the demonstration."""

    def say(text: str) -> None:
        with _tolerant(stop.set):
            click.echo(text)

    async with asyncio.TaskGroup() as group:
        playing, stopped = group.create_task(demo.play(say, run_command)), group.create_task(stop.wait())
        await asyncio.wait((playing, stopped), return_when=asyncio.FIRST_COMPLETED)
        playing.cancel()
        stop.set()


async def _watch(
    watch: JournalWatch, location: RunLocation, loaded: Loaded, screen: Screen, stop: asyncio.Event
) -> None:
    """Show news until cancelled.

    Stops the run in order once nobody reads stdout. An error of the display costs only the display.
    """
    broker, trouble = BrokerWatch(location, loaded, LOOK_SECONDS, "up"), ""
    try:
        while True:
            try:
                before = broker.trouble
                await broker.look()
                with _tolerant(stop.set):
                    if broker.trouble not in ("", before):
                        screen.say(broker.trouble)
                    _show_news(watch, screen)
                    screen.status(broker.status(watch.board))
            except Exception as error:  # noqa: BLE001 - the daemons do not need the display
                if repr(error) != trouble:
                    trouble = repr(error)
                    structlog.get_logger("supervisor").exception("the run could not be shown")
            await asyncio.sleep(0 if watch.behind else LOOK_SECONDS)
    finally:
        await broker.close()


def _show_news(watch: JournalWatch, screen: Screen) -> None:
    """Show new events. An unreadable journal is only reported; it does not end the run."""
    try:
        for event in watch.news():
            screen.event(event, watch.board.settings)
    except FlyballError as error:
        if watch.trouble != error.message:
            screen.say(str(error))
        watch.trouble = error.message
