"""A journal as CloudEvents in JSON lines, and back.

A line is an event's own bytes with three more attributes: ``source``, ``sequence`` and ``recordedtime``. An event that
can't be read, or whose bytes would change, is a line with ``data_base64``, its bytes, and ``idhash``, so that nothing
is lost.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import NamedTuple

import msgspec
from msgspec import Raw

from flyball.app.core import NAME_LENGTH, FlyballError
from flyball.app.events.codec import decode
from flyball.app.events.envelope import EPOCH, SEQUENCE_DIGITS
from flyball.app.events.frames import Draft, Frame, FrameBuilder, Record, hash_id, seal, stored_in
from flyball.app.journal.ports import JournalLocation, JournalReader

MICROSECOND = timedelta(microseconds=1)
RECORD_EVENTS = 256
RECORDS_PER_TRANSACTION = 256
RAW_TYPE = "data_base64"


class BadLine(FlyballError):
    """A line that is no exported event, or is out of order."""


class _Line(NamedTuple):
    draft: Draft
    sequence: int
    recorded_us: int
    source: str


def export_lines(reader: JournalReader, after: int = 0) -> Iterator[bytes]:
    """Iterate over all events after a position, one line each. Raises ``DamagedRecord`` or ``MissingEvents``."""
    while (chunk := reader.read(after)).position > after:
        for record in chunk.records:
            yield from _lines_of(record, after)
        after = chunk.position


def _lines_of(record: Record, after: int) -> Iterator[bytes]:
    recorded = (EPOCH + record.recorded_us * MICROSECOND).isoformat()
    for event in stored_in(record, after=after):
        id_hash = record.frame.ids[event.sequence - record.first]
        stamps = {
            "source": event.source,
            "sequence": str(event.sequence).zfill(SEQUENCE_DIGITS),
            "recordedtime": recorded,
        }
        if _is_plain(event.body, id_hash, event.type, event.subject):
            yield event.body[:-1] + b"," + json.dumps(stamps).encode()[1:] + b"\n"
        else:
            attributes = {"specversion": "1.0", "id": str(event.sequence), "type": event.type, "subject": event.subject}
            line = attributes | {"idhash": str(id_hash), RAW_TYPE: b64encode(event.body).decode()} | stamps
            yield json.dumps(line).encode() + b"\n"


def _is_plain(body: bytes, id_hash: int, event_type: str, subject: str) -> bool:
    """Return whether an event's bytes are readable, and those that an import makes of a line's attributes."""
    try:
        envelope = decode(body)
    except FlyballError:
        return False
    if _join(_attributes(body)) != body or b"\n" in body:
        return False
    return (hash_id(envelope.id), envelope.type, envelope.subject or "") == (id_hash, event_type, subject)


def _join(attributes: Mapping[str, Raw]) -> bytes:
    return b"{" + b",".join(json.dumps(name).encode() + b":" + bytes(raw) for name, raw in attributes.items()) + b"}"


def import_lines(location: JournalLocation, lines: Iterable[bytes]) -> int:
    """Write exported events into a new journal; return its head.

    The journal appears once it is complete.

    Args:
        location: of the journal; there must be none.
        lines: as exported, from position 1 on.

    Raises:
        BadLine: names the line and what is wrong with it. No journal is left.
        StorageError: the journal exists, or cannot be written.
    """
    with location.filling() as journal:
        records = _records(_parse_all(lines))
        while part := list(islice(records, RECORDS_PER_TRANSACTION)):
            journal.append(part)
            journal.maintain(idle=False)
        return journal.head


def _records(lines: Iterable[_Line]) -> Iterator[Record]:
    """Seal the events that one source published at one moment as records."""
    for (source, recorded_us), group in groupby(lines, key=lambda line: (line.source, line.recorded_us)):
        while part := list(islice(group, RECORD_EVENTS)):
            first = part[0].sequence
            builder = FrameBuilder(source)
            builder.add([line.draft for line in part])
            frame = Frame.parse(builder.build(first, 0))
            yield seal(frame, first=first, recorded_us=recorded_us, source=source)


def _parse_all(lines: Iterable[bytes]) -> Iterator[_Line]:
    position, recorded_us = 0, 0
    for number, text in enumerate(lines, 1):
        try:
            line = _parse(text)
        except (FlyballError, ValueError, TypeError, KeyError, RecursionError, msgspec.MsgspecError) as error:
            why = error.message if isinstance(error, FlyballError) else f"it is not an exported event ({error!r})"
            raise _bad(number, why) from error
        if line.sequence != position + 1:
            raise _bad(number, f"its sequence is {line.sequence}, and {position + 1} is next")
        if line.recorded_us < recorded_us:
            raise _bad(number, "its recordedtime is before that of the line above")
        position, recorded_us = line.sequence, line.recorded_us
        yield line


def _bad(number: int, why: str) -> BadLine:
    return BadLine(
        f"Line {number}: {why.rstrip('.')}.",
        hint="Nothing was imported. A file of `flyball journal export` holds all events from the first on, in order.",
    )


_attributes = msgspec.json.Decoder(dict[str, Raw]).decode


def _parse(text: bytes) -> _Line:
    """Parse a line. Raises ``ValueError``, ``KeyError``, ``TypeError`` or what ``decode`` raises."""
    attributes = _attributes(text)
    source, sequence, recorded = (_text(attributes.pop(name)) for name in ("source", "sequence", "recordedtime"))
    recorded_us = (datetime.fromisoformat(recorded) - EPOCH) // MICROSECOND
    if not 0 < len(source.encode()) <= NAME_LENGTH or not sequence.isdecimal() or not 0 <= recorded_us < 1 << 63:
        raise ValueError(f"source {source!r}, sequence {sequence!r}, recordedtime {recorded!r}")
    if RAW_TYPE in attributes:
        id_hash, kind, subject = (_text(attributes[name]) for name in ("idhash", "type", "subject"))
        if not 0 <= int(id_hash) < 1 << 64 or max(len(name.encode()) for name in (kind, subject)) >= 1 << 16:
            raise ValueError(f"idhash {id_hash}, type {kind!r}, subject {subject!r}")
        body = b64decode(_text(attributes[RAW_TYPE]), validate=True)
        return _Line(Draft(int(id_hash), kind, subject, body), int(sequence), recorded_us, source)
    body = _join(attributes)
    envelope = decode(body)
    draft = Draft(hash_id(envelope.id), envelope.type, envelope.subject or "", body)
    return _Line(draft, int(sequence), recorded_us, source)


def _text(raw: Raw) -> str:
    return msgspec.json.decode(raw, type=str)
