"""A model that a rollback undid, or that an operator made current, moves no knob."""

from dataclasses import dataclass, field
from datetime import timedelta

from driving import KEY, folded, gated, match, promoted, run_settings
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from flyball.app.config import PARAMETERS
from flyball.app.controllers import (
    EvaluationFeedbackHandler,
    FeedbackLoopController,
    FeedbackState,
    GauntletFeedbackController,
)
from flyball.app.controllers.fold import Fold
from flyball.app.controllers.state import state_of
from flyball.app.core import derive_id
from flyball.app.events import (
    ClockTick,
    EvaluationCompleted,
    Event,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    PromotionRejected,
    RunConfigured,
    TrainingCompleted,
    TrainingRequested,
    originate,
)
from flyball.app.events.envelope import EPOCH

CONTROLLERS = (FeedbackLoopController, EvaluationFeedbackHandler, GauntletFeedbackController)
KNOBS = (
    *PARAMETERS,
    "exploration_boost",
    "elo_history",
    "elo_pools",
    "elo_velocity",
    "elo_peak",
    "consecutive_failures",
)
HOUR = 3600.0
SETTINGS = run_settings(stall={"check_seconds": 600})
"""Settings of a run that ticks every ten minutes."""
BAD = f"{10**9:064d}"


@dataclass
class Loop:
    """Controllers in one fold; their decisions are recorded at once. ``seconds`` is the worker time of each job."""

    fold: Fold = field(default_factory=lambda: Fold(CONTROLLERS))
    position: int = 0
    seconds: float = 1.0

    def feed(self, data: Payload, at: float, key: str | None = KEY) -> None:
        self.position += 1
        time = EPOCH + timedelta(seconds=at)
        envelope = originate(data, event_id=derive_id("test", self.position), time=time, subject=key)
        self._record(Event(envelope, self.position, round(at * 1e6), "broker@laptop"))

    def _record(self, event: Event[Payload]) -> None:
        for envelope in folded(self.fold, event).envelopes:
            self.position += 1
            self._record(Event(envelope, self.position, event.recorded_us, "feedback@laptop"))

    @property
    def state(self) -> FeedbackState:
        return state_of(self.fold.states, KEY)

    def train(self, model: str, parent: str | None, at: float) -> None:
        asked = TrainingRequested(base_model=parent or model, shards=(), step=9, seed=1, learning_rate=1e-3, epochs=3)
        self.feed(asked, at)
        self.feed(
            TrainingCompleted(
                request_id=self.state.lineage.training,
                model=model,
                parent=parent,
                step=9,
                rows=9,
                metrics=None,
                seconds=self.seconds,
            ),
            at,
        )

    def rate(self, model: str, elo: float, score: float, at: float) -> None:
        shown = gated(1, 0, 1, model=model)
        results = (match(score, 200), match(score, 200, "heuristic"))
        rated = {
            "purpose": "rating",
            "elo": elo,
            "elo_stderr": 15.0,
            "step": 9,
            "results": results,
            "seconds": self.seconds,
        }
        self.feed(EvaluationCompleted(**{**shown.__dict__, **rated}), at)

    def judge(self, model: str, current: str | None, at: float, *, good: bool) -> None:
        if good:
            self.feed(ModelPromoted(model=model, previous=current, step=9, elo=0.0, evidence=promoted().evidence), at)
        else:
            self.feed(PromotionRejected(model=model, current=current, step=9, evidence=promoted().evidence), at)


def run(ratings: list[tuple[float, float, bool]], incident: int | None, trained: int, *, by_gate: bool) -> Loop:
    """Train and rate models; perhaps a bad model becomes current in between, and is rolled back.

    Args:
        ratings: of each model its Elo, its score, and whether it is promoted.
        incident: number of the model after whose verdict the bad one becomes current.
        trained: number of models that are trained from it.
        by_gate: it was a candidate, and no operator's.
    """
    loop, current = Loop(), None
    loop.feed(RunConfigured(run_id="run", settings=SETTINGS.model_dump(mode="json")), 0.0, key=None)
    for number, (elo, score, good) in enumerate(ratings, 1):
        model, at = f"{number:064d}", number * HOUR
        for minutes in range(60, 0, -10):
            loop.feed(ClockTick(period_seconds=10), at - 60 * minutes, key=None)
        loop.train(model, current, at)
        loop.rate(model, elo, score, at)
        loop.judge(model, current, at, good=good or current is None)
        current = model if good or current is None else current
        if number == incident:
            loop.seconds = 0.0  # otherwise the same ratings would come after more work
            if by_gate:
                loop.train(BAD, current, at + 1)
                loop.rate(BAD, elo, score, at + 1)
            loop.judge(BAD, current, at + 2, good=True)
            if not by_gate:
                loop.rate(BAD, elo - 500.0, 0.1, at + 3)
            for child in range(trained):
                loop.train(f"{10**10 + child:064d}", BAD, at + 4)
                loop.rate(f"{10**10 + child:064d}", elo - 500.0, score, at + 4)
                loop.judge(f"{10**10 + child:064d}", BAD, at + 4, good=False)
            loop.feed(ModelRolledBack(from_model=BAD, to_model=current, step=9, reason="x"), at + 5)
            loop.rate(current, elo + 40.0, 0.99, at + 6)
            loop.seconds = 1.0
    return loop


def knobs(loop: Loop) -> dict[str, object]:
    return {name: getattr(loop.state, name) for name in KNOBS}


models = st.tuples(st.floats(-300, 600), st.floats(0.3, 0.95), st.booleans())
runs = st.lists(models, min_size=8, max_size=24)


@settings(deadline=None, max_examples=examples(30))
@given(runs, st.integers(1, 24))
def test_operators_model_rolled_back_leaves_every_knob(ratings, incident) -> None:
    ours = run(ratings, min(incident, len(ratings)), 0, by_gate=False)
    assert knobs(ours) == knobs(run(ratings, None, 0, by_gate=False))


@settings(deadline=None, max_examples=examples(30))
@given(runs, st.integers(1, 24), st.integers(0, 2), st.booleans())
def test_rollback_leaves_no_rating_that_it_undid(ratings, incident, trained, by_gate) -> None:
    """The 20 ratings kept hold the undone ones too, so that there are at most 17 others."""
    ratings = ratings[:17]
    ours = run(ratings, min(incident, len(ratings)), trained, by_gate=by_gate).state
    usual = run(ratings, None, 0, by_gate=by_gate).state
    assert ours.elo_history == usual.elo_history


def test_rollback_restores_the_learning_rate_before_it() -> None:
    """Ratings under a bad champion fall, and the rate with them."""
    rising = [(100.0 * number, 0.5, True) for number in range(8)]
    usual, falling = (run(rising, incident, 9, by_gate=True).state for incident in (None, 8))
    assert falling.learning_rate is not None
    assert falling.parameter("learning_rate", SETTINGS) == usual.parameter("learning_rate", SETTINGS)
