"""Upcasts of old events, version by version. What the journal holds is never rewritten."""

import json
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest
from builders import training_failed, training_of, unrated
from driving import KEY, parity, played, rated, scored, trained
from pydantic import ValidationError
from scenario_events import asked

from flyball.app.config import GAMES, FeedbackSettings, RunSettings
from flyball.app.config.feedback import StallSettings
from flyball.app.events import (
    BY_TYPE,
    AgentRating,
    ClockTick,
    DaemonHeartbeat,
    EloUpdated,
    EvaluationCompleted,
    Lineup,
    MalformedEvent,
    MatchesRequested,
    MatchmakingUpdated,
    NodeLost,
    NoUpcast,
    OpponentPick,
    OpponentSampled,
    ParityChecked,
    Payload,
    PlateauDetected,
    QualityDegraded,
    RegressionDetected,
    RunConfigured,
    SampledOpponent,
    SelfplayRequested,
    ShardRef,
    TrainingCompleted,
    TrainingProgress,
    decode,
    encode,
    originate,
)
from flyball.app.events.codec import UPCASTS, lift

TYPE = ClockTick.event_type
TICK = encode(originate(ClockTick(period_seconds=60.0), event_id="e", time=datetime(2026, 1, 2, tzinfo=UTC)))


def minutes_to_seconds(data: dict[str, Any]) -> dict[str, Any]:
    return {"seconds": data["minutes"] * 60.0}


