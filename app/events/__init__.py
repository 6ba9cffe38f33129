"""Typed events in CloudEvents envelopes. All payloads and their values are public."""

from flyball.app.events.catalogue import (
    BY_NAME,
    BY_TYPE,
    CATALOGUE,
    UnknownEventType,
    envelope_model,
    follow,
    matching,
    originate,
    resolve,
)
from flyball.app.events.codec import MalformedEvent, NoUpcast, decode, id_in
from flyball.app.events.decisions import *
from flyball.app.events.envelope import Cause, Envelope, Event, encode
from flyball.app.events.facts import *
from flyball.app.events.payload import *
from flyball.app.events.reducer import Emission, Follower, HandlerReducer, Reducer, Step, handles
from flyball.app.events.requests import *
from flyball.app.events.rows import Row
from flyball.app.events.tracing import (
    BadTraceparent,
    check_traceparent,
    parent_span_id,
    span_id,
    trace_id,
    traceparent_of,
)
