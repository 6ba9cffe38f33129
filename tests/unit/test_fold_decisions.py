"""Pending decisions of Fold."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
from builders import configured, recorded, rolled_back
from driving import KEY, NEW, OLD, OTHER_KEY, promoted, run_settings
from scenario_events import boosted as boost

from flyball.app.config import Parameter
from flyball.app.controllers import Controller, FeedbackFold, States, state_of
from flyball.app.controllers.fold import HOST, MOST_PENDING, PENDING, Fold, Outcome, RowKey
from flyball.app.events import (
    Emission,
    Envelope,
    Event,
    EventVoided,
    ExplorationBoost,
    HyperparameterUpdated,
    ModelRolledBack,
    Payload,
    QualityDegraded,
    RegressionCleared,
    Row,
    Step,
    handles,
)

WORSE = "d" * 64
DEGRADED = QualityDegraded(request_id="r", worker="selfplay_worker@laptop", shard="c" * 64, reason="x")


class Notes(Row, frozen=True):
    """Boost multipliers given in events and shown in states."""

    given: tuple[float, ...] = ()
    shown: tuple[float, ...] = ()


Rows = Mapping[str, Notes]


class Booster(Controller):
    """Raises the shown boost by 1 at each degraded shard."""

    name: ClassVar[str] = "Booster"
    row: ClassVar[type[Notes]] = Notes
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({ExplorationBoost})

    @handles(QualityDegraded)
    def degraded(self, rows: Rows, event: Event[Any], states: States) -> Step[Notes]:
        shown = state_of(states, event.subject).exploration_boost
        row = rows.get(event.subject, Notes())
        return Step({event.subject: row.replace(shown=(*row.shown, shown))}, self.decisions(shown))

    def decisions(self, shown: float) -> tuple[Emission, ...]:
        return (Emission(boost(shown + 1)),)

    @handles(ExplorationBoost)
    def boosted(self, rows: Rows, event: Event[Any], states: States) -> Step[Notes]:
        row = rows.get(event.subject, Notes())
        return Step({event.subject: row.replace(given=(*row.given, event.data.multiplier))})


class Observer(Booster):
    """Notes boosts, and decides nothing."""

    name: ClassVar[str] = "Observer"
    emits: ClassVar[frozenset[type[Payload]]] = frozenset()

    def decisions(self, shown: float) -> tuple[Emission, ...]:
        return ()


class Doubter(Booster):
    """Emits two boosts at each degraded shard."""

    name: ClassVar[str] = "Doubter"

    def decisions(self, shown: float) -> tuple[Emission, ...]:
        return Emission(boost(shown + 1)), Emission(boost(shown + 2))


class Cooler(Controller):
    """Lowers the shown base temperature by a tenth at each degraded shard."""

    name: ClassVar[str] = "Cooler"
    row: ClassVar[type[Notes]] = Notes
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({HyperparameterUpdated})
    parameters: ClassVar[frozenset[Parameter]] = frozenset({"base_temperature"})

    @handles(QualityDegraded)
    def degraded(self, rows: Rows, event: Event[Any], states: States) -> Step[Notes]:
        before = state_of(states, event.subject).parameter("base_temperature", self.settings)
        update = HyperparameterUpdated(parameter="base_temperature", value=0.9 * before, previous=before, reason="x")
        return Step({}, (Emission(update),))


class Restorer(Controller):
    """Makes OLD current at each degraded shard. Once OLD is shown as current, it emits REGRESSION_CLEARED instead."""

    name: ClassVar[str] = "Restorer"
    row: ClassVar[type[Notes]] = Notes
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({ModelRolledBack, RegressionCleared})

    @handles(QualityDegraded)
    def degraded(self, rows: Rows, event: Event[Any], states: States) -> Step[Notes]:
        current = state_of(states, event.subject).current_model
        if current == OLD:
            return Step({}, (Emission(RegressionCleared(model=OLD)),))
        return Step({}, (Emission(rolled_back(current, OLD)),))


class Run:
    """A fold, its saved rows, and the number of its last event."""

    def __init__(self, *controllers: type[Controller]) -> None:
        self.controllers, self.fold, self.position = controllers, Fold(controllers), 0
        self.saved: dict[RowKey, bytes] = {}
        self.configure(KEY, OTHER_KEY)

    def configure(self, *keys: str) -> None:
        self.feed(configured(run_settings(*keys)), None)

    def event(self, envelope: Envelope[Payload]) -> Event[Payload]:
        self.position += 1
        return Event(envelope, self.position, self.position * 10**6, "broker@laptop")

    def happened(self, data: Payload, key: str | None = KEY) -> Event[Payload]:
        self.position += 1
        return recorded(data, self.position, key)

    def feed(self, data: Payload, key: str | None = KEY) -> list[Envelope[Any]]:
        return self.give(self.happened(data, key))

    def record(self, decision: Envelope[Payload]) -> list[Envelope[Any]]:
        return self.give(self.event(decision))

    def give(self, event: Event[Payload], **options: Any) -> list[Envelope[Any]]:
        """Feed an event, save changed rows, and return the resulting decisions."""
        outcome: Outcome = self.fold.feed([event], **options)
        assert outcome.failures == []
        for key, row in outcome.saved().items():
            if row is None:
                del self.saved[key]
            else:
                self.saved[key] = row
        return outcome.envelopes

    def restart(self) -> None:
        self.fold = Fold(self.controllers, dict(self.saved))

    def notes(self, controller: type[Booster]) -> Notes:
        return self.fold.rows(controller.name).get(KEY, Notes())

    @property
    def boost(self) -> float:
        return state_of(self.fold.states, KEY).exploration_boost

    @property
    def host_rows(self) -> set[str]:
        return {key for owner, key in self.saved if owner == HOST}


@pytest.fixture
def run() -> Run:
    return Run(Booster, Observer)


@pytest.fixture(params=[lambda run: None, Run.restart], ids=["at once", "after a restart"])
def go_on(request: pytest.FixtureRequest) -> Callable[[Run], None]:
    """Return a function that does nothing, or restarts a run."""
    return request.param


def multipliers(decisions: list[Envelope[Any]]) -> list[float]:
    return [envelope.data.multiplier for envelope in decisions]


def test_own_decision_is_shown_before_it_is_recorded(run, go_on):
    for expected in (2.0, 3.0, 4.0):
        assert multipliers(run.feed(DEGRADED)) == [expected]
        go_on(run)
    assert run.boost == 1.0, "nothing is recorded"
    assert multipliers(run.feed(DEGRADED, OTHER_KEY)) == [2.0], "it is shown for its configuration alone"


def test_record_is_given_to_others_and_not_to_the_decider(run, go_on):
    before = run.host_rows
    decisions = [*run.feed(DEGRADED), *run.feed(DEGRADED)]
    assert run.host_rows > before
    for decision, in_force in zip(decisions, (2.0, 3.0), strict=True):
        go_on(run)
        assert run.record(decision) == []
        assert run.boost == in_force
    assert run.host_rows == before, "nothing is saved as pending any more"
    go_on(run)
    assert multipliers(run.feed(DEGRADED)) == [4.0], "each counts once"
    assert run.notes(Booster).given == ()
    assert run.notes(Observer) == Notes(given=(2.0, 3.0), shown=(1.0, 1.0, 3.0))


def test_operators_equal_decision_is_given_to_the_decider(run, go_on):
    (decision,) = run.feed(DEGRADED)
    for given in ((2.0,), (2.0, 2.0)):
        go_on(run)
        run.feed(boost(2.0))
        assert run.notes(Booster).given == given, "before and after the record of its own"
        go_on(run)
        if given == (2.0,):
            run.record(decision)
            assert run.notes(Booster).given == (2.0,)


def test_operators_decision_before_the_record_is_overridden(run, go_on):
    """The decider's own decision comes later in the journal, and counts."""
    (decision,) = run.feed(DEGRADED)
    run.feed(boost(5.0))
    go_on(run)
    assert run.boost == 5.0
    assert multipliers(run.feed(DEGRADED)) == [3.0]
    run.record(decision)
    assert run.boost == 2.0


