"""A candidate's phases: for any events, only transitions of the table happen, and all of them do."""

from typing import Any

import pytest
from builders import rejected, rolled_back, unrated
from driving import KEY, NEW, OLD, gated, promoted, rated, run_settings, trained
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from flyball.app.controllers import FeedbackState, Lineage, ModelLifecycleCoordinator
from flyball.app.controllers.lifecycle import (
    NO_CANDIDATE,
    RATED,
    TRANSITIONS,
    Candidate,
    GateRow,
    IllegalTransition,
    Phase,
    Trigger,
)
from flyball.app.controllers.lineage import Champion
from flyball.app.core import EventId
from flyball.app.events import (
    ClockTick,
    DistributionFailed,
    EvaluationCompleted,
    EvaluationFailed,
    Event,
    Payload,
    PromotionRejected,
    RegressionDetected,
    RollbackRequested,
    Step,
    handles,
    originate,
)
from flyball.app.events.envelope import EPOCH

OTHER = "c" * 64
Transition = tuple[Phase, Trigger, Phase]
LEGAL = {
    (before, trigger, after)
    for before, triggers in TRANSITIONS.items()
    for trigger, phases in triggers.items()
    for after in phases
}
SETTINGS = run_settings(lifecycle={"elo0": -40.0})
COORDINATOR = ModelLifecycleCoordinator(SETTINGS)
MODELS = st.sampled_from([NEW, NEW, NEW, OTHER])
CURRENT = st.sampled_from([OLD, OLD, OLD, OTHER])
LOST = DistributionFailed(
    model=OLD, step=0, node="n", attempt=1, retry_seconds=60.0, error="gone", damaged=True, readable=OTHER
)


def about(model: str, wins: int) -> list[Payload]:
    """Return all events about a candidate."""
    gate, rating = gated(wins, 0, 100 - wins, model), rated(model=model)
    return [trained(model), rating, gate, gate, rating.replace(purpose="retest"), rejected(model)] + [
        unrated(model, purpose) for purpose in ("gate", "gate", "gate", "rating", "retest")
    ]


OF_CURRENT: list[Payload] = [
    promoted(OTHER),
    rolled_back(OLD, OTHER),
    RegressionDetected(model=OLD, last_good=None, elo_drop=60, severity="severe", games=200, opponent="random"),
    RollbackRequested(model=OLD, reason="odd"),
    LOST,
]
TICK = ClockTick(period_seconds=1)
OF_CANDIDATES = st.tuples(MODELS, st.sampled_from([20, 50, 80])).flatmap(lambda args: st.sampled_from(about(*args)))
EVENTS = st.one_of(OF_CANDIDATES, OF_CANDIDATES, OF_CANDIDATES, st.just(TICK), st.sampled_from(OF_CURRENT))
TRAINED = Candidate(model=NEW, parent=OLD, step=1)
GATING = TRAINED.replace(evaluation_id=EventId("r"), elo_stderr=20.0, requests=1)
UNPLAYED = TRAINED.replace(requests=2, failures=2)
CANDIDATES = (
    *(None, TRAINED, GATING, GATING.replace(failures=1), GATING.replace(failures=2, retry_us=1)),
    *(UNPLAYED, UNPLAYED.replace(retry_us=1)),
)


def event_of(data: Payload, number: int) -> Event[Any]:
    subject = None if isinstance(data, ClockTick) else KEY
    return Event(originate(data, event_id=f"e{number}", time=EPOCH, subject=subject), number, number * 10**8, "x@y")


def state_of(current: str | None) -> FeedbackState:
    champions = (Champion(model=OTHER if current == OLD else OLD, step=0), Champion(model=current, step=1))
    return FeedbackState(config_key=KEY, lineage=Lineage(champions=champions if current else ()))


def transition(rows: dict[str, GateRow], event: Event[Any], current: str | None) -> Transition | None:
    """Fold an event into the rows; ``None`` if it is ignored."""
    data, before = event.data, rows.get(KEY, NO_CANDIDATE).phase
    done = COORDINATOR.step(rows, event, {KEY: state_of(current)})
    rows |= done.rows
    trigger = (type(data), data.purpose) if isinstance(data, EvaluationCompleted | EvaluationFailed) else type(data)
    return (before, trigger, rows[KEY].phase) if done.rows else None


def test_failed_gates_bring_a_rating_and_late_ones_nothing() -> None:
    rows: dict[str, GateRow] = {}
    history = [trained(NEW), *[unrated(NEW, "gate")] * 4]
    phases = [transition(rows, event_of(data, number), OLD) for number, data in enumerate(history)]
    assert [after and after[2] for after in phases] == [
        *(Phase.TRAINED, Phase.GATING, Phase.PAUSED, Phase.TRAINED),
        None,
    ]


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(EVENTS, CURRENT), max_size=30))
def test_only_transitions_of_the_table_happen(history: list[tuple[Payload, str]]) -> None:
    rows: dict[str, GateRow] = {}
    for number, (data, current) in enumerate(history):
        assert transition(rows, event_of(data, number), current) in {None, *LEGAL}


def test_every_transition_of_the_table_happens() -> None:
    events = [*about(NEW, 20), *about(NEW, 50), *about(NEW, 80), *OF_CURRENT, TICK]
    seen = {
        transition({KEY: GateRow(candidate=candidate)}, event_of(data, 1), current)
        for candidate in CANDIDATES
        for data in events
        for current in (OLD, OTHER)
    }
    assert seen == {None, *LEGAL}


def test_a_first_model_is_promoted_after_its_rating() -> None:
    rows = {KEY: GateRow(candidate=TRAINED)}
    assert transition(rows, event_of(rated(), 1), None) == (Phase.TRAINED, RATED, Phase.ABSENT)


class Reviver(ModelLifecycleCoordinator):
    """A coordinator that gates a candidate at its rejection."""

    @handles(PromotionRejected)
    def rejected(self, rows: Any, event: Event[PromotionRejected], states: Any) -> Step[GateRow]:
        revived = Candidate(model=event.data.model, parent=OLD, step=1, requests=1)
        return Step({KEY: GateRow(candidate=revived)})


@pytest.mark.parametrize("row", [NO_CANDIDATE, GateRow(candidate=Candidate(model=NEW, parent=OLD, step=1))])
def test_a_transition_that_is_not_in_the_table_raises(row: GateRow) -> None:
    with pytest.raises(IllegalTransition, match=f"PROMOTION_REJECTED .* from {row.phase.value} to gating"):
        Reviver(SETTINGS).step({KEY: row}, event_of(rejected(), 1), {})
