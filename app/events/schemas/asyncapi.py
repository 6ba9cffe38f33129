"""The AsyncAPI 3.0 document: one channel, the journal, that carries every event in one order.

Source: AsyncAPI 3.0.0 (https://www.asyncapi.com/docs/reference/specification/v3.0.0).
"""

from collections.abc import Mapping
from typing import Any

from app.events.payload import Payload

ASYNCAPI_FILE = "asyncapi.json"
SCHEMA_FORMAT = "application/schema+json;version=draft-07"
CHANNEL = "journal"


def asyncapi_document(files: Mapping[type[Payload], str]) -> dict[str, Any]:
    """Return the AsyncAPI document; ``files`` says where each event's schema is, beside the document."""
    messages = {payload.seed_name: _message(payload, file) for payload, file in files.items()}
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
        "title": payload.seed_name,
        "summary": payload.__doc__,
        "tags": [{"name": payload.kind.value}, {"name": payload.scope.value}],
        "correlationId": {"location": "$message.payload#/correlationid"},
        "payload": {"schemaFormat": SCHEMA_FORMAT, "schema": {"$ref": f"./{file}"}},
    }
