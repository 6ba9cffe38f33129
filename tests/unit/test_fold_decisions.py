"""Fold's pending decisions: a controller sees its own before they are recorded, and is not given their record."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from driving import KEY, OLD, OTHER_KEY, promoted, run_settings

from app.controllers import Controller, FeedbackFold, States, state_of
from app.controllers.fold import Fold, Outcome
from app.events import (
    Emission,
    Event,
    EventVoided,
    ExplorationBoost,
    HyperparameterUpdated,
    ModelPromoted,
    ModelRolledBack,
    Parameter,
    Payload,
    QualityDegraded,
    RegressionCleared,
    Row,
    RunConfigured,
    Step,
    handles,
)

NEW, WORSE = "b" * 64, "c" * 64
DEGRADED = QualityDegraded(request_id="r", worker="selfplay_worker@laptop", shard="c" * 64, reason="x")


def configured(*keys: str) -> RunConfigured:
    return RunConfigured(run_id="run", settings=run_settings(*keys).model_dump(mode="json"))


def boost(multiplier: float) -> ExplorationBoost:
    return ExplorationBoost(multiplier=multiplier, lasts_seconds=60, reason="x")


class Given(Row, frozen=True):
    """Multipliers of the boosts that a controller was given."""

    multipliers: tuple[float, ...] = ()


class Booster(Controller):
    """Raises the boost that it is shown by 1 at each degraded shard, and notes the boosts that it is given."""

    name: ClassVar[str] = "Booster"
    row: ClassVar[type[Given]] = Given
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({ExplorationBoost})

    @handles(QualityDegraded)
    def degraded(self, rows: Mapping[str, Given], event: Event[Any], states: States) -> Step[Given]:
        """Decide."""
        return Step({}, (Emission(boost(state_of(states, event.subject).exploration_boost + 1)),))

    @handles(ExplorationBoost)
    def boosted(self, rows: Mapping[str, Given], event: Event[Any], states: States) -> Step[Given]:
        """Note what it is given."""
        before = rows.get(event.subject, Given()).multipliers
        return Step({event.subject: Given(multipliers=(*before, event.data.multiplier))})


class Observer(Booster):
    """Another one that notes boosts, and decides nothing."""

    name: ClassVar[str] = "Observer"
    emits: ClassVar[frozenset[type[Payload]]] = frozenset()

    @handles(QualityDegraded)
    def degraded(self, rows: Mapping[str, Given], event: Event[Any], states: States) -> Step[Given]:
        """Note the boost that it is shown."""
        shown = state_of(states, event.subject).exploration_boost
        return Step({event.subject: Given(multipliers=(*rows.get(event.subject, Given()).multipliers, -shown))})


class Cooler(Controller):
    """Lowers the base temperature at each degraded shard."""

    name: ClassVar[str] = "Cooler"
    row: ClassVar[type[Given]] = Given
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({HyperparameterUpdated})
    parameters: ClassVar[frozenset[Parameter]] = frozenset({"base_temperature"})

    @handles(QualityDegraded)
    def degraded(self, rows: Mapping[str, Given], event: Event[Any], states: States) -> Step[Given]:
        """Decide."""
        before = state_of(states, event.subject).parameter("base_temperature", self.settings)
        decision = HyperparameterUpdated(
            parameter="base_temperature", value=before - 0.1, previous=before, reason="x"
        )
        return Step({}, (Emission(decision),))


class Coordinator(Controller):
    """Rolls back to OLD at each degraded shard, and notes the models that it is shown as current."""

    name: ClassVar[str] = "Coordinator"
    row: ClassVar[type[Given]] = Given
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({ModelRolledBack, RegressionCleared})

    @handles(QualityDegraded)
    def degraded(self, rows: Mapping[str, Given], event: Event[Any], states: States) -> Step[Given]:
        """Decide."""
        return Step({}, (Emission(ModelRolledBack(from_model=NEW, to_model=OLD, step=0, reason="x")),))

    @handles(ModelPromoted, ModelRolledBack)
    def current_decided(self, rows: Mapping[str, Given], event: Event[Any], states: States) -> Step[Given]:
        """Publish the model that is shown as current."""
        return Step({}, (Emission(RegressionCleared(model=state_of(states, event.subject).lineage.current_model)),))


class Journal:
    """Folds hosted apart that are fed the same events."""

    def __init__(self, record: Any, *controllers: type[Controller]) -> None:
        self.write = record
        self.fold = Fold(controllers)
        self.saved: dict[Any, Any] = {}
        self.feed(configured(KEY, OTHER_KEY), None)

    def feed(self, data: Payload, key: str | None = KEY) -> list[Event[Payload]]:
        """Record a payload, and return the decisions that follow, as they would be recorded next."""
        return self.give(self.write(data, key))

    def give(self, event: Event[Payload], **options: Any) -> list[Event[Payload]]:
        """Feed an event, and return the decisions that follow, as they would be recorded next."""
        outcome: Outcome = self.fold.feed([event], **options)
        assert outcome.failures == []
        self._save(outcome)
        return [self.recorded(envelope) for envelope in outcome.envelopes]

    def recorded(self, envelope: Any) -> Event[Payload]:
        """Return an event of an envelope."""
        position = self.write(RegressionCleared(model=OLD), KEY)
        return Event(envelope, position.sequence, position.recorded_us, "feedback@laptop")

    def restart(self, *controllers: type[Controller]) -> None:
        """Go on from saved rows."""
        self.fold = Fold(controllers, dict(self.saved))

    def given(self, controller: type[Controller] = Booster, key: str = KEY) -> tuple[float, ...]:
        """Return what a controller has noted."""
        return self.fold.rows(controller.name).get(key, Given()).multipliers

    @property
    def boost(self) -> float:
        """The boost in the state that is not laid over."""
        return state_of(self.fold.states, KEY).exploration_boost

    def _save(self, outcome: Outcome) -> None:
        for key, row in outcome.saved().items():
            if row is None:
                self.saved.pop(key, None)
            else:
                self.saved[key] = row


@pytest.fixture
def journal(record) -> Journal:
    return Journal(record, Booster, Observer)


def multiplier(*decisions: Event[Any]) -> list[float]:
    return [event.data.multiplier for event in decisions]


@pytest.fixture(params=[False, True], ids=["at once", "after a restart"])
def go_on(request, journal) -> Any:
    """Return a function that restarts the fold from its saved rows, or does nothing."""
    return (lambda: journal.restart(Booster, Observer)) if request.param else (lambda: None)


def test_own_decision_is_shown_before_it_is_recorded(journal, go_on):
    assert multiplier(*journal.feed(DEGRADED)) == [2.0]
    go_on()
    assert multiplier(*journal.feed(DEGRADED)) == [3.0]
    go_on()
    assert multiplier(*journal.feed(DEGRADED)) == [4.0]
    assert journal.boost == 1.0, "nothing is recorded"


def test_own_decision_is_shown_for_its_configuration_alone(journal):
    journal.feed(DEGRADED)
    assert multiplier(*journal.feed(DEGRADED, OTHER_KEY)) == [2.0]


def test_others_see_a_decision_when_it_is_recorded(journal, go_on):
    (decided,) = journal.feed(DEGRADED)
    go_on()
    journal.feed(DEGRADED)
    journal.give(decided)
    go_on()
    journal.feed(DEGRADED)
    assert journal.given(Observer) == (-1.0, -1.0, 2.0, -2.0)


def test_record_of_its_decision_is_not_given_to_the_decider(journal, go_on):
    first, second = (decided for _ in range(2) for decided in journal.feed(DEGRADED))
    go_on()
    for recorded, in_force in ((first, 2.0), (second, 3.0)):
        assert journal.give(recorded) == []
        go_on()
        assert journal.boost == in_force
    assert journal.given(Booster) == ()
    assert journal.given(Observer)[-2:] == (2.0, 3.0)
    assert multiplier(*journal.feed(DEGRADED)) == [4.0], "each counts once"


def test_no_pending_decision_is_saved_once_all_are_recorded(journal):
    before = {key for key in journal.saved if key[0] == "host"}
    decided = journal.feed(DEGRADED)
    assert {key for key in journal.saved if key[0] == "host"} > before
    journal.give(*decided)
    assert {key for key in journal.saved if key[0] == "host"} == before


def test_operators_equal_decision_is_given_to_the_decider(journal, go_on):
    """Before the record of the own one and after it; the last one recorded holds."""
    (decided,) = journal.feed(DEGRADED)
    go_on()
    journal.feed(boost(2.0))
    assert journal.given(Booster) == (2.0,)
    go_on()
    journal.give(decided)
    journal.feed(boost(2.0))
    assert journal.given(Booster) == (2.0, 2.0)
    assert journal.boost == 2.0


def test_operators_decision_before_the_record_is_overridden(journal, go_on):
    (decided,) = journal.feed(DEGRADED)
    journal.feed(boost(5.0))
    go_on()
    assert journal.boost == 5.0
    assert multiplier(*journal.feed(DEGRADED)) == [3.0], "its own comes later in the journal"
    journal.give(decided)
    assert journal.boost == 2.0


def test_voided_record_ends_the_pending_decision(journal, go_on):
    (decided,) = journal.feed(DEGRADED)
    journal.fold.voided |= {decided.sequence}
    assert journal.give(decided) == []
    go_on()
    assert multiplier(*journal.feed(DEGRADED)) == [2.0], "it is not shown any more"
    assert journal.boost == 1.0
    assert journal.given(Booster) == ()


def test_record_that_is_voided_later_has_the_fold_begin_again(journal, record):
    (decided,) = journal.feed(DEGRADED)
    journal.give(decided)
    journal.feed(EventVoided(position=decided.sequence, reason="x"), None)
    assert journal.fold.to_void == {decided.sequence}


def test_decision_of_a_dropped_step_is_not_pending(journal, record):
    """A rebuild drops steps whose decisions differ from the recorded ones."""
    assert multiplier(*journal.give(record(DEGRADED, KEY), recorded=frozenset())) == []
    assert multiplier(*journal.feed(DEGRADED)) == [2.0]


def test_decision_of_a_rebuild_is_pending_until_its_record(journal, record):
    event = record(DEGRADED, KEY)
    (expected,) = Fold((Booster,), dict(journal.saved)).feed([event]).envelopes
    assert len(journal.give(event, recorded={(expected.id, expected.data.event_type)})) == 1
    assert multiplier(*journal.feed(DEGRADED)) == [3.0]


def test_pending_parameter_of_a_removed_configuration_harms_nobody(record):
    """Its configuration leaves the run between the decision and its record."""
    journal = Journal(record, Cooler)
    (decided,) = journal.feed(DEGRADED, OTHER_KEY)
    journal.feed(configured(KEY), None)
    (cooled,) = journal.feed(DEGRADED)
    assert cooled.data.value == pytest.approx(0.9)
    assert journal.give(decided) == []
    assert multiplier() == []


def test_stale_pending_rollback_is_not_shown(record):
    """An operator's promotion is recorded between the rollback and its record: the rollback changes nothing."""
    journal = Journal(record, Coordinator)
    journal.feed(promoted(OLD))
    journal.feed(promoted(NEW))
    (decided,) = journal.feed(DEGRADED)
    (seen,) = journal.feed(promoted(WORSE))
    assert seen.data.model == WORSE
    assert journal.give(decided) == []
    assert state_of(journal.fold.states, KEY).current_model == WORSE


def test_pending_rollback_is_shown(record):
    journal = Journal(record, Coordinator)
    journal.feed(promoted(OLD))
    journal.feed(promoted(NEW))
    journal.feed(DEGRADED)
    (seen,) = journal.feed(promoted(NEW.replace("b", "d")), OTHER_KEY)
    assert seen.data.model == NEW.replace("b", "d")


def test_repeated_promotion_is_given_to_nobody(record):
    journal = Journal(record, Coordinator)
    assert len(journal.feed(promoted(OLD))) == 1
    before = journal.fold.tables()
    assert journal.feed(promoted(OLD)) == []
    assert journal.fold.tables() == before


def test_fold_hosts_states_only_where_controllers_are():
    assert [reducer.name for reducer in _built(Booster)] == [FeedbackFold.name, Booster.name]
    assert _built() == ()


def _built(*controllers: type[Controller]) -> tuple[Any, ...]:
    fold = Fold(controllers)
    return fold.reducers