def test_voided_record_ends_the_pending_decision(run, go_on):
    (decision,) = run.feed(DEGRADED)
    go_on(run)
    voided = run.event(decision)
    run.fold.voided |= {voided.sequence}
    assert run.give(voided) == []
    go_on(run)
    (again,) = run.feed(DEGRADED)
    assert again.data.multiplier == 2.0, "it is not shown any more"
    assert run.boost == 1.0
    assert run.notes(Observer).given == ()
    run.record(again)
    run.feed(EventVoided(position=run.position, reason="x"), None)
    assert run.fold.to_void == {run.position - 1}, "a record that is voided later requires a new fold"


def test_decision_that_is_never_recorded_is_forgotten(run, go_on):
    """A replay of another version's run decides otherwise than its journal."""
    run.feed(DEGRADED)
    run.position += MOST_PENDING
    go_on(run)
    (decision,) = run.feed(DEGRADED)
    assert decision.data.multiplier == 2, "raised from 1 again"
    assert len([key for key in run.host_rows if key.startswith(PENDING)]) == 1


def test_rebuild_shows_recorded_decisions_and_drops_others(run):
    before, event = run.host_rows, run.happened(DEGRADED)
    (expected,) = Fold((Booster,), dict(run.saved)).feed([event]).envelopes
    assert run.give(event, recorded=frozenset()) == []
    assert run.host_rows == before
    (decision,) = run.give(event, recorded={(expected.id, expected.data.event_type)})
    assert decision.data.multiplier == 2.0
    assert multipliers(run.feed(DEGRADED)) == [3.0], "it is shown until its record"
    assert run.record(decision) == []
    assert run.boost == 2.0


