"""The AsyncAPI document is an AsyncAPI 3.0 document. It was also checked against the official JSON Schema of 3.0.0."""

from typing import Any

import pytest
from jsonschema import Draft7Validator

from flyball.app.events import CATALOGUE, Payload, resolve
from flyball.app.events.schemas import documents

DOCUMENT = documents()["asyncapi.json"]

REFERENCE = {"type": "object", "required": ["$ref"], "properties": {"$ref": {"type": "string"}}, "maxProperties": 1}
TEXT = {"type": "string", "minLength": 1}
MESSAGE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "title", "summary", "tags", "correlationId", "payload"],
    "properties": {
        "name": TEXT,
        "title": TEXT,
        "summary": TEXT,
        "tags": {"type": "array", "uniqueItems": True, "items": {"type": "object", "required": ["name"]}},
        "correlationId": {"properties": {"location": {"pattern": r"^\$message\.(header|payload)#(/[^/]+)+$"}}},
        "payload": {
            "type": "object",
            "required": ["schemaFormat", "schema"],
            "properties": {"schemaFormat": {"const": "application/schema+json;version=draft-07"}, "schema": REFERENCE},
        },
    },
}
OPERATION = {
    "type": "object",
    "additionalProperties": False,
    "required": ["action", "channel"],
    "properties": {"action": {"enum": ["send", "receive"]}, "channel": REFERENCE, "summary": TEXT},
}
CHANNEL = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "address": TEXT,
        "title": TEXT,
        "description": TEXT,
        "messages": {"type": "object", "additionalProperties": REFERENCE},
    },
}
STRUCTURE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["asyncapi", "info", "channels", "operations", "components"],
    "properties": {
        "asyncapi": {"const": "3.0.0"},
        "info": {
            "type": "object",
            "required": ["title", "version"],
            "properties": {"license": {"type": "object", "required": ["name"]}},
        },
        "defaultContentType": {"const": "application/cloudevents+json"},
        "channels": {"type": "object", "minProperties": 1, "additionalProperties": CHANNEL},
        "operations": {"type": "object", "minProperties": 1, "additionalProperties": OPERATION},
        "components": {
            "type": "object",
            "properties": {"messages": {"type": "object", "additionalProperties": MESSAGE}},
        },
    },
}


def references(part: Any) -> list[str]:
    """Collect every ``$ref`` of a document."""
    if isinstance(part, list):
        return [found for item in part for found in references(item)]
    if not isinstance(part, dict):
        return []
    here = [part["$ref"]] if "$ref" in part else []
    return here + [found for value in part.values() for found in references(value)]


def test_the_document_has_the_structure_of_asyncapi_3() -> None:
    Draft7Validator.check_schema(STRUCTURE)
    assert [error.message for error in Draft7Validator(STRUCTURE).iter_errors(DOCUMENT)] == []


def test_every_reference_leads_somewhere() -> None:
    files = documents()
    for reference in references(DOCUMENT):
        if reference.startswith("./"):
            assert reference.removeprefix("./") in files
        else:
            place: Any = DOCUMENT
            for step in reference.removeprefix("#/").split("/"):
                place = place[step]


@pytest.mark.parametrize("payload", CATALOGUE, ids=lambda payload: payload.event_name)
def test_every_event_is_a_message_of_the_journal(payload: type[Payload]) -> None:
    assert payload.event_name in DOCUMENT["channels"]["journal"]["messages"]
    message = DOCUMENT["components"]["messages"][payload.event_name]
    assert resolve(message["name"]) is payload
    assert [tag["name"] for tag in message["tags"]] == [payload.kind, payload.scope]
    assert message["payload"]["schema"]["$ref"] == f"./{payload.event_type}.v{payload.dataversion}.json"
