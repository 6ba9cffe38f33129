"""Payloads refuse nonsensical values and values that could stop a fold."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from driving import NEW, match
from pydantic import ValidationError

from flyball.app.events import (
    CATALOGUE,
    CheckpointAdded,
    EvaluationRequested,
    ExplorationBoost,
    MatchesRequested,
    MatchResult,
    ModelPromoted,
    ParityChecked,
    Payload,
    SelfplayFailed,
    originate,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.events.schemas import envelope_schema

SHARD = "c" * 64
PARITY = {"request_id": "r", "worker": None, "shard": SHARD, "against": None, "checked": 3, "failures": 0}
BOOST = {"multiplier": 1.5, "lasts_seconds": 60.0, "reason": "stall"}
EVIDENCE = {
    "evaluation_id": "e", "statistic": "llr", "value": 1.0, "threshold": 1.0, "games": 1, "elo": 0.0, "elo_stderr": 1.0
}  # fmt: skip
PROMOTION = {"model": NEW, "previous": None, "step": 0, "elo": 0.0, "evidence": EVIDENCE}
EVALUATION = {"purpose": "gate", "model": NEW, "step": 0, "seed": 1}
MATCHES = {"purpose": "retest", "model": NEW, "step": 0, "opponents": ("random",), "games": 2, "seed": 1}
CHECKPOINT = {
    "model": NEW, "parent": None, "step": 0, "elo": 0.0, "elo_stderr": 1.0, "games": 1, "roles": ("recent",)
}  # fmt: skip


RANGE = ({"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"})
BOUNDS: dict[str, tuple[set[str], ...]] = {
    "string": ({"maxLength", "pattern", "enum", "const", "readOnly", "format"},),
    "integer": RANGE,
    "number": RANGE,
    "array": ({"maxItems"},),
    "object": ({"properties", "maxProperties"},),
}
"""Bounding keywords by JSON type; a schema needs one of each set."""


def unbounded(schema: Any, where: str) -> Iterator[str]:
    """Yield the parts of a schema that admit values of any size."""
    if not isinstance(schema, Mapping):
        return
    if any(needed.isdisjoint(schema) for needed in BOUNDS.get(str(schema.get("type")), ())):
        yield where
    for name, part in schema.items():
        for one in part if isinstance(part, list) else [part]:
            yield from unbounded(one, f"{where}.{name}")


@pytest.mark.parametrize("payload", CATALOGUE, ids=lambda payload: payload.event_name)
def test_payload_every_field_is_bounded(payload: type[Payload]) -> None:
    schema = envelope_schema(payload)
    del schema["properties"]["dataversion"]
    assert list(unbounded(schema, payload.event_name)) == []


@pytest.mark.parametrize(
    ("payload", "data", "wrong"),
    [
        (
            ParityChecked,
            PARITY,
            {"checked": ("3", 3.0), "failures": (True, 4), "shard": ("shard",), "request_id": ("",)},
        ),
        (ExplorationBoost, BOOST, {"lasts_seconds": (1e308,), "multiplier": ("1.5",)}),
        (ModelPromoted, PROMOTION, {"model": ("", "A" * 64, "random", NEW + "\n"), "step": (10**400,)}),
        (ModelPromoted, PROMOTION, {"evidence": ({**EVIDENCE, "value": 1e300},)}),
        (EvaluationRequested, EVALUATION, {"seed": (-1, 2**63)}),
        (MatchesRequested, MATCHES, {"opponents": (("No body",), (NEW,))}),
        (CheckpointAdded, CHECKPOINT, {"parent": (NEW,)}),
    ],
)
def test_payload_implausible_value_is_refused(payload: Any, data: dict[str, Any], wrong: dict[str, Any]) -> None:
    payload(**data)
    for field, values in wrong.items():
        for value in values:
            with pytest.raises(ValidationError):
                payload(**{**data, field: value})


@pytest.mark.parametrize("change", [{"wins": 51}, {"truncated": 1}, {"distinct_games": 101}], ids=str)
def test_match_games_that_do_not_add_up_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        MatchResult.model_validate({**dict(match(0.5, 100)), **change})


def test_failure_of_any_message_can_be_reported() -> None:
    failed = SelfplayFailed(request_id="r", worker="w", error="\ud800" + "x" * 10_000)
    assert failed.error.startswith("?xxx")
    assert len(failed.error) == 4000


@pytest.mark.parametrize("years", [-1, 300])
def test_event_implausible_time_is_refused(years: int) -> None:
    failed = SelfplayFailed(request_id="r", worker="w", error="no")
    with pytest.raises(ValidationError):
        originate(failed, event_id="e", time=EPOCH.replace(year=1970 + years), subject="k")
