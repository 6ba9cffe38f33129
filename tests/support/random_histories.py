"""Random histories: runs of the real controllers with random facts.

Events drawn independently hardly ever fit together: nobody plays, so nothing is trained, promoted or rolled back. So
the controllers decide while a history is drawn, and most of its facts are answers to their requests. The other facts
are any payloads, about the few models and workers that the answers are about.
"""

from collections.abc import Callable, Collection
from typing import Any

from driving import distributed, folded, gated, match, played, rated, scored, trained
from event_strategies import of_model
from hashes import sha
from hypothesis import strategies as st

from flyball.app.config import GAMES, FeedbackSettings, RunSettings
from flyball.app.config.feedback import CurriculumSettings, LifecycleSettings, NodeSettings, StallSettings
from flyball.app.controllers import state_of
from flyball.app.controllers.fold import Fold
from flyball.app.core import HEURISTIC, RANDOM
from flyball.app.events import (
    ClockTick,
    DaemonReady,
    EvaluationFailed,
    EvaluationRequested,
    Event,
    HyperparameterUpdated,
    MatchesRequested,
    ModelPromoted,
    ModelRolledBack,
    NodeProbed,
    ParityChecked,
    Payload,
    QualityDegraded,
    RunConfigured,
    Scope,
    SelfplayComplete,
    SelfplayFailed,
    SelfplayRequested,
    ShardRef,
    TrainingFailed,
    TrainingRequested,
    originate,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.replay.replaying import controllers

CONFIGS = (GAMES["tic_tac_toe_2p"], GAMES["connect_four_2p"])
FEEDBACK = FeedbackSettings(
    stall=StallSettings(check_seconds=600, window_hours=0.5),
    curriculum=CurriculumSettings(rebalance_seconds=1.0, min_change=0.0),
    lifecycle=LifecycleSettings(evaluation_share=1.0),
    nodes=NodeSettings(failures=2, bad_shards=2, good_probes=2),
)
"""Minutes without a tick are no time in which the run was off, weights change often, and nodes come and go."""
SETTINGS = RunSettings(configs=CONFIGS, feedback=FEEDBACK)
CONFIGURED = RunConfigured(run_id="run", settings=SETTINGS.model_dump(mode="json"))
KEYS = st.sampled_from([config.key for config in CONFIGS])
MODELS = st.sampled_from([sha("model-0"), sha("model-1"), sha("model-2")])
FEW = {
    "model": MODELS,
    "base_model": MODELS,
    "current": MODELS,
    "from_model": MODELS,
    "to_model": MODELS,
    "last_good": MODELS,
    "request_id": st.sampled_from(["event-0", "event-1", "event-2", "event-3"]),
    "daemon": st.sampled_from(["selfplay_worker", "training"]),
    "node": st.sampled_from(["laptop", "other"]),
    "capacity": st.integers(0, 2),
    "rate_multiplier": st.sampled_from([0.25, 0.5, 1.0]),
}
SET_BY_HAND = {
    "learning_rate": (1e-5, 1e-3),
    "epochs": (3.0, 6.0),
    "games_per_iteration": (256.0, 512.0),
    "quality_threshold": (0.3, 0.5),
    "base_temperature": (0.6, 1.0),
}
LAST_STEP = 10**12
"""The highest step that events may name."""

SECONDS = st.sampled_from([1, 30, 100, 700, 7500])
LATENCY_US = 1000
"""Microseconds from an event to the events that follow from it."""

TICK = ClockTick(period_seconds=10)
READY = DaemonReady(daemon="selfplay_worker", node="laptop", position=0, capacity=1)
NOW = ("answer", "answer", "answer", "answer", "tick", "anything")


@st.composite
def payloads(draw: st.DrawFn, payload: type[Payload]) -> Payload:
    """Draw a payload of one type. Its models, requests and workers come from small sets."""
    data = draw(of_model(payload))
    update: dict[str, Any] = {name: draw(few) for name, few in FEW.items() if name in payload.model_fields}
    if isinstance(shard := getattr(data, "shard", None), ShardRef):
        update["shard"] = shard.replace(model=draw(MODELS), rows=draw(st.integers(1, 20_000)))
    if isinstance(data, HyperparameterUpdated):
        update["value"] = draw(st.sampled_from(SET_BY_HAND[data.parameter]))
    return data.replace(**update)


Answer = Callable[[st.DrawFn, "Story", Event[Any]], list[Payload]]


def _train(draw: st.DrawFn, _: "Story", event: Event[TrainingRequested]) -> list[Payload]:
    base, step = event.data.base_model, event.data.step
    if draw(st.integers(0, 9)) == 9:
        return [TrainingFailed(request_id=event.id, reason=draw(st.sampled_from(["diverged", "error"])), error="no")]
    if step == LAST_STEP:
        return [TrainingFailed(request_id=event.id, reason="bad_data", error="There is no such model.")]
    done = trained(sha(f"model-{event.sequence}") if base else sha("model-0"), base, step + 1 if base else 0)
    return [done.replace(request_id=event.id)]


def _evaluate(draw: st.DrawFn, story: "Story", event: Event[EvaluationRequested]) -> list[Payload]:
    about = event.data
    if draw(st.integers(0, 9)) == 9:
        return [EvaluationFailed(request_id=event.id, purpose=about.purpose, model=about.model, error="no")]
    if about.purpose == "gate":
        wins = draw(st.sampled_from([80, 80, 80, 50, 20]))
        done = gated(wins, 0, 100 - wins, about.model, story.current(event.subject))
    else:
        scores = st.sampled_from([0.95, 0.9, 0.85, 0.4])
        matches = (match(draw(scores), 200), match(draw(scores), opponent="heuristic"))
        done = rated(draw(st.sampled_from([-200.0, 0.0, 200.0])), *matches, model=about.model, step=about.step)
    return [done.replace(request_id=event.id)]


def _match(draw: st.DrawFn, _: "Story", event: Event[MatchesRequested]) -> list[Payload]:
    about = event.data
    if draw(st.integers(0, 9)) == 9:
        return [EvaluationFailed(request_id=event.id, purpose=about.purpose, model=about.model, error="no")]
    named = ((name, None if name in (HEURISTIC, RANDOM) else name) for name in about.opponents)
    scores = st.sampled_from([0.9, 0.6, 0.3])
    matches = [match(draw(scores), about.games, opponent=name, model=model) for name, model in named]
    done = rated(0.0, *matches, model=about.model, step=about.step)
    return [done.replace(request_id=event.id, purpose=about.purpose)]


def _play(draw: st.DrawFn, _: "Story", event: Event[SelfplayRequested]) -> list[Payload]:
    about = event.data
    if draw(st.integers(0, 9)) == 9:
        return [SelfplayFailed(request_id=event.id, worker=about.worker, error="no")]
    rows = draw(st.sampled_from([3000, 10_000, 20_000]))
    shard = ShardRef(
        worker=about.worker,
        key=sha(f"shard-{event.sequence}"),
        rows=rows,
        games=about.games,
        model=about.model,
        seed=about.seed,
    )
    return [played().replace(request_id=event.id, probe=about.probe, shard=shard)]


def _inspect(draw: st.DrawFn, _: "Story", event: Event[SelfplayComplete]) -> list[Payload]:
    about, shard, probe = event.data.request_id, event.data.shard, event.data.probe
    found, score = draw(st.integers(0, 9)), draw(st.sampled_from([0.9, 0.9, 0.9, 0.6, 0.1]))
    named = {"request_id": about, "worker": shard.worker, "shard": shard.key}
    if probe:
        return [NodeProbed(**named, score=None if found > 7 else score, error="no" if found > 7 else None)]
    if found == 9:
        return [QualityDegraded(**named, reason="no")]
    parity = ParityChecked(**named, against=None, checked=16, failures=found // 8)
    judged = scored(score, model=shard.model, rows=shard.rows, request=about, shard=shard.key)
    return [parity, judged.replace(shard=judged.shard.replace(worker=shard.worker))]


def _distribute(_: st.DrawFn, __: "Story", event: Event[Any]) -> list[Payload]:
    decided = event.data
    return [distributed(decided.to_model if isinstance(decided, ModelRolledBack) else decided.model, decided.step)]


ANSWERS: dict[type[Payload], Answer] = {
    TrainingRequested: _train,
    EvaluationRequested: _evaluate,
    MatchesRequested: _match,
    SelfplayRequested: _play,
    SelfplayComplete: _inspect,
    ModelPromoted: _distribute,
    ModelRolledBack: _distribute,
}


class Story:
    """A run while it is drawn.

    The controllers' events are recorded at once.

    Attributes:
        events: all recorded events.
        said: events that do not come from the controllers.
        concluded: events from the controllers.
        open: requests without an answer so far.
    """

    def __init__(self) -> None:
        self.events: list[Event[Payload]] = []
        self.said: list[Event[Payload]] = []
        self.concluded: list[Event[Payload]] = []
        self.open: list[Event[Payload]] = []
        self._fold, self._now_us = Fold(controllers()), 0
        self.record(CONFIGURED, None, 1)
        self.record(READY, None, 1)

    def current(self, key: str) -> str:
        """Return a configuration's current model. Before there is one, returns the model that begins."""
        return state_of(self._fold.states, key).current_model or sha("model-0")

    def record(self, data: Payload, key: str | None, seconds: float) -> None:
        """Record a payload ``seconds`` later, and the events that follow from it."""
        self._now_us += round(seconds * 1e6)
        waiting = [originate(data, event_id=f"event-{len(self.said)}", time=EPOCH, subject=key)]
        while waiting:
            envelope, self._now_us = waiting.pop(0), self._now_us + LATENCY_US
            event = Event(envelope, len(self.events) + 1, self._now_us, "broker@laptop")
            self.events.append(event)
            (self.concluded if envelope.causationid else self.said).append(event)
            if type(envelope.data) in ANSWERS:
                self.open.append(event)
            waiting += folded(self._fold, event).envelopes


@st.composite
def stories(draw: st.DrawFn, types: Collection[type[Payload]] = (), max_size: int = 40) -> Story:
    """Draw a run of at most ``max_size`` steps.

    A step is an answer to a request, a tick, or any payload of ``types``. The controllers' events do not count.

    Args:
        draw: of Hypothesis.
        types: of payloads that are drawn independently.
        max_size: the largest number of steps.
    """
    kinds = sorted(set(types) - {RunConfigured}, key=lambda payload: payload.event_type)
    story = Story()
    for _ in range(draw(st.integers(0, max_size))):
        now, seconds = draw(st.sampled_from(NOW)), draw(SECONDS)
        if now == "answer" and story.open:
            event = story.open.pop(draw(st.integers(0, len(story.open) - 1)))
            for data in ANSWERS[type(event.data)](draw, story, event):
                story.record(data, event.subject, seconds)
        elif now == "anything" and kinds:
            data = draw(st.sampled_from(kinds).flatmap(payloads))
            story.record(data, draw(KEYS) if data.scope is Scope.CONFIG else None, seconds)
        else:
            story.record(READY, None, seconds)
            story.record(TICK, None, 1)
    return story


@st.composite
def histories(draw: st.DrawFn, types: Collection[type[Payload]], max_size: int = 40) -> list[Event[Payload]]:
    """Draw the events of a run that readers of these types see. They form a journal without gaps."""
    read = {RunConfigured, *types}
    seen = [event for event in draw(stories(types, max_size)).events if type(event.data) in read]
    return [Event(event.envelope, number, event.recorded_us, event.source) for number, event in enumerate(seen, 1)]
