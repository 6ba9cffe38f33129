"""The published contract: a JSON Schema of every event type and one AsyncAPI document, made from the models.

They are checked in beside this module. ``python -m app.events.schemas check`` says what has changed since;
``write`` writes them again, and refuses to change the schema of a published version.
"""

from app.events.schemas.contract import (
    Finding,
    documents,
    envelope_schema,
    file_name,
    findings,
    render,
    same_shape,
    shape,
)

__all__ = [
    "Finding",
    "documents",
    "envelope_schema",
    "file_name",
    "findings",
    "render",
    "same_shape",
    "shape",
]