def test_rebuild_drops_decisions_of_which_some_are_missing():
    run = Run(Doubter)
    event = run.happened(DEGRADED)
    both = Fold((Doubter,), dict(run.saved)).feed([event]).envelopes
    recorded = {(decision.id, decision.data.event_type) for decision in both}
    assert len(recorded) == 2
    assert run.give(event, recorded={min(recorded)}) == []
    assert run.give(event, recorded=recorded) == both


def test_pending_parameter_of_removed_configuration_is_harmless(go_on):
    run = Run(Cooler)
    (decision,) = run.feed(DEGRADED, OTHER_KEY)
    run.configure(KEY)
    go_on(run)
    (update,) = run.feed(DEGRADED)
    assert update.data.value == 0.9
    assert run.record(decision) == []


@pytest.fixture
def restoring() -> Run:
    """Return a run whose current model NEW follows OLD."""
    run = Run(Restorer)
    run.feed(promoted(OLD))
    run.feed(promoted(NEW))
    return run


def test_pending_rollback_is_shown(restoring, go_on):
    (decision,) = restoring.feed(DEGRADED)
    go_on(restoring)
    (cleared,) = restoring.feed(DEGRADED)
    assert (decision.data.to_model, cleared.data.model) == (OLD, OLD)


def test_pending_rollback_of_a_replaced_model_is_not_shown(restoring, go_on):
    """An operator's promotion is recorded between the decision and its record, which then changes nothing."""
    (decision,) = restoring.feed(DEGRADED)
    restoring.feed(promoted(WORSE))
    go_on(restoring)
    (again,) = restoring.feed(DEGRADED)
    assert again.data.from_model == WORSE
    state = restoring.fold.states[KEY]
    assert restoring.record(decision) == []
    assert restoring.fold.states[KEY] == state


def test_repeated_promotion_is_given_to_nobody(restoring):
    before = restoring.saved.copy()
    restoring.feed(promoted(NEW))
    assert restoring.saved == before


@pytest.mark.parametrize(
    ("factory", "names"), [(Booster, ["FeedbackState", "Booster"]), (FeedbackFold, ["FeedbackState"])]
)
def test_fold_adds_states_where_controllers_are_hosted(factory, names):
    assert [reducer.name for reducer in Run(factory).fold.reducers] == names
