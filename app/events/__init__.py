"""Typed events in CloudEvents envelopes. All payloads and their values are public."""

from app.events.catalogue import (
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
from app.events.codec import MalformedEvent, NoUpcast, decode, id_in
from app.events.decisions import *
from app.events.envelope import Cause, Envelope, Event, encode
from app.events.facts import *
from app.events.payload import *
from app.events.reducer import Emission, Follower, HandlerReducer, Reducer, Step, handles
from app.events.requests import *
from app.events.rows import Row
from app.events.tracing import BadTraceparent, check_traceparent, parent_span_id, span_id, trace_id, traceparent_of
