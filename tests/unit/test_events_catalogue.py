"""The catalogue of events."""

import pytest

from flyball.app.events import BY_NAME, BY_TYPE, CATALOGUE, Kind, Payload, Scope, UnknownEventType, resolve

TABLE = {
    Kind.FACT: """
        SELFPLAY_COMPLETE SELFPLAY_FAILED
        QUALITY_SCORE_UPDATED QUALITY_DEGRADED PARITY_CHECKED INSPECTION_FAILED
        TRAINING_STARTED TRAINING_PROGRESS TRAINING_COMPLETED TRAINING_FAILED LOSS_ANOMALY_DETECTED
        EVALUATION_PROGRESS EVALUATION_COMPLETED EVALUATION_FAILED EVALUATION_OVERDUE
        REGRESSION_DETECTED REGRESSION_CLEARED PLATEAU_DETECTED
        MODEL_ADVISED MODEL_CACHED MODEL_DISTRIBUTED MODEL_DISTRIBUTION_FAILED MODEL_DISTRIBUTION_LATE
        league.checkpoint_added league.checkpoint_retired league.elo_updated league.opponent_sampled
        DAEMON_STARTED DAEMON_READY DAEMON_HEARTBEAT DAEMON_STOPPED DAEMON_FAILED CLOCK_TICK RUN_CONFIGURED EVENT_VOIDED
        ACCESS_REFUSED ROLL_CALL
        NODE_LOST NODE_RETURNED NODE_DEGRADED NODE_RECOVERED NODE_PROBED
    """,
    Kind.REQUEST: "SELFPLAY_REQUESTED TRAINING_REQUESTED EVALUATION_REQUESTED ROLLBACK_REQUESTED MATCHES_REQUESTED",
    Kind.DECISION: """
        EXPLORATION_BOOST QUALITY_PENALTY_APPLIED TRAINING_BLOCKED_BY_QUALITY TRAINING_UNBLOCKED
        ADAPTIVE_PARAMS_CHANGED HYPERPARAMETER_UPDATED TRAINING_INTENSITY_CHANGED
        CURRICULUM_REBALANCED MODEL_PROMOTED PROMOTION_REJECTED MODEL_ROLLED_BACK MATCHMAKING_UPDATED
        NODE_QUARANTINED NODE_RELEASED
    """,
}
ROWS = [(name, kind) for kind, names in TABLE.items() for name in names.split()]


@pytest.mark.parametrize(("name", "kind"), ROWS, ids=str)
def test_every_name_of_the_table_is_an_event_of_its_column(name: str, kind: Kind) -> None:
    payload = resolve(name)
    assert payload.kind is kind
    assert resolve(payload.event_type) is resolve(payload.event_name) is payload
    assert resolve(payload.event_type.removeprefix("flyball.")) is payload
    assert resolve(payload.event_name.lower()) is payload


def test_the_catalogue_has_the_table_s_and_the_system_s_events() -> None:
    assert {resolve(name) for name, _ in ROWS} == set(CATALOGUE)
    assert len(CATALOGUE) == len(BY_TYPE) == len(BY_NAME) == len(ROWS)
    types = [payload.event_type for payload in CATALOGUE]
    assert types == sorted(types)
    assert all(name.startswith("flyball.") and name == name.lower() for name in types)
    system = {payload.event_name for payload in CATALOGUE if payload.scope is Scope.SYSTEM}
    nodes = "NODE_LOST NODE_RETURNED NODE_DEGRADED NODE_RECOVERED NODE_QUARANTINED NODE_RELEASED"
    others = "ACCESS_REFUSED ROLL_CALL CLOCK_TICK RUN_CONFIGURED EVENT_VOIDED CURRICULUM_REBALANCED"
    daemons = "DAEMON_STARTED DAEMON_READY DAEMON_HEARTBEAT DAEMON_STOPPED DAEMON_FAILED"
    assert system == set(f"{daemons} {nodes} {others}".split())


@pytest.mark.parametrize("payload", CATALOGUE, ids=lambda payload: payload.event_name)
def test_no_payload_field_has_a_default(payload: type[Payload]) -> None:
    assert [name for name, field in payload.model_fields.items() if not field.is_required()] == []


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("TRAINING_COMPLETE", "TRAINING_COMPLETED"),
        ("training_complete", "TRAINING_COMPLETED"),
        ("flyball.trainig.completed", "flyball.training.completed"),
        ("training.complete", "flyball.training.completed"),
        ("qqqq", "flyball events list"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(wrong: str, hint: str) -> None:
    with pytest.raises(UnknownEventType) as caught:
        resolve(wrong)
    assert wrong in caught.value.message
    assert hint in caught.value.hint
