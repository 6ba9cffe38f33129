"""TensorBoard's event files: scalars, gathered into a record for each step.

A file is a sequence of records: the length of the data, its checksum, the data, its checksum (TFRecord). A step's
record is complete once it has all wanted tags, or once another step follows. Without the length of a record the next
one cannot be found, so reading stops there until the file changes at that place.
"""

import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO

from flyball.app.observing.following import FollowedFile, Problem, RawRecord, Values

_LENGTH, _CHECKSUM = Struct("<Q"), Struct("<I")
_HEADER = _LENGTH.size + _CHECKSUM.size

LARGEST_EVENT_BYTES = 1 << 16
"""Bytes of the largest event that is read. Scalars are small; images, audio and histograms are skipped."""

STEP = "step"

_DAMAGED = "the file is damaged here, or not an event file; nothing after this is read"
_ZEROS = (
    "zeros are here, which a crash of the writer's machine leaves, or a file system shows before it has what was "
    "written; what comes in their place will be read"
)


class EventFile(FollowedFile):
    """An event file, with the tags that are wanted of it."""

    def __init__(self, path: Path, tags: Collection[str], wanted: Callable[[Values], bool] = lambda _: True) -> None:
        self._tags = frozenset(tags) - {STEP}
        super().__init__(path, wanted)

    def _begin(self) -> None:
        super()._begin()
        self._bad_offset: int | None = None  # of a record that has no length, which is reported already
        self._step: int | None = None
        self._scalars: dict[str, float] = {}

    def _added(self, file: BinaryIO, end: int) -> Iterator[RawRecord | Problem]:
        from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c  # late: it takes half a second

        while self._offset < end and len(header := file.read(_HEADER)) == _HEADER:
            place = f"byte {self._offset}"
            length = _LENGTH.unpack_from(header)[0]
            if masked_crc32c(header[: _LENGTH.size]) != _CHECKSUM.unpack_from(header, _LENGTH.size)[0]:
                if self._bad_offset != self._offset:
                    yield Problem(place, _DAMAGED if any(header) else _ZEROS)
                self._bad_offset = self._offset
                return  # no later record can be found; a look that finds this one continues
            if length > LARGEST_EVENT_BYTES:
                if not self._skipped(file, header, length + _CHECKSUM.size):
                    return
                continue
            body = file.read(length + _CHECKSUM.size)
            if len(body) < length + _CHECKSUM.size:
                return  # it is not complete yet
            self._advance(header + body)
            data = body[:length]
            if masked_crc32c(data) != _CHECKSUM.unpack_from(body, length)[0]:
                yield Problem(place, "the event is damaged")
                continue
            yield from self._event(data, place)

    def _skipped(self, file: BinaryIO, header: bytes, length: int) -> bool:
        """Skip a large event; return whether it was complete."""
        begin, end = file.tell(), file.seek(0, 2)
        if begin + length > end:
            return False
        file.seek(begin)
        self._advance(header)
        while length:
            length -= len(part := file.read(min(length, LARGEST_EVENT_BYTES)))
            self._advance(part)
        return True

    def _event(self, data: bytes, place: str) -> Iterator[RawRecord | Problem]:
        from google.protobuf.message import DecodeError
        from tensorboard.compat.proto.event_pb2 import Event

        try:
            event = Event.FromString(data)
        except DecodeError:
            yield Problem(place, "the event cannot be decoded")
            return
        for value in event.summary.value:
            if value.tag not in self._tags or (scalar := _scalar(value)) is None:
                continue
            if self._scalars and (self._step != event.step or value.tag in self._scalars):
                yield self._gathered()
            self._step = event.step
            self._scalars[value.tag] = scalar
            if self._scalars.keys() == self._tags:
                yield self._gathered()

    def _gathered(self) -> RawRecord:
        values: dict[str, Any] = {STEP: self._step, **self._scalars}
        self._scalars = {}
        return RawRecord(f"step {self._step}", json.dumps(values, sort_keys=True).encode(), values)


def _scalar(value: Any) -> float | None:
    """Return a summary's number; None for anything else."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if value.HasField("tensor"):
        from tensorboard.util.tensor_util import make_ndarray

        try:
            array = make_ndarray(value.tensor)
            return float(array.item()) if array.size == 1 else None
        except (TypeError, ValueError, KeyError):
            return None
    return None
