"""Reducers hosted apart agree on counted rows, current model and kept shards.

Where they disagree, a configuration waits for ever, or refuses all that it learns.
"""

from collections import deque
from datetime import timedelta
from functools import partial
from typing import Any

from driving import (
    KEY,
    NEED,
    NEW,
    OLD,
    Driven,
    distributed,
    folded,
    played,
    promoted,
    run_settings,
    scored,
    settled,
    trained,
)
from hypothesis import given
from hypothesis import strategies as st
from leagues import model as model_of

from flyball.app.controllers import (
    REMEMBERED,
    Controller,
    FeedbackState,
    ModelLifecycleCoordinator,
    ModelPerformanceWatchdog,
    SelfplayScheduler,
    TrainingTrigger,
    state_of,
)
from flyball.app.controllers.fold import Fold
from flyball.app.controllers.league_keeper import LeagueKeeper
from flyball.app.controllers.scheduler import CONFIG
from flyball.app.core import derive_id
from flyball.app.events import (
    AdaptiveParamsChanged,
    ClockTick,
    DaemonReady,
    Envelope,
    EvaluationFailed,
    Event,
    Evidence,
    HyperparameterUpdated,
    ModelRolledBack,
    NodeQuarantined,
    Payload,
    PromotionRejected,
    QualityScoreUpdated,
    RegressionDetected,
    RunConfigured,
    SelfplayComplete,
    SelfplayRequested,
    TrainingBlockedByQuality,
    TrainingFailed,
    TrainingIntensityChanged,
    TrainingRequested,
    TrainingUnblocked,
    originate,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.job_specs import JobContext
from flyball.daemons.distribution import Distributor
from flyball.daemons.evaluation import Evaluator
from flyball.daemons.jobs import Job, Worker, WorkerIdentity
from flyball.daemons.quality_monitor import QualityMonitor

READY = DaemonReady(daemon="selfplay_worker", node="laptop", position=0, capacity=1)
TICK = ClockTick(period_seconds=10)


class Apart:
    """Reducers that are hosted apart and given the same events.

    They are hosted as in daemons of their own.

    Args:
        reducers: controllers, and workers that are controllers.
        late: the number of events that are recorded between a decision's cause and its record.
    """

    def __init__(self, *reducers: type[Controller], late: int = 0) -> None:
        identity = WorkerIdentity("x@laptop", "laptop", JobContext(store="store"))
        self.folds = {
            one: Fold((partial(one, identity=identity) if issubclass(one, Worker) else one,))  # type: ignore[arg-type]
            for one in reducers
        }
        self.events: list[Event[Payload]] = []
        self._late, self._now = late, 0.0
        self._due: deque[list[Envelope[Payload]]] = deque()
        self.feed(RunConfigured(run_id="run", settings=run_settings().model_dump(mode="json")))

    def feed(self, *payloads: Payload, at: float | None = None) -> list[Envelope[Any]]:
        """Record payloads and due decisions; return the decisions that follow."""
        self._now, found = self._now if at is None else at, list[Envelope[Any]]()
        for data in payloads:
            time, subject = EPOCH + timedelta(seconds=self._now), KEY if data.scope == "config" else None
            event_id = derive_id("test", len(self.events))
            found += self.record(originate(data, event_id=event_id, time=time, subject=subject))
            while len(self._due) > self._late:
                found += self._record_next()
        return found

    def flush(self) -> list[Envelope[Any]]:
        """Record all pending decisions, and those that follow; return the latter."""
        found = list[Envelope[Any]]()
        while self._due:
            found += self._record_next()
        return found

    def settle(self) -> list[Envelope[Any]]:
        """Distribute a new current model; return the decisions that follow. Nothing is under way then."""
        found = self.flush()
        return found + self.feed(*settled(self.state(next(iter(self.folds))).lineage))

    def record(self, envelope: Envelope[Payload]) -> list[Envelope[Any]]:
        """Record an event; return the decisions that follow."""
        event = Event(envelope, len(self.events) + 1, round(self._now * 1e6), "broker@laptop")
        self.events.append(event)
        self._due.append([decided for fold in self.folds.values() for decided in folded(fold, event).envelopes])
        return self._due[-1]

    def _record_next(self) -> list[Envelope[Any]]:
        return [decided for envelope in self._due.popleft() for decided in self.record(envelope)]

    def state(self, reducer: type[Controller]) -> FeedbackState:
        """Return the configuration's state in the fold of a reducer."""
        return state_of(self.folds[reducer].states, KEY)

    def row(self, reducer: type[Controller], key: str = KEY) -> Any:
        """Return a row of a reducer."""
        return self.folds[reducer].rows(reducer.name).get(key)

    def jobs(self, worker: type[Controller]) -> list[Job[Any]]:
        """Return the jobs that a worker should run now. Rows without a cause are left out, as the host does."""
        fold = self.folds[worker]
        hosted: Any = fold.reducers[-1]
        return list(hosted.jobs({key: row for key, row in fold.rows(worker.name).items() if row.cause}, fold.states))


DECISIONS: st.SearchStrategy[Payload] = st.one_of(
    st.builds(
        AdaptiveParamsChanged,
        epochs=st.integers(1, 8),
        games_per_iteration=st.integers(100, 1000),
        learning_rate=st.floats(1e-6, 1e-3),
        reason=st.just("x"),
    ),
    st.builds(
        HyperparameterUpdated,
        parameter=st.sampled_from(["quality_threshold", "base_temperature"]),
        value=st.floats(0.1, 0.9),
        previous=st.just(0.5),
        reason=st.just("x"),
    ),
    st.builds(
        TrainingIntensityChanged,
        intensity=st.sampled_from(["paused", "reduced", "normal", "accelerated", "hot_path"]),
        previous=st.just("normal"),
        quality_score=st.just(0.5),
    ),
    st.sampled_from([TrainingBlockedByQuality(reason="x"), TrainingUnblocked(reason="x")]),
)
EVIDENCE = Evidence(evaluation_id="e", statistic="x", value=0, threshold=0, games=1, elo=0, elo_stderr=1)
REJECTED = PromotionRejected(model=NEW, current=OLD, step=1, evidence=EVIDENCE)
UNRATED = EvaluationFailed(request_id="e", purpose="rating", model=NEW, error="no")
FACTS: st.SearchStrategy[Payload] = st.one_of(
    st.sampled_from([promoted(OLD), promoted(NEW), distributed(OLD), distributed(NEW, 1), REJECTED, UNRATED]),
    st.sampled_from([trained(NEW), scored(0.2), scored(0.9, model=NEW)]),
    st.sampled_from([(NEW, OLD), (OLD, NEW)]).map(
        lambda models: ModelRolledBack(from_model=models[0], to_model=models[1], step=0, reason="x")
    ),
    st.integers(1, NEED).map(lambda rows: scored(0.9, rows=rows)),
)
ROWS = st.sampled_from([NEED // 8, NEED // 2, NEED]).map(lambda rows: scored(0.9, rows=rows))
FAILS, ENDS = "the training under way fails", "the training under way brings NEW"
QUARANTINED = NodeQuarantined(worker="selfplay_worker@laptop", lasts_seconds=60, reason="x")

MODELS = st.integers(0, 2 * REMEMBERED).map(model_of)
CURRENT: st.SearchStrategy[Payload] = st.one_of(
    MODELS.map(promoted),
    st.builds(ModelRolledBack, from_model=MODELS, to_model=MODELS, step=st.just(1), reason=st.just("by hand")),
    st.builds(
        RegressionDetected,
        model=MODELS,
        last_good=st.none() | MODELS,
        elo_drop=st.just(60.0),
        severity=st.just("severe"),
        games=st.just(100),
        opponent=st.just("random"),
    ),
)
"""Payloads that change the current model: any decisions of operators, and causes of rollbacks."""


def meant(run: Apart, payload: Payload | str, number: int) -> Payload:
    """Adapt a payload to the run.

    A score gets a shard of its own. A training's end or failure answers the training under way.
    """
    request = run.state(TrainingTrigger).lineage.training or "x"
    if payload == FAILS:
        return TrainingFailed(request_id=request, reason="error", error="no")
    if payload == ENDS:
        return trained(NEW).replace(request_id=request)
    assert isinstance(payload, Payload)
    if isinstance(payload, QualityScoreUpdated):
        return payload.replace(shard=payload.shard.replace(key=f"{number:064x}"))
    return payload


@given(
    begun=st.booleans(),
    payloads=st.lists(ROWS | ROWS | DECISIONS | FACTS | st.sampled_from([FAILS, ENDS, TICK, QUARANTINED]), min_size=10),
    late=st.integers(0, 2),
)
def test_scheduler_and_trigger_count_the_same_rows(begun, payloads, late):
    """Include failed first trainings and requests that are recorded late."""
    run = Apart(SelfplayScheduler, TrainingTrigger, late=late)
    if begun:
        run.settle()
    for number, payload in enumerate(payloads, start=1):
        run.feed(meant(run, payload, number), at=20.0 * number)
    run.flush()
    counted = run.row(SelfplayScheduler, CONFIG + KEY)
    assert (counted.config.shards if counted else ()) == run.row(TrainingTrigger).shards
    assert run.state(SelfplayScheduler) == run.state(TrainingTrigger)


@given(decisions=st.lists(DECISIONS, max_size=10), rows=st.integers(NEED // 8, NEED), late=st.integers(0, 2))
def test_whatever_was_decided_the_loop_closes(decisions, rows, late):
    """Play what the scheduler requests until the trigger trains."""
    run = Apart(SelfplayScheduler, TrainingTrigger, late=late)
    lifted = [
        TrainingUnblocked(reason="x"),
        TrainingIntensityChanged(intensity="reduced", previous="paused", quality_score=0.5),
        HyperparameterUpdated(parameter="quality_threshold", value=0.3, previous=0.5, reason="x"),
    ]
    asked = run.feed(READY, *decisions, *lifted) + run.settle()
    at = 0.0
    while not any(isinstance(request.data, TrainingRequested) for request in asked):
        at += 61
        assert at < 61 * 2000, "no training, however much was played"
        asked += run.feed(READY, TICK, at=at)
        if asked:
            asked += run.feed(scored(0.9, rows=rows, request=asked.pop(0).id), at=at)


def test_rows_of_quarantined_stranger_are_asked_for_again():
    """Quarantine a worker that the scheduler has never seen. The trigger drops the rows of any quarantined worker."""
    scheduler = Driven(SelfplayScheduler)
    scheduler.feed(READY, key=None)
    (asked,) = scheduler.envelopes(distributed())
    answer = scored(0.9, request=asked.id)
    strange = answer.shard.replace(worker="selfplay_worker@stranger")
    assert not scheduler.feed(answer.replace(shard=strange))
    quarantined = NodeQuarantined(worker="selfplay_worker@stranger", lasts_seconds=60, reason="x")
    assert any(isinstance(said, SelfplayRequested) for said in scheduler.feed(quarantined, key=None, at=1))


@given(
    rows=st.integers(1, 2 * NEED),
    phase=st.sampled_from(["playing", "training", "judging"]),
    purpose=st.sampled_from(["rating", "gate", "tournament"]),
    model=st.sampled_from([OLD, NEW]),
)
def test_unrated_candidate_brings_games_or_a_training(rows, phase, purpose, model):
    """Fail evaluations; only a candidate's failed rating has a consequence."""
    run = Apart(SelfplayScheduler, TrainingTrigger)
    run.feed(READY)
    (request,) = run.settle()
    if phase != "playing":
        (training,) = run.feed(scored(0.9, rows=NEED, request=request.id))
        assert isinstance(training.data, TrainingRequested)
        assert run.feed(scored(0.9, rows=rows, shard="d" * 64)) == []
    if phase == "judging":
        assert run.feed(trained(NEW).replace(request_id=training.id)) == []
    found = run.feed(EvaluationFailed(request_id="e", purpose=purpose, model=model, error="no"))
    freed = phase == "judging" and (purpose, model) == ("rating", NEW)
    expected = TrainingRequested if rows >= NEED else SelfplayRequested
    assert {type(one.data) for one in found} == ({expected} if freed else set())


@given(learned=st.integers(1, 2 * REMEMBERED), payloads=st.lists(CURRENT, max_size=20), late=st.integers(0, 2))
def test_all_agree_on_the_current_model(learned, payloads, late):
    """Include decisions that are recorded late."""
    controllers = ModelLifecycleCoordinator, ModelPerformanceWatchdog, LeagueKeeper, SelfplayScheduler, TrainingTrigger
    run = Apart(*controllers, Evaluator, Distributor, late=late)
    run.flush()  # the initial training is under way
    run.feed(READY, *map(promoted, map(model_of, range(learned))), *payloads)
    run.flush()
    (job,) = run.jobs(Distributor)
    current = job.parts[0]["model"]
    assert current not in job.parts[0]["discard"]
    found = run.feed(distributed(current))
    assert {one.data.model for one in found if isinstance(one.data, SelfplayRequested)} == {current}
    lineages = [run.state(reducer).lineage for reducer in run.folds]
    assert lineages == [lineages[0]] * len(run.folds)
    assert lineages[0].current_model == lineages[0].playing == run.row(LeagueKeeper).league.champion == current


class Inspected(Apart):
    """A trigger and a monitor, with a check of the monitor's deletions.

    A shard must not be deleted before a request for it is recorded.
    """

    def __init__(self, late: int) -> None:
        self.deleted = set[str]()
        super().__init__(TrainingTrigger, QualityMonitor, late=late)

    def record(self, envelope: Envelope[Payload]) -> list[Envelope[Any]]:
        """See ``Apart.record``."""
        data, config = envelope.data, self.row(QualityMonitor)
        if isinstance(data, TrainingRequested) and config:
            assert self.deleted.union(config.shelf.spent).isdisjoint(shard.key for shard in data.shards)
        decided = super().record(envelope)
        if isinstance(data, SelfplayComplete):
            self.deleted |= {*self.row(QualityMonitor, data.request_id).discard}
        return decided


@given(payloads=st.lists(ROWS | ROWS | DECISIONS | FACTS, min_size=10), late=st.integers(0, 4))
def test_monitor_keeps_shards_that_the_trigger_may_request(payloads, late):
    """Include training requests that are recorded late."""
    run = Inspected(late)
    run.settle()
    for number, payload in enumerate(payloads):
        shown = meant(run, payload, number)
        if isinstance(shown, AdaptiveParamsChanged):
            run.flush()
        if isinstance(shown, QualityScoreUpdated):
            run.feed(played(number, shard=shown.shard.key, model=shown.shard.model))
        run.feed(shown)
        if run.state(TrainingTrigger).lineage.training:
            run.feed(meant(run, FAILS, number))
    run.flush()