def seconds_get_their_name(data: dict[str, Any]) -> dict[str, Any]:
    return {"period_seconds": data["seconds"]}


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Register upcasts of CLOCK_TICK for the time of a test. They lead up to its present version."""

    def put(**steps: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        for step, function in steps.items():
            monkeypatch.setitem(UPCASTS, (TYPE, int(step.removeprefix("from_"))), function)

    return put


def old(version: int, data: Any) -> bytes:
    return json.dumps(json.loads(TICK) | {"dataversion": version, "data": data}).encode()


def test_decode_lifts_through_two_steps_to_the_present_version(register: Callable[..., None]) -> None:
    register(**{"from_-1": minutes_to_seconds, "from_0": seconds_get_their_name})
    for version, data in ((-1, {"minutes": 1}), (0, {"seconds": 60.0}), (1, {"period_seconds": 60.0})):
        lifted = decode(old(version, data))
        assert lifted == decode(TICK)
        assert lifted.dataversion == BY_TYPE[TYPE].dataversion == 1


def first_versions(value: EvaluationCompleted) -> list[tuple[Payload, dict[str, Any]]]:
    """Return present events, each with its data in version 1."""
    asked = MatchesRequested(purpose="tournament", model="a" * 64, step=1, opponents=("random",), games=20, seed=1)
    failed = unrated("a" * 64, "gate")
    return [
        (asked, {field: known for field, known in asked.model_dump(mode="json").items() if field != "purpose"}),
        (value, value.model_dump(mode="json")),
        (failed, failed.model_dump(mode="json")),
    ]


@pytest.mark.parametrize("number", range(3))
def test_lift_of_events_from_before_retests_keeps_them(number: int) -> None:
    now, data = first_versions(rated(100.0).replace(undecided_games=None))[number]
    time = datetime(2026, 1, 2, tzinfo=UTC)
    envelope = originate(now, event_id="e", time=time, subject=KEY)
    body = json.loads(encode(envelope)) | {"dataversion": 1, "data": data}
    assert decode(json.dumps(body).encode()) == envelope


@pytest.mark.parametrize(("old", "words"), [(1, "from version 2 to 3"), (4, "version 4, this Flyball knows 3")])
def test_a_missing_step_and_a_newer_version_are_named(register: Callable[..., None], old: int, words: str) -> None:
    register(from_1=minutes_to_seconds)
    with pytest.raises(NoUpcast, match=words) as caught:
        lift(TYPE, {"minutes": 2}, old, 3)
    assert caught.value.hint


@pytest.mark.parametrize("data", [{}, {"minutes": "many"}, {"minutes": None}])
def test_old_data_that_its_upcast_does_not_fit_is_malformed(register: Callable[..., None], data: Any) -> None:
    register(from_0=minutes_to_seconds)
    with pytest.raises(MalformedEvent, match="CLOCK_TICK of version 0 could not be lifted"):
        decode(old(0, data))


@pytest.mark.parametrize(("data", "seconds"), [([], 1.0), ("text", 1.0), (7, 1.0), (None, 1.0), ({}, -1.0)])
def test_upcast_is_given_objects_and_makes_valid_data(register: Callable[..., None], data: Any, seconds: float) -> None:
    register(from_0=lambda data: {"period_seconds": seconds})
    with pytest.raises(MalformedEvent) as caught:
        decode(old(0, data))
    assert ("data.period_seconds" in caught.value.hint) == (seconds < 0)


WORKER = "selfplay_worker@laptop"
SHARD = ShardRef(key="c" * 64, worker=None, rows=9, games=1, model="a" * 64, seed=1)
BARE = {"key": "c" * 64, "rows": 9, "games": 1, "model": "a" * 64, "seed": 1}
UNNAMED: list[tuple[Payload, dict[str, Any]]] = [
    (scored().replace(shard=SHARD, seconds=None), {"shard": BARE}),
    (played().replace(shard=SHARD.replace(worker=WORKER)), {"shard": BARE, "worker": WORKER}),
    (asked(WORKER), {}),
    (training_of(SHARD, model=None), {"shards": [BARE]}),
    (parity(0, None), {}),
    (QualityDegraded(request_id="q", worker=None, shard="c" * 64, reason="x"), {}),
    (DaemonHeartbeat(daemon="training", node="laptop", position=1, lag=0, jobs=1, requests=()), {}),
    (training_failed("t", "diverged"), {}),
    (NodeLost(daemon="selfplay_worker", node="laptop", silent_seconds=31.0), {}),
]
"""Payloads, each with the fields that version 1 held differently."""


@pytest.mark.parametrize(("now", "otherwise"), UNNAMED, ids=lambda one: getattr(one, "event_name", ""))
def test_event_from_before_workers_were_named_is_still_read(now: Payload, otherwise: dict[str, Any]) -> None:
    data = now.model_dump(mode="json")
    new = {"probe", "requests", "against", *(() if isinstance(now, SelfplayRequested) else ("worker",))}
    new |= {"daemon"} if isinstance(now, NodeLost) else set()
    before = {name: value for name, value in data.items() if name not in new} | otherwise
    lifted = lift(now.event_type, before, 1, now.dataversion)
    assert type(now).model_validate_json(json.dumps(lifted)) == now


def test_lift_of_an_old_parity_check_knows_no_rules() -> None:
    before = {"request_id": "q", "worker": None, "shard": "c" * 64, "checked": 16, "failures": 0}
    assert ParityChecked(**lift(ParityChecked.event_type, before, 2, 3)).against is None


def test_lift_of_old_alarms_knows_no_threshold_and_no_opponent() -> None:
    stall = {"velocity": 1.0, "upper_bound": 2.0, "window_hours": 6.0}
    assert PlateauDetected(**lift(PlateauDetected.event_type, stall, 1, 2)).least_gain is None
    drop = {"model": "a" * 64, "last_good": None, "elo_drop": 60.0, "severity": "severe", "games": 100}
    assert RegressionDetected(**lift(RegressionDetected.event_type, drop, 1, 2)).opponent is None


FIGURES = {"policy_loss": -0.1, "value_loss": 0.3, "entropy": 1.0, "approx_kl": 0.01, "clip_fraction": 0.1}


@pytest.mark.parametrize(("explained", "named"), [(None, {}), (0.5, {"explained_variance": 0.5})])
def test_lift_of_an_old_training_names_its_metrics(explained: float | None, named: dict[str, float]) -> None:
    now = trained().replace(metrics={**FIGURES, **named, "seconds": 2.0}, seconds=None)
    before = {**now.model_dump(mode="json"), "metrics": {**FIGURES, "explained_variance": explained, "seconds": 2.0}}
    assert TrainingCompleted(**lift(now.event_type, before, 1, now.dataversion)) == now


@pytest.mark.parametrize(
    ("now", "before"),
    [
        (
            trained().replace(parent=None, step=0, metrics=None, seconds=None),
            trained(parent=None, step=0).model_dump() | {"metrics": None},
        ),
        (
            TrainingProgress(request_id="t", epoch=1, epochs=3, metrics=FIGURES),
            {"request_id": "t", "epoch": 1, "epochs": 3, **FIGURES},
        ),
    ],
    ids=["initial model", "progress"],
)
def test_lift_of_an_initial_model_or_progress(now: Payload, before: dict[str, Any]) -> None:
    assert type(now)(**lift(now.event_type, before, 1, now.dataversion)) == now


def test_lift_of_old_settings_moves_or_drops_them() -> None:
    """The learning rate and the epochs were settings of PPO, and the silence of nodes was one of the scheduler.

    Windows of stalls had a fixed number of hours, and two other rules went by the clock.
    """
    by_the_clock = FeedbackSettings(stall=StallSettings(window_ratings=0))
    now = RunSettings(configs=(GAMES[KEY].replace(learning_rate=2e-4, epochs=7),), feedback=by_the_clock)
    third = now.model_dump(mode="json")
    del third["feedback"]["stall"]["window_ratings"]
    third["feedback"]["curriculum"]["least_velocity"] = 5.0
    third["feedback"]["scheduler"]["staleness_hours"] = 1.0
    second = deepcopy(third)
    second["feedback"]["scheduler"]["node_silent_seconds"] = 30.0
    first = deepcopy(second)
    for config in first["configs"]:
        config["ppo"] |= {name: config.pop(name) for name in ("learning_rate", "epochs")}
    for version, before in enumerate((first, second, third), start=1):
        data = {"run_id": "r", "settings": before}
        lifted = lift(RunConfigured.event_type, data, version, RunConfigured.dataversion)
        assert RunSettings.recorded(lifted["settings"], "broker@laptop") == now


@pytest.mark.parametrize("settings", [{}, {"configs": 1}, {"configs": [1]}, {"configs": [{"ppo": None}]}])
def test_lift_of_foreign_settings_changes_nothing(settings: dict[str, Any]) -> None:
    """Malformed settings pass the upcast; they are refused where settings are read."""
    data = {"run_id": "r", "settings": settings}
    assert lift(RunConfigured.event_type, data, 1, RunConfigured.dataversion) == data


MET = ("random", "heuristic", "a" * 64)
SAMPLED = SampledOpponent(agent="random", category="baselines", games=1)
RATINGS = tuple(AgentRating(agent=name, elo=1.0, elo_stderr=2.0, games=3, bound=None) for name in MET)
PICKS = (OpponentPick(agent="heuristic", category="baselines", probability=1.0),)
WITH_BOTS: list[Payload] = [
    asked(WORKER).replace(lineups=(Lineup(opponents=("random",), games=2),)),
    played().replace(opponents=MET),
    MatchesRequested(purpose="retest", model="b" * 64, step=1, opponents=MET, games=20, seed=1),
    EloUpdated(ratings=RATINGS),
    OpponentSampled(request_id="r", model="b" * 64, opponents=(SAMPLED,)),
    MatchmakingUpdated(model="b" * 64, picks=PICKS),
]
"""Payloads whose next version admits bots of the user's own."""


@pytest.mark.parametrize("payload", WITH_BOTS, ids=lambda one: one.event_name)
def test_lift_of_players_changes_nothing_and_bots_are_admitted(payload: Payload) -> None:
    data = payload.model_dump(mode="json")
    assert lift(payload.event_type, data, payload.dataversion - 1, payload.dataversion) == data
    text = json.dumps(data)
    for name in ("random", "heuristic"):
        text = text.replace(f'"{name}"', '"gnugo_10"')
    own = type(payload).model_validate_json(text)
    assert "gnugo_10" in own.model_dump_json()
    with pytest.raises(ValidationError, match="pattern"):
        type(payload).model_validate_json(text.replace("gnugo_10", "GNU Go"))
