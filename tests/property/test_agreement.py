"""Scheduler and trigger must agree on what a training needs, and everybody on which model is current.

Where they don't, a configuration waits for ever, or refuses all that it learns.
"""

from typing import Any

from driving import (
    KEY,
    NEED,
    NEW,
    OLD,
    Driven,
    DrivenWorker,
    distributed,
    played,
    promoted,
    run_settings,
    scored,
    trained,
)
from hypothesis import given
from hypothesis import strategies as st
from leagues import model as model_of

from app.controllers import (
    REMEMBERED,
    LeagueKeeper,
    ModelLifecycleCoordinator,
    ModelPerformanceWatchdog,
    SelfplayScheduler,
    TrainingTrigger,
)
from app.controllers.scheduler import CONFIG
from app.events import (
    AdaptiveParamsChanged,
    ClockTick,
    DaemonReady,
    EvaluationFailed,
    HyperparameterUpdated,
    ModelPromoted,
    ModelRolledBack,
    NodeQuarantined,
    Payload,
    QualityScoreUpdated,
    RegressionDetected,
    SelfplayRequested,
    TrainingBlockedByQuality,
    TrainingFailed,
    TrainingIntensityChanged,
    TrainingRequested,
    TrainingUnblocked,
)
from daemons.distribution import Distributor
from daemons.evaluation import Evaluator
from daemons.quality_monitor import QualityMonitor

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
FACTS: st.SearchStrategy[Payload] = st.one_of(
    st.sampled_from([distributed(OLD), distributed(NEW, 1), trained(NEW), scored(0.2), scored(0.9, model=NEW)]),
    st.integers(1, NEED).map(lambda rows: scored(0.9, rows=rows)),
)
FAILS = TrainingFailed(request_id="the training that is under way", reason="error", error="no")

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
    ),
)
"""What makes a model current: operators' decisions, however wild, and what the coordinator rolls back at."""


@given(payloads=st.lists(DECISIONS | FACTS | st.sampled_from([FAILS, ClockTick(period_seconds=10)]), max_size=30))
def test_they_agree_on_needs_whatever_comes_first(payloads):
    """Also where the first training fails, and is asked for again by a tick."""
    scheduler, trigger = Driven(SelfplayScheduler), Driven(TrainingTrigger)
    for number, payload in enumerate(payloads, start=1):
        known = payload.replace(request_id=trigger.row().request or "x") if payload is FAILS else payload
        for driven in (scheduler, trigger):
            driven.feed(known, at=20.0 * number)
    told = scheduler.fold.rows(SelfplayScheduler.name).get(CONFIG + KEY)
    assert (told.config.needs if told else Needs()) == trigger.row().needs
    assert (told.config.blocked if told else False) == trigger.row().blocked


