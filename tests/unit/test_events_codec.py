"""Refusals of unfit events, with hints that name the field."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from driving import match
from pydantic import ValidationError

from flyball.app.core import ConfigKey, ModelHash, Rate
from flyball.app.events import (
    CurriculumRebalanced,
    Envelope,
    MalformedEvent,
    MatchResult,
    NoUpcast,
    Payload,
    RunConfigured,
    TrainingCompleted,
    decode,
    encode,
    originate,
)

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
MODEL = ModelHash("a" * 64)


def completed() -> Envelope[Payload]:
    data = TrainingCompleted(request_id="r", model=MODEL, parent=None, step=0, rows=0, metrics=None, seconds=1.0)
    return originate(data, event_id="e", time=NOON, subject="hex7_2p")


def body(**changes: Any) -> bytes:
    """Return the bytes of a good event with some attributes changed.

    ``data`` is merged; ``None`` leaves an attribute out.
    """
    whole: dict[str, Any] = json.loads(encode(completed()))
    changes["data"] = whole["data"] | changes["data"] if isinstance(changes.get("data"), dict) else whole["data"]
    return json.dumps({name: value for name, value in (whole | changes).items() if value is not None}).encode()


WRONG = {
    "time": ("yesterday", "2026-01-02T12:00:00"),
    "id": ("",),
    "specversion": ("0.3",),
    "datacontenttype": ("text/plain",),
    "traceparent": ("00-xyz", "00-" + "0" * 32 + "-" + "0" * 16 + "-01\n"),
    "priority": ("high",),
    "source": ("somebody@else",),
    "dataversion": (None, "1", 1.5, []),
}
"""Values that attributes of an event cannot have."""


def test_encoded_events_omit_unset_attributes_and_are_frozen() -> None:
    written = json.loads(encode(completed()))
    assert not {"causationid", "traceparent"} & set(written)
    assert written["data"]["parent"] is None
    assert written["data"]["metrics"] is None
    assert decode(encode(completed())) == completed()
    envelope = completed()
    with pytest.raises(AttributeError, match="immutable"):
        envelope.id = "other"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        envelope.data.step = 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (b"no json", "the event"),
        (b"\xff\xfe", "the event"),
        (b"[1, 2]", "the event"),
        (b"{}", "type"),
        (body(type=None), "type"),
        (body(type="flyball.training.complete"), "flyball.training.completed"),
        (body(type="TRAINING_COMPLETED"), "'flyball.training.completed' in full"),
        (body(type=5), "flyball events list"),
        *((body(data={"step": wrong}), "data.step") for wrong in (-1, "1", True)),
        (body(data={"model": None}), "data.model"),
        (body(data={"sterp": 1}), "data.sterp"),
        (body(data={"metrics": {"policy_loss": "low"}}), "data.metrics.policy_loss"),
        (body(subject=None), "the event"),
        *((body(**{name: wrong}), name) for name, values in WRONG.items() for wrong in values),
    ],
)
def test_malformed_event_is_refused_with_the_field_named(wrong: bytes, said: str) -> None:
    with pytest.raises(MalformedEvent) as caught:
        decode(wrong)
    assert said in caught.value.hint


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_nan_and_infinity_are_refused(number: str) -> None:
    whole = body(data={"metrics": "here"}).replace(b'"here"', b'{"policy_loss": %s}' % number.encode())
    with pytest.raises(MalformedEvent) as caught:
        decode(whole)
    assert "data.metrics.policy_loss" in caught.value.hint


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"deep": [float("nan")]}, (1, 2), {1, 2}])
def test_settings_hold_only_what_json_can_say(value: Any) -> None:
    with pytest.raises(ValidationError, match=r"settings\.temperature"):
        RunConfigured(run_id="r", settings={"temperature": value})
    with pytest.raises(ValidationError, match="finite"):
        CurriculumRebalanced(weights={ConfigKey("hex7_2p"): float("nan")}, plateaued=(), reason="")


def halves(**changed) -> dict:
    return {**dict(match(0.5, 100)), "score": Rate.of(50, 100), "rotations": (0, 0, 50, 0, 0), **changed}


def test_a_result_of_no_games_cannot_be_constructed() -> None:
    counts = dict.fromkeys(("games", "wins", "draws", "losses", "truncated"), 0)
    with pytest.raises(ValidationError, match=r"1 validation error.*\ngames"):
        MatchResult(**halves(**counts, distinct_games=1, rotations=(0,) * 5))


@pytest.mark.parametrize("rotations", [(), (0,) * 5, (0, 0, 49, 0, 0), (0, 0, 51, 0, 0), (0, 0, 50), (50,)])
def test_result_with_rotations_of_other_games_is_refused(rotations) -> None:
    MatchResult(**halves())
    MatchResult(**halves(rotations=(0,) * 6 + (33,) + (0,) * 6))  # a game is left over
    with pytest.raises(ValidationError, match="rotations"):
        MatchResult(**halves(rotations=rotations))


@pytest.mark.parametrize("version", [5, 0, -1, -(10**9)])
def test_a_version_that_we_cannot_lift_is_refused(version: int) -> None:
    with pytest.raises(NoUpcast) as caught:
        decode(body(dataversion=version))
    if version == 5:
        assert "version 5, this Flyball knows 4" in caught.value.message
        assert "Upgrade" in caught.value.hint
