"""The published contract: a JSON Schema of every event type and one AsyncAPI document, made from the models.

They are checked in beside this module. ``python -m app.events.schemas check`` says what has changed since;
``write`` writes them anew, and refuses to change what an event of a published version looks like.
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

__all__ = ["Finding", "documents", "envelope_schema", "file_name", "findings", "render", "same_shape", "shape"]
