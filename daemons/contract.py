"""The contract of backends.

The contract is checked on a few games in a temporary store. The daemons' own workers make the jobs' specs, and facts of
their results. So a backend that passes is called as in a run.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from flyball.app.backends import GameInfo, describe, understood
from flyball.app.config import GAMES, PARAMETERS, GameConfig, RunSettings
from flyball.app.controllers.fold import Fold
from flyball.app.core import (
    HEURISTIC,
    RANDOM,
    SECOND_US,
    ConfigKey,
    Elo,
    Finding,
    FlyballError,
    JsonObject,
    ModelHash,
    derive_id,
)
from flyball.app.engine import InlineEngine, run_coroutine
from flyball.app.events import (
    Event,
    Evidence,
    Lineup,
    MatchesRequested,
    ModelDistributed,
    ModelPromoted,
    Payload,
    QualityDegraded,
    RunConfigured,
    SelfplayComplete,
    SelfplayRequested,
    TrainingCompleted,
    TrainingRequested,
    originate,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.job_specs import JobContext
from flyball.app.store import DamagedBlob, FileStore, MissingBlob, get_checkpoint, get_shard
from flyball.daemons.distribution import Distributor
from flyball.daemons.evaluation import Evaluator
from flyball.daemons.jobs import Job, UnusableResult, Worker, WorkerIdentity, facts_of
from flyball.daemons.quality_monitor import QualityMonitor
from flyball.daemons.selfplay_worker import SelfplayWorker
from flyball.daemons.training import Trainer

TINY = GAMES[ConfigKey("tic_tac_toe_2p")]
"""The configuration that is played where no other is named."""

PLAYED_GAMES, MATCH_GAMES, SEED = 32, 4, 7
WORKERS = (Trainer, SelfplayWorker, QualityMonitor, Evaluator, Distributor)
WORKER_NAME = "selfplay_worker@check"
DETERMINISM = "Derive all random numbers from the spec's seed, with flyball.app.core.derive_seed."

P = TypeVar("P", bound=Payload)


class BrokenContract(FlyballError):
    """A job with an unusable result; the jobs after it cannot run."""


def check_backend(name: str, config: GameConfig = TINY, settings_folder: Path = Path()) -> list[Finding]:
    """Run each job of a backend, and return the faults.

    A sound backend has none. The jobs run in threads of this process, one after the other, each twice.

    Args:
        name: as a configuration names it; modules beside ``flyball.toml`` have to be importable.
        config: the configuration to play; its ``backend`` is replaced.
        settings_folder: where the command of a trainer runs.
    """
    try:
        settings = understood(RunSettings(configs=(config.replace(backend=name),), selfplay_workers=(WORKER_NAME,)))
        info = describe(settings.configs[0])
    except FlyballError as error:
        return [Finding("describe", error.message, error.hint)]
    if faults := _faults_of_description(info, config):
        return faults
    with TemporaryDirectory() as folder:
        context = JobContext(store=folder, settings_folder=str(settings_folder.absolute()))
        identity = WorkerIdentity(WORKER_NAME, "check", context)
        trial = _Trial(settings, info, FileStore(Path(folder)), identity)
        try:
            run_coroutine(trial.run())
        except FlyballError as error:
            trial.find(error.message, error.hint)
        return trial.findings


def _faults_of_description(info: GameInfo, config: GameConfig) -> list[Finding]:
    faults = []
    if info.players != config.players:
        faults.append((f"players is {info.players}; {config.key} has {config.players}.", "Return the game's own."))
    if RANDOM not in info.bots:
        faults.append(("bots lack 'random', on which ratings are anchored.", "Let the match job play it, and name it."))
    if unknown := sorted(set(info.knobs) - set(PARAMETERS)):
        faults.append((f"There is no knob {unknown[0]!r}.", f"Choose among {', '.join(PARAMETERS)}."))
    return [Finding("describe", what, hint) for what, hint in faults]


class _Trial:
    """A run in memory that closes one loop."""

    def __init__(self, settings: RunSettings, info: GameInfo, store: FileStore, identity: WorkerIdentity) -> None:
        (self.config,) = settings.configs
        self.info, self.store, self.engine = info, store, InlineEngine()
        self.findings: list[Finding] = []
        self.where = ""
        self.recorded = 0
        self.fold = Fold(tuple(partial(worker, identity=identity) for worker in WORKERS))
        self.feed(RunConfigured(run_id="check", settings=settings.model_dump(mode="json")), subject=None)

    def find(self, what: str, hint: str) -> None:
        """Add a finding about the job that was run last."""
        self.findings.append(Finding(self.where, what, hint))

    async def run(self) -> None:
        """Run each job. Raises ``FlyballError`` where those after it cannot run."""
        try:
            first = await self.initialise()
            played = await self.play(first)
            await self.inspect()
            trained = await self.train(first, played)
            await self.match(first, trained)
            await self.distribute(first, trained)
        finally:
            await self.engine.close()

    async def initialise(self) -> TrainingCompleted:
        """Make the first model."""
        self.feed(self.training(None, ()))
        _, made = await self.run_job("initialise", Trainer, TrainingCompleted)
        if (made.parent, made.step, made.metrics) != (None, 0, None):
            self.find("It returned a parent, a step or metrics.", "Return parent None, step 0 and metrics None.")
        self.check_model(made.model)
        return made

    async def play(self, first: TrainingCompleted) -> SelfplayComplete:
        """Play games of the first model. Some of them are against the random bot."""
        others = Lineup(opponents=(RANDOM,) * (self.config.players - 1), games=PLAYED_GAMES // 2)
        knobs: dict[str, Any] = {"games": PLAYED_GAMES, "temperature": self.config.selfplay.temperature, "seed": SEED}
        self.feed(SelfplayRequested(worker=WORKER_NAME, model=first.model, lineups=(others,), probe=False, **knobs))
        job, played = await self.run_job("play", SelfplayWorker, SelfplayComplete)
        shard = played.shard
        if shard.games != PLAYED_GAMES:
            self.find(f"It played {shard.games} games, not {PLAYED_GAMES}.", "Play as many as the spec's games.")
        if not self.store.has(shard.key):
            raise BrokenContract(
                f"Its shard {shard.key} is not in the store.", hint="Put it with flyball.app.store.put_shard."
            )
        with suppress(DamagedBlob):  # a format of its own
            if (rules := get_shard(self.store, shard.key).meta.rules_version) != self.info.rules_version:
                hint = "Both name the same rules: shards of other rules are refused."
                self.find(f"Its shard is of rules {rules}; describe says {self.info.rules_version}.", hint)
        await self.check_changes(job, "shard", {"seed": SEED + 1}, "Another seed gave the same shard.", DETERMINISM)
        await self.check_knob(job, "shard", "base_temperature", "temperature", 2 * self.config.selfplay.temperature)
        return played

    async def inspect(self) -> None:
        """Inspect the shard."""
        _, verdict = await self.run_job("inspect", QualityMonitor, Payload)
        if isinstance(verdict, QualityDegraded):
            self.find(f"It refuses the backend's own shard: {verdict.reason}", "Play by the rules that it checks.")

    async def train(self, first: TrainingCompleted, played: SelfplayComplete) -> TrainingCompleted:
        """Train the first model on the shard."""
        self.feed(self.training(first.model, (played.shard,)))
        job, trained = await self.run_job("train", Trainer, TrainingCompleted)
        if (trained.parent, trained.step) != (first.model, 1):
            self.find("Its parent is not the base model, or its step not one higher.", "Use Manifest.successor.")
        if trained.metrics is None:
            self.find("It returned no metrics.", "Return a mapping of names to finite figures; it may be empty.")
        self.check_model(trained.model)
        await self.check_knob(job, "model", "learning_rate", "learning_rate", self.config.learning_rate / 2)
        await self.check_knob(job, "model", "epochs", "epochs", self.config.epochs + 1)
        return trained

    async def match(self, first: TrainingCompleted, trained: TrainingCompleted) -> None:
        """Let the new model play the first one and the built-in players."""
        bots = tuple(bot for bot in (RANDOM, HEURISTIC) if bot in self.info.bots)
        opponents = bots if first.model == trained.model else (first.model, *bots)
        options: dict[str, Any] = {"purpose": "retest", "games": MATCH_GAMES, "opponents": opponents}
        self.feed(MatchesRequested(model=trained.model, step=1, seed=SEED, **options))
        await self.run_job("match", Evaluator, Payload)

    async def distribute(self, first: TrainingCompleted, trained: TrainingCompleted) -> None:
        """Distribute the new model, and delete the first one."""
        figures: dict[str, Any] = {"statistic": "check", "value": 0.0, "threshold": 0.0, "games": 1}
        evidence = Evidence(evaluation_id=derive_id("check"), elo=Elo(0.0), elo_stderr=1.0, **figures)
        model, elo = trained.model, Elo(0.0)
        self.feed(ModelPromoted(model=model, previous=None, step=trained.step, elo=elo, evidence=evidence))
        job, _ = await self.run_job("distribute", Distributor, ModelDistributed)
        if first.model == model:
            return
        await self.result(job, {**job.parts[0], "discard": [first.model]})
        if self.store.has(first.model) or not self.store.has(model):
            self.find("It deletes other models than those in discard.", "Delete them, and nothing else.")

    def training(self, base: ModelHash | None, shards: tuple[Any, ...]) -> TrainingRequested:
        """Return the request for a training."""
        knobs: dict[str, Any] = {"learning_rate": self.config.learning_rate, "epochs": self.config.epochs}
        return TrainingRequested(base_model=base, shards=shards, step=0, seed=SEED, **knobs)

    def feed(self, data: Payload, subject: str | None = "") -> None:
        """Record an event about the configuration. With ``subject`` None, the event is about the run."""
        self.recorded += 1
        time = EPOCH + timedelta(seconds=self.recorded)
        key = self.config.key if subject == "" else subject
        envelope = originate(data, event_id=derive_id("check", self.recorded), time=time, subject=key)
        failures = self.fold.feed([Event(envelope, self.recorded, self.recorded * SECOND_US, "broker@check")]).failures
        assert not failures, failures

    async def run_job(self, where: str, kind: type[Worker[Any]], answer: type[P]) -> tuple[Job[Any], P]:
        """Run a worker's waiting job twice, and record its facts; return it and its last fact of type ``answer``."""
        self.where = where
        (worker,) = (reducer for reducer in self.fold.reducers if isinstance(reducer, kind))
        waiting = {key: row for key, row in self.fold.rows(worker.name).items() if row.cause}
        (job,) = worker.jobs(waiting, self.fold.states)
        reports: list[JsonObject] = []
        results = [await self.result(job, part, reports) for part in job.parts]
        if _timeless(results) != _timeless([await self.result(job, part) for part in job.parts]):
            self.find("The same spec gave two results.", DETERMINISM)
        try:
            for report in reports:
                facts_of(worker.progressed, job, report)
            facts = facts_of(worker.finished, job, results, 0.0)
        except UnusableResult as error:
            raise BrokenContract(
                error.message, hint="See flyball.app.job_specs for the results and reports."
            ) from error
        for fact in facts:
            self.feed(fact)
        return job, [fact for fact in facts if isinstance(fact, answer)][-1]

    async def result(self, job: Job[Any], spec: JsonObject, reports: list[JsonObject] | None = None) -> JsonObject:
        """Run a job's function. Raises ``FlyballError``."""
        return await self.engine.run(
            job.function, spec, None if reports is None else reports.append, job.deadline_seconds
        )

    async def check_changes(self, job: Job[Any], name: str, changes: JsonObject, what: str, hint: str) -> None:
        """Add a finding if changes of the spec do not change the result's value ``name``."""
        before, after = [(await self.result(job, spec))[name] for spec in (job.parts[0], job.parts[0] | changes)]
        if before == after:
            self.find(what, hint)

    async def check_knob(self, job: Job[Any], name: str, knob: str, key: str, value: float) -> None:
        """Add a finding if a knob changes nothing. Only knobs that the feedback may change are checked."""
        if knob in self.config.knobs:
            what = f"{knob} changes nothing, and is among the knobs."
            hint = f"Use the spec's {key}, or leave the knob out in describe or in games.{self.config.key}.knobs."
            await self.check_changes(job, name, {key: value}, what, hint)

    def check_model(self, model: ModelHash) -> None:
        """Check that a model of this backend is in the store.

        Raises ``BrokenContract`` if the model is missing or damaged. A manifest of another backend or configuration is
        a finding.
        """
        try:
            manifest = get_checkpoint(self.store, model).manifest
        except (MissingBlob, DamagedBlob) as error:
            raise BrokenContract(error.message, hint="Put it with flyball.app.store.put_checkpoint.") from error
        if (manifest.backend, manifest.config_key) != (self.config.backend, self.config.key):
            self.find(
                f"The model's manifest names backend {manifest.backend} and configuration {manifest.config_key}.",
                f"Write backend = {self.config.backend!r} and the spec's configuration into it.",
            )


def _timeless(result: Any) -> Any:
    """Return a result without the durations in it."""
    match result:
        case Mapping():
            return {name: _timeless(value) for name, value in result.items() if name != "seconds"}
        case list():
            return [_timeless(value) for value in result]
    return result
