"""The published contract: a JSON Schema of every event type and one AsyncAPI document, made from the models.

They are checked in beside this module. ``python -m app.events.schemas check`` lists what has changed since; ``write``
writes them again, and refuses to change the schema of a published version. Files are read and written by ``__main__``.
Source: AsyncAPI 3.0.0 (https://www.asyncapi.com/docs/reference/specification/v3.0.0).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from app.events.catalogue import BY_TYPE, CATALOGUE, ENVELOPES
from app.events.codec import UPCASTS
from app.events.payload import Payload, Scope

ASYNCAPI_FILE = "asyncapi.json"
SCHEMA_FORMAT = "application/schema+json;version=draft-07"
CHANNEL = "journal"


def asyncapi_document(files: Mapping[type[Payload], str]) -> dict[str, Any]:
    """Return the AsyncAPI document: one channel, the journal; ``files`` names each event's schema file."""
    messages = {payload.event_name: _message(payload, file) for payload, file in files.items()}
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
            "publish": _operation("send", "Publish an event; the broker records, stamps and acknowledges it."),
            "follow": _operation("receive", "Read events from any position on; at least once."),
        },
        "components": {"messages": messages},
    }


def _operation(action: str, summary: str) -> dict[str, Any]:
    return {"action": action, "summary": summary, "channel": {"$ref": f"#/channels/{CHANNEL}"}}


def _message(payload: type[Payload], file: str) -> dict[str, Any]:
    return {
        "name": payload.event_type,
        "title": payload.event_name,
        "summary": payload.__doc__,
        "tags": [{"name": payload.kind.value}, {"name": payload.scope.value}],
        "correlationId": {"location": "$message.payload#/correlationid"},
        "payload": {"schemaFormat": SCHEMA_FORMAT, "schema": {"$ref": f"./{file}"}},
    }


DIALECT = "http://json-schema.org/draft-07/schema#"
"""The draft that every AsyncAPI tool reads; pydantic's schemas use nothing newer except the name ``$defs``."""

REWRITE = "run `python -m app.events.schemas write`"

ANNOTATIONS = frozenset({"title", "description"})
NAMES = frozenset({"properties", "definitions"})
"""Keywords whose keys are names, not keywords."""

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
    """Return the name of the file with the schema of this version of an event type."""
    return f"{event_type}.v{version}.json"


def envelope_schema(payload: type[Payload]) -> dict[str, Any]:
    """Return the JSON Schema of a whole event, envelope and payload, of this type."""
    schema = ENVELOPES[payload.event_type].model_json_schema(
        ref_template="#/definitions/{model}", schema_generator=_Untitled
    )
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
    text = {"title": payload.event_name, "description": payload.__doc__}
    return head | schema | text | {"required": sorted(required), "definitions": definitions}


def documents() -> dict[str, dict[str, Any]]:
    """Return all documents by file name: the schemas of the current versions and the AsyncAPI document."""
    files = {payload: file_name(payload.event_type, payload.dataversion) for payload in CATALOGUE}
    schemas = {file: envelope_schema(payload) for payload, file in files.items()}
    return schemas | {ASYNCAPI_FILE: asyncapi_document(files)}


def same_shape(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two schemas admit the same events: titles and descriptions may differ."""
    return bool(shape(one) == shape(other))


def shape(schema: Any, *, names: bool = False) -> Any:
    """Drop a schema's annotations and order; with ``names``, the keys name properties or definitions and stay."""
    if isinstance(schema, list):
        return sorted((shape(item) for item in schema), key=repr)
    if not isinstance(schema, Mapping):
        return schema
    kept = {key: value for key, value in schema.items() if names or key not in ANNOTATIONS}
    return {key: shape(value, names=not names and key in NAMES) for key, value in sorted(kept.items())}


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of the checked-in files.

    Attributes:
        text: the problem and what to do about it, in one sentence.
        rewrites: whether ``write`` fixes it; otherwise people decide.
    """

    text: str
    rewrites: bool


def findings(published: Mapping[str, str]) -> list[Finding]:
    """Compare the checked-in files, given as text by file name, with the models."""
    present = documents()
    compared = (_compare(name, document, published.get(name)) for name, document in present.items())
    left_over = (_left_over(name) for name in published if name not in present)
    return [finding for finding in (*compared, *left_over, *map(_unreachable, CATALOGUE)) if finding]


def _compare(name: str, document: Mapping[str, Any], text: str | None) -> Finding | None:
    if text is None:
        return Finding(f"{name} is missing: {REWRITE}.", rewrites=True)
    if text == render(document):
        return None
    if name == ASYNCAPI_FILE or same_shape(json.loads(text), document):
        return Finding(f"{name} is out of date: {REWRITE}.", rewrites=True)
    what_to_do = "raise the payload's version and add an upcast, or delete the file if no journal holds such events"
    return Finding(f"{name} no longer describes its events: {what_to_do}.", rewrites=False)


def _left_over(name: str) -> Finding | None:
    event_type, _, version = name.removesuffix(".json").rpartition(".v")
    payload = BY_TYPE.get(event_type)
    if payload is not None and version.isdecimal() and int(version) < payload.dataversion:
        return None
    return Finding(f"{name} describes no event of ours: delete it.", rewrites=False)


def _unreachable(payload: type[Payload]) -> Finding | None:
    missing = [step for step in range(1, payload.dataversion) if (payload.event_type, step) not in UPCASTS]
    if not missing:
        return None
    return Finding(f"{payload.event_name} lacks the upcast from version {missing[0]}: add it.", rewrites=False)


def render(document: Mapping[str, Any]) -> str:
    """Return a document as the text that is checked in."""
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
