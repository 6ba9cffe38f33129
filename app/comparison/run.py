"""One run of a comparison.

All daemons of an arm run in one process, on a bus in memory, in virtual time. The hosts, reducers, workers and jobs are
those of ``flyball up``; only the bus, the journal, the engine and the clock differ. The run ends after its processor
time, whatever else the machine does meanwhile.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from typing import Any

from flyball.app.bus.memory import MemoryBus
from flyball.app.comparison.troubles import FaultyEngine, Planted
from flyball.app.comparison.virtual_time import Processor, SharedEngine, VirtualClock, VirtualLoop
from flyball.app.config import FrozenModel, RunFolder, RunSettings
from flyball.app.controllers.scheduler import WORKER_DAEMON
from flyball.app.core import ModelHash, derive_id
from flyball.app.engine import Engine
from flyball.app.events import (
    ClockTick,
    Event,
    ExplorationBoost,
    ModelPromoted,
    ModelRolledBack,
    NodeQuarantined,
    PromotionRejected,
    QualityDegraded,
    RunConfigured,
    SelfplayComplete,
    TrainingBlockedByQuality,
    TrainingCompleted,
    TrainingFailed,
)
from flyball.app.job_specs import JobContext
from flyball.app.journal import SqliteJournal, history
from flyball.app.journal.memory import MemoryJournal, MemoryStateStore
from flyball.app.scenarios import views_of
from flyball.app.simulation import arm_settings, arms_of, daemons_of_arm
from flyball.app.store import FileStore
from flyball.daemons.broker import BrokerVoice, begin
from flyball.daemons.clock import processor_seconds
from flyball.daemons.host import Host, Ports, Rhythm
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.spec import DaemonSpec
from flyball.daemons.supervisor import Notifier

NODE = "compare"
RHYTHM = Rhythm(drain_seconds=0.0)

COUNTED = {
    "trainings": TrainingCompleted,
    "failed_trainings": TrainingFailed,
    "promotions": ModelPromoted,
    "rejections": PromotionRejected,
    "rollbacks": ModelRolledBack,
    "boosts": ExplorationBoost,
    "blocks": TrainingBlockedByQuality,
    "refused_shards": QualityDegraded,
    "quarantines": NodeQuarantined,
}
"""Types of events that are counted, by the figure's name. Events about no configuration count for the run."""


class StudyTask(FrozenModel):
    """One run.

    Attributes:
        settings: of all runs of the study; the seed is replaced.
        seconds: of processor time.
        cores: of the processor that the run's jobs share.
        troubles: planted ones, see ``Planted.parse``.
        folder: of the study; the champions come into its store.
        settings_folder: where user-defined commands run.
    """

    settings: RunSettings
    arm: str
    seed: int
    seconds: float
    cores: int
    troubles: tuple[str, ...]
    folder: Path
    settings_folder: str

    @property
    def name(self) -> str:
        """Name of the run's files."""
        return f"{self.arm.replace(' ', '-')}-{self.seed}"

    @property
    def run_folder(self) -> RunFolder:
        """The run's folder, which keeps its journal."""
        return RunFolder(self.folder / "runs" / self.name)


class ConfigFigures(FrozenModel):
    """Figures of one configuration in a run.

    Attributes:
        champion: the current model at the end; ``None`` if none was ever promoted.
        step: trainings behind the champion.
        rows: rows played.
        counts: events by name, see ``COUNTED``.
    """

    champion: ModelHash | None
    step: int
    games: int
    rows: int
    counts: dict[str, int]


class RunFigures(FrozenModel):
    """Figures of one run.

    Attributes:
        used: share of the processor's time that the jobs of each daemon had.
        overhead: processor time of the daemons themselves, as a share of the run's time; not part of that time.
        counts: of events about no configuration.
        unfolded: events that a reducer could not fold, with the error.
    """

    arm: str
    seed: int
    configs: dict[str, ConfigFigures]
    events: int
    used: dict[str, float]
    overhead: float
    counts: dict[str, int]
    unfolded: tuple[str, ...]


Meter = Callable[[], float]
"""Function that returns this process's used processor time, in seconds."""


def run_task(task: StudyTask, meter: Meter = processor_seconds) -> RunFigures:
    """Do one run; keep its journal and champions; return its figures, deterministic for an equal ``meter``."""
    folder = task.run_folder
    rmtree(folder.path, ignore_errors=True)  # of an interrupted study
    folder.path.mkdir(parents=True)
    journal = MemoryJournal()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        used_seconds, overhead_seconds = runner.run(_play(task, journal, meter))
    with closing(SqliteJournal(folder.journal)) as stored:
        after = 0
        while (chunk := journal.read(after)).position > after:
            stored.append(chunk.records)
            after = chunk.position
    events = list(history(journal))
    configs = config_figures(task.settings, events)
    store, champions = FileStore(folder.store), FileStore(RunFolder(task.folder).store)
    for figures in configs.values():
        if figures.champion:
            champions.put(store.get(figures.champion))
    rmtree(folder.store)
    return RunFigures(
        arm=task.arm,
        seed=task.seed,
        configs=configs,
        events=journal.head,
        used={name: seconds / (task.seconds * task.cores) for name, seconds in used_seconds.items()},
        overhead=overhead_seconds / task.seconds,
        counts=count_events(event for event in events if not event.subject),
        unfolded=tuple(f"{dead.reporter} at {dead.position}: {dead.error}" for dead in journal.dead_letters()),
    )


