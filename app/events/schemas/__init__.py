"""Published contract: JSON Schemas of all event types, one AsyncAPI document.

The documents are made from the models.

The files are checked in beside this module. ``python -m flyball.app.events.schemas check`` lists the files that differ
from the models. ``write`` updates them, but refuses to change the schema of a published version.

Source: AsyncAPI 3.0.0 (https://www.asyncapi.com/docs/reference/specification/v3.0.0).
"""

import json
from collections.abc import Mapping
from inspect import getdoc
from typing import Any, NamedTuple

from pydantic.json_schema import GenerateJsonSchema

from flyball.app.events.catalogue import CATALOGUE, envelope_model
from flyball.app.events.codec import UPCASTS
from flyball.app.events.payload import Payload, Scope

ASYNCAPI_FILE = "asyncapi.json"
SCHEMA_FORMAT = "application/schema+json;version=draft-07"
CHANNEL = "journal"


def asyncapi_document(files: Mapping[type[Payload], str]) -> dict[str, Any]:
    """Return the AsyncAPI document, whose one channel is the journal. ``files`` names each event's schema file."""
    messages = {
        payload.event_name: {
            "name": payload.event_type,
            "title": payload.event_name,
            "summary": (getdoc(payload) or "").partition("\n")[0],
            "tags": [{"name": payload.kind.value}, {"name": payload.scope.value}],
            "correlationId": {"location": "$message.payload#/correlationid"},
            "payload": {"schemaFormat": SCHEMA_FORMAT, "schema": {"$ref": f"./{file}"}},
        }
        for payload, file in files.items()
    }
    channel = {"$ref": f"#/channels/{CHANNEL}"}
    publish = "Publish an event; the broker records, stamps and acknowledges it."
    follow = "Read events from any position on; at least once."
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Flyball events",
            "version": "1.0.0",
            "description": "What Flyball's daemons tell each other, as CloudEvents 1.0 in structured JSON.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/cloudevents+json",
        "channels": {
            CHANNEL: {
                "address": CHANNEL,
                "title": "The journal",
                "description": "All events in one total order. An acknowledged event is durable.",
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
            }
        },
        "operations": {
            "publish": {"action": "send", "summary": publish, "channel": channel},
            "follow": {"action": "receive", "summary": follow, "channel": channel},
        },
        "components": {"messages": messages},
    }


DIALECT = "http://json-schema.org/draft-07/schema#"
"""The draft that every AsyncAPI tool reads; pydantic's schemas use nothing newer except the name ``$defs``."""

REWRITE = "run `python -m flyball.app.events.schemas write`"
RAISE = "raise the payload's version and add an upcast, or delete the file if no journal holds such events"

ANNOTATIONS = frozenset({"title", "description"})
NAMES = frozenset({"properties", "definitions"})
"""Keywords that map names to schemas; the names are not keywords."""

STAMPS: dict[str, Any] = {
    "source": {"description": "The producer, daemon@node.", "format": "uri-reference", "minLength": 1},
    "sequence": {"description": "Position in the journal, from 1, without gaps.", "pattern": "^[0-9]{19}$"},
    "recordedtime": {"description": "When the broker recorded the event, never decreasing.", "format": "date-time"},
}
"""Attributes that the broker sets: absent when an event is published, present when it is read."""


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        """Omit titles, which only repeat the fields' names."""
        return False


def file_name(event_type: str, version: int) -> str:
    """Return the name of the schema file of an event's version."""
    return f"{event_type}.v{version}.json"


def envelope_schema(payload: type[Payload]) -> dict[str, Any]:
    """Return the JSON Schema of an event type's envelope and payload."""
    schema = envelope_model(payload).model_json_schema(ref_template="#/definitions/{model}", schema_generator=_Untitled)
    definitions = schema.pop("$defs")
    properties = schema["properties"]
    properties |= {name: {"type": "string", "readOnly": True} | stamp for name, stamp in STAMPS.items()}
    required = [*schema["required"], "specversion"]
    if payload.scope is Scope.CONFIG:
        properties["subject"] = {"description": "The config_key.", "maxLength": 255, "minLength": 1, "type": "string"}
        required.append("subject")
    else:
        properties["subject"] = {"type": "null"}
    head = {"$schema": DIALECT, "$id": f"urn:flyball:{payload.event_type}:{payload.dataversion}"}
    text = {"title": payload.event_name, "description": getdoc(payload)}
    return head | schema | text | {"required": sorted(required), "definitions": definitions}


def documents() -> dict[str, dict[str, Any]]:
    """Return all documents by file name: the schemas of the current versions and the AsyncAPI document."""
    files = {payload: file_name(payload.event_type, payload.dataversion) for payload in CATALOGUE}
    schemas = {file: envelope_schema(payload) for payload, file in files.items()}
    return schemas | {ASYNCAPI_FILE: asyncapi_document(files)}


def shape(schema: Any, *, names: bool = False) -> Any:
    """Return a schema without annotations and order.

    Two schemas with the same shape admit the same events. With ``names``, the keys are names of properties or
    definitions, and all of them stay.
    """
    if isinstance(schema, list):
        return sorted((shape(item) for item in schema), key=repr)
    if not isinstance(schema, Mapping):
        return schema
    constraints = {key: value for key, value in schema.items() if names or key not in ANNOTATIONS}
    return {key: shape(value, names=not names and key in NAMES) for key, value in sorted(constraints.items())}


class SchemaProblem(NamedTuple):
    """A problem of the checked-in files."""

    text: str  # the problem and what to do about it, in one sentence
    rewrites: bool  # whether ``write`` fixes it; otherwise people decide


def problems(published: Mapping[str, str]) -> list[SchemaProblem]:
    """Compare the checked-in files with the models. ``published`` has the files' texts by file name."""
    result: list[SchemaProblem] = []
    present = documents()
    for name, document in present.items():
        text = published.get(name)
        if text is None:
            result.append(SchemaProblem(f"{name} is missing: {REWRITE}.", rewrites=True))
        elif text == render(document):
            continue
        elif name == ASYNCAPI_FILE or shape(json.loads(text)) == shape(document):
            result.append(SchemaProblem(f"{name} is out of date: {REWRITE}.", rewrites=True))
        else:
            result.append(SchemaProblem(f"{name} no longer describes its events: {RAISE}.", rewrites=False))
    older = [(payload, version) for payload in CATALOGUE for version in range(1, payload.dataversion)]
    described = {*present, *(file_name(payload.event_type, version) for payload, version in older)}
    result += [
        SchemaProblem(f"{name} describes no event of ours: delete it.", rewrites=False)
        for name in sorted(published.keys() - described)
    ]
    result += [
        SchemaProblem(f"{payload.event_name} lacks the upcast from version {version}: add it.", rewrites=False)
        for payload, version in older
        if (payload.event_type, version) not in UPCASTS
    ]
    return result


def render(document: Mapping[str, Any]) -> str:
    """Return a document as the text that is checked in."""
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
