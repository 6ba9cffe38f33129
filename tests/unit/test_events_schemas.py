"""Published schemas: complete, up to date, no new shape without a version."""

import json
from copy import deepcopy
from typing import Any

import pytest
from jsonschema import Draft7Validator
from pydantic import Field, create_model

from flyball.app.events import BY_TYPE, CATALOGUE, Payload, Scope, envelope_model, resolve, schemas
from flyball.app.events.codec import UPCASTS
from flyball.app.events.schemas import documents, envelope_schema, file_name, problems, render, shape
from flyball.app.events.schemas.__main__ import FOLDER, main, read

TICK = "flyball.clock.tick.v1.json"


@pytest.fixture
def published() -> dict[str, str]:
    return {name: render(document) for name, document in documents().items()}


def reshape(published: dict[str, str], name: str, *path: str, value: Any) -> None:
    document = json.loads(published[name])
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    published[name] = render(document)


def test_documents_are_those_of_every_event_type_and_asyncapi() -> None:
    assert [problem.text for problem in problems(read(FOLDER))] == []
    names = {file_name(payload.event_type, payload.dataversion) for payload in CATALOGUE}
    assert set(documents()) == names | {"asyncapi.json"}
    assert set(documents()) <= set(read(FOLDER))


@pytest.mark.parametrize("payload", CATALOGUE, ids=lambda payload: payload.event_name)
def test_a_schema_is_a_schema_and_closed(payload: type[Payload]) -> None:
    schema = envelope_schema(payload)
    Draft7Validator.check_schema(schema)
    closed = [part for part in (schema, *schema["definitions"].values()) if part.get("type") == "object"]
    assert all(part["additionalProperties"] is False for part in closed)
    assert schema["properties"]["type"]["const"] == payload.event_type
    assert ("subject" in schema["required"]) == (payload.scope is Scope.CONFIG)


def test_a_missing_or_outdated_file_is_found(published: dict[str, str]) -> None:
    reshape(published, TICK, "description", value="Time went by.")
    (problem,) = problems(published)
    assert "out of date" in problem.text
    assert problem.rewrites
    del published[TICK]
    (problem,) = problems(published)
    assert problem.text.startswith(f"{TICK} is missing")
    assert problem.rewrites


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("definitions", "ClockTick", "properties", "period_seconds", "exclusiveMinimum"), 1),
        (("definitions", "ClockTick", "properties", "period_seconds", "type"), "integer"),
        (("definitions", "ClockTick", "properties", "description"), {"type": "string"}),
        (("definitions", "ClockTick", "required"), []),
        (("properties", "subject"), {"type": "string"}),
    ],
)
def test_another_shape_of_the_same_version_is_refused(published, path, value) -> None:
    reshape(published, TICK, *path, value=value)
    (problem,) = problems(published)
    assert "raise the payload's version" in problem.text
    assert not problem.rewrites


def test_a_payload_that_changes_without_its_version_is_refused(published, monkeypatch) -> None:
    tick = resolve("CLOCK_TICK")
    data = create_model("ClockTick", __base__=tick, drift_seconds=(float, Field(ge=0)))
    changed = create_model("Tick", __base__=envelope_model(tick), data=(data, ...))
    monkeypatch.setattr(schemas, "envelope_model", lambda one: changed if one is tick else envelope_model(one))
    (problem,) = problems(published)
    assert problem.text.startswith(f"{TICK} no longer describes its events")


def test_a_raised_version_needs_its_own_file_and_an_upcast(published, monkeypatch) -> None:
    tick = BY_TYPE["flyball.clock.tick"]
    monkeypatch.setattr(tick, "dataversion", 2)
    texts = [problem.text for problem in problems(published)]
    assert any("flyball.clock.tick.v2.json is missing" in text for text in texts)
    assert any("CLOCK_TICK lacks the upcast from version 1" in text for text in texts)
    assert not any(TICK in text for text in texts), "the file of the old version stays"
    monkeypatch.setitem(UPCASTS, ("flyball.clock.tick", 1), lambda data: data)
    assert not any("lacks the upcast" in problem.text for problem in problems(published))


@pytest.mark.parametrize("name", ["flyball.clock.tock.v1.json", "flyball.clock.tick.v2.json", "notes.json"])
def test_a_file_of_no_event_is_found(published: dict[str, str], name: str) -> None:
    (problem,) = problems(published | {name: "{}"})
    assert problem.text == f"{name} describes no event of ours: delete it."
    assert not problem.rewrites


@pytest.mark.parametrize("name", ["properties", "definitions", "title", "description"])
def test_shape_is_neither_order_nor_text(name: str) -> None:
    """A property may be called like a keyword."""
    one = envelope_schema(resolve("TRAINING_COMPLETED"))
    other = deepcopy(one)
    other["required"].reverse()
    other["title"] = other["description"] = "else"
    assert shape(one) == shape(other)
    other["required"].pop()
    assert shape(one) != shape(other)
    one = {"properties": {name: {"type": "string", "title": "One"}}}
    assert shape(one) == shape({"properties": {name: {"type": "string", "title": "Other"}}})
    assert shape(one) not in (shape({"properties": {name: {"type": "integer"}}}), shape({"properties": {}}))


def test_write_makes_what_check_asks_for_and_changes_nothing(tmp_path, published, capsys) -> None:
    assert main(["check"], tmp_path) == 1
    assert "is missing" in capsys.readouterr().err
    assert main(["write"], tmp_path) == 0
    assert main(["check"], tmp_path) == 0
    assert read(tmp_path) == published
    reshape(published, TICK, "required", value=[])
    (tmp_path / TICK).write_text(published[TICK])
    assert main(["write"], tmp_path) == 1
    assert read(tmp_path) == published
    assert TICK in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["wrong"], ["check", "write"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "check|write" in capsys.readouterr().err