@given(decisions=st.lists(DECISIONS, max_size=10), rows=st.integers(NEED // 8, NEED))
def test_whatever_was_decided_the_loop_closes(decisions, rows):
    """Play what the scheduler asks for until the trigger trains, with time passing and blocks and pauses lifted."""
    scheduler, trigger = Driven(SelfplayScheduler, run_settings()), Driven(TrainingTrigger, run_settings())
    lifted = [
        TrainingUnblocked(reason="x"),
        TrainingIntensityChanged(intensity="reduced", previous="paused", quality_score=0.5),
        HyperparameterUpdated(parameter="quality_threshold", value=0.3, previous=0.5, reason="x"),
    ]
    ready = DaemonReady(daemon="selfplay_worker", node="laptop", position=0, capacity=1)
    asked: list[Any] = scheduler.envelopes(ready, key=None)
    for payload in (*decisions, *lifted, distributed()):
        asked += scheduler.envelopes(payload)
        assert not trigger.feed(payload)
    at = 0.0
    while True:
        at += 61
        assert at < 61 * 2000, "no training, however much was played"
        asked += scheduler.envelopes(ready, ClockTick(period_seconds=10), key=None, at=at)
        if not asked:
            continue
        answer = scored(0.9, rows=rows, request=asked.pop(0).id)
        asked += scheduler.envelopes(answer, at=at)
        if trigger.feed(answer, at=at):
            break


def test_rows_of_quarantined_stranger_are_asked_for_again():
    """The trigger drops the rows of any worker, also of one of which the scheduler has never heard."""
    scheduler = Driven(SelfplayScheduler)
    scheduler.feed(DaemonReady(daemon="selfplay_worker", node="laptop", position=0, capacity=1), key=None)
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
def test_a_failed_evaluation_makes_the_scheduler_forget_rows_exactly_when_the_trigger_is_free_again(
    rows, phase, purpose, model
):
    """Else it has games played for nothing, or none at all: ``OLD`` is current, and ``NEW`` a candidate or nobody."""
    scheduler, trigger = Driven(SelfplayScheduler), Driven(TrainingTrigger)

    def feed(*payloads: Payload) -> None:
        for driven in (scheduler, trigger):
            driven.feed(*payloads)

    feed(distributed(OLD))
    if phase != "playing":
        feed(scored(0.9, rows=NEED))
    if phase == "judging":
        feed(trained(NEW).replace(request_id=trigger.row().request))
    feed(scored(0.9, rows=rows, shard="d" * 64))
    counted = scheduler.row(CONFIG + KEY).config.shards
    waited = trigger.row().candidate is not None
    feed(EvaluationFailed(request_id="e", purpose=purpose, model=model, error="no"))
    freed = waited and trigger.row().candidate is None
    assert scheduler.row(CONFIG + KEY).config.shards == (() if freed else counted)


@given(learned=st.integers(1, 2 * REMEMBERED), payloads=st.lists(CURRENT, max_size=20), late=st.integers(0, 2))
def test_they_agree_on_the_current_model_whoever_decided(learned, payloads, late):
    """Also while a rollback that was decided is not recorded yet, and an operator's decision is before it is."""
    coordinator, watchdog, keeper = map(Driven, (ModelLifecycleCoordinator, ModelPerformanceWatchdog, LeagueKeeper))
    trigger, scheduler = Driven(TrainingTrigger), Driven(SelfplayScheduler)
    evaluator, distributor = DrivenWorker(Evaluator), DrivenWorker(Distributor)
    due: list[list[Payload]] = []

    def record(payload: Payload) -> list[Payload]:
        for follower in (watchdog, keeper, trigger, scheduler, evaluator, distributor):
            follower.feed(payload)
        return [one for one in coordinator.feed(payload) if isinstance(one, ModelPromoted | ModelRolledBack)]

    for payload in [*map(promoted, map(model_of, range(learned))), *payloads]:
        due.append(record(payload))
        for decided in due.pop(0) if len(due) > late else ():
            record(decided)
    for decided in due:
        for one in decided:
            record(one)
    (job,) = distributor.jobs()
    current = job.parts[0]["model"]
    record(distributed(current))
    assert coordinator.row().current.model == current
    assert watchdog.row().current == keeper.row().league.champion == current
    assert evaluator.rows[KEY].promoted[-1].model == current
    assert trigger.row().model == coordinator.state().current_model == current
    assert scheduler.fold.rows(SelfplayScheduler.name)[CONFIG + KEY].config.model == current
    assert current not in job.parts[0]["discard"]
    if not late:
        assert [one.model for one in evaluator.rows[KEY].promoted] == [one.model for one in coordinator.row().promoted]


@given(payloads=st.lists(DECISIONS | FACTS, max_size=60), late=st.integers(0, 2))
def test_the_quality_monitor_keeps_what_the_trigger_may_ask_for(payloads, late):
    """Also while a request that was decided for is not recorded yet, and other shards are inspected before it is."""
    trigger, monitor = Driven(TrainingTrigger), DrivenWorker(QualityMonitor)
    trigger.feed(distributed())
    due: list[list[TrainingRequested]] = []
    deleted: set[str] = set()
    for number, payload in enumerate([*payloads, *[distributed()] * late]):
        shown = payload
        if isinstance(payload, QualityScoreUpdated):
            shard = payload.shard.replace(key=f"{number:064x}")
            shown = payload.replace(shard=shard)
            monitor.feed(played(number, shard=shard.key, model=shard.model))
            deleted |= {*monitor.rows[f"r{number}"].discard}
        decided = trigger.feed(shown)
        while trigger.row().request:
            decided += trigger.feed(TrainingFailed(request_id=trigger.row().request, reason="error", error="no"))
        due.append(decided)
        monitor.feed(shown)
        for request in due.pop(0) if len(due) > late else ():
            gone = {*monitor.rows[KEY].shelf.spent, *deleted}
            assert gone.isdisjoint(shard.key for shard in request.shards)
            monitor.feed(request)