def count_events(events: Iterable[Event[Any]]) -> dict[str, int]:
    """Count the events of each figure in ``COUNTED``."""
    counts = Counter(type(event.data) for event in events)
    return {name: counts[kind] for name, kind in COUNTED.items()}


def config_figures(settings: RunSettings, events: list[Event[Any]]) -> dict[str, ConfigFigures]:
    """Return the figures of each configuration."""
    figures = {}
    for key, view in views_of(settings, events).items():
        own = [event for event in events if event.subject == key]
        shards = [event.data.shard for event in own if isinstance(event.data, SelfplayComplete)]
        champion = view.state.lineage.current
        figures[key] = ConfigFigures(
            champion=champion.model if champion else None,
            step=champion.step if champion else 0,
            games=sum(shard.games for shard in shards),
            rows=sum(shard.rows for shard in shards),
            counts=count_events(own),
        )
    return figures


async def _play(task: StudyTask, journal: MemoryJournal, meter: Meter) -> tuple[dict[str, float], float]:
    return await _Run(task, journal, meter).play()


class _Run:
    """The daemons of one run, in a ``VirtualLoop``."""

    def __init__(self, task: StudyTask, journal: MemoryJournal, meter: Meter) -> None:
        self._task, self._journal, self._meter = task, journal, meter
        self._loop = asyncio.get_running_loop()
        self._clock, self._voice = VirtualClock(self._loop), BrokerVoice(NODE, "compare")
        arm = arms_of(task.settings)[task.arm]
        self._daemons = daemons_of_arm(arm)
        self._settings = arm_settings(task.settings, arm, task.seed)
        parsed = [Planted.parse(text, task.settings) for text in task.troubles]
        self._planted = [(planted, planted.trouble.begins * task.seconds) for planted in parsed]
        begin(journal, self._settings_now(), self._voice, self._clock)
        self._bus = MemoryBus(journal, self._clock, producer=self._voice.source)
        self._processor = Processor(task.cores)
        self._engines: list[SharedEngine] = []

    async def play(self) -> tuple[dict[str, float], float]:
        """Run to the end.

        Returns the processor's time that each daemon's jobs used, and the measured time of the daemons themselves, in
        seconds.
        """
        stop, began = asyncio.Event(), self._meter()
        async with asyncio.TaskGroup() as group:
            hosts = {name: group.create_task(host.run(stop)) for name, host in self._hosts()}
            for planted, begins in self._planted:
                if planted.trouble.dies:
                    self._loop.call_later(begins, hosts[self._settings.selfplay_workers[-1]].cancel)
            others = list(map(group.create_task, (self._tick(), self._report_lost(), self._change_settings())))
            await asyncio.sleep(self._task.seconds)
            stop.set()
            for task in others:
                task.cancel()
        jobs = sum(engine.job_seconds for engine in self._engines)
        return self._processor.used_seconds, self._meter() - began - jobs

    def _settings_now(self) -> RunSettings:
        """Return the settings with all changes that have begun by now."""
        settings = self._settings
        for planted, begins in self._planted:
            if begins <= self._loop.time():
                settings = planted.changed(settings)
        return settings

    async def _change_settings(self) -> None:
        """Record the changes of settings that begin later."""
        changes = {begins for planted, begins in self._planted if planted.trouble.change is not None}
        for begins in sorted(changes - {0.0}):
            await asyncio.sleep(begins - self._loop.time())
            run_id = derive_id("run", self._task.seed, self._journal.head)
            configured = RunConfigured(run_id=run_id, settings=self._settings_now().model_dump(mode="json"))
            self._bus.record(self._voice.write(self._clock.now(), configured))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._settings.tick_seconds)
            tick = ClockTick(period_seconds=self._settings.tick_seconds)
            self._bus.record(self._voice.write(self._clock.now(), tick))

    async def _report_lost(self) -> None:
        """Report daemons that fell silent, as the broker does."""
        while True:
            await asyncio.sleep(RHYTHM.heartbeat_seconds)
            if facts := self._bus.presence_facts():
                self._bus.record(self._voice.write(self._clock.now(), *facts))

    def _hosts(self) -> Iterator[tuple[str, Host]]:
        """Return the daemons that have reducers, not the broker and those that only show, by daemon@node."""
        for spec in self._daemons.values():
            if spec.reducers:
                is_node = spec.name == WORKER_DAEMON
                for name in self._settings.selfplay_workers if is_node else (f"{spec.name}@{NODE}",):
                    yield name, self._host(spec, name)

    def _host(self, spec: DaemonSpec, name: str) -> Host:
        store = str(self._task.run_folder.store.absolute())
        context = JobContext(store=store, settings_folder=self._task.settings_folder)
        identity = WorkerIdentity(name, name.partition("@")[2], context)
        engine = self._engine(spec, name) if spec.worker else None
        ports = Ports(self._bus.connection(name), MemoryStateStore(), self._clock, engine, Notifier(""))
        return Host(spec, identity, "compare", ports, RHYTHM)

    def _engine(self, spec: DaemonSpec, name: str) -> Engine:
        engine = SharedEngine(self._processor, spec.name, spec.capacity, self._meter)
        self._engines.append(engine)
        if name != self._settings.selfplay_workers[-1]:
            return engine
        return FaultyEngine(engine, [(begins, planted.trouble) for planted, begins in self._planted])
