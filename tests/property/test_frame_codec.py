"""Frames and records read as written; damage to any byte is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.app.events.frames import DamagedFrame, DamagedRecord, Draft, Frame, FrameBuilder, Record, seal

names = st.text(min_size=0, max_size=12)
events = st.lists(
    st.tuples(st.integers(0, 2**64 - 1), names, names, st.binary(min_size=0, max_size=80)), min_size=1, max_size=20
)
numbers = st.integers(0, 2**63 - 1)


def build(rows, producer="trainer@a", epoch=7, base=3):
    builder = FrameBuilder(producer)
    builder.add([Draft(*row) for row in rows])
    return builder.build(epoch, base)


@given(rows=events, producer=names, epoch=numbers, base=numbers)
def test_a_frame_reads_as_it_was_written(rows, producer, epoch, base):
    frame = Frame.parse(build(rows, producer, epoch, base))
    assert (frame.producer, frame.epoch, frame.base, frame.count) == (producer, epoch, base, len(rows))
    read = zip(
        frame.ids,
        (frame.types[i] for i in frame.type_refs),
        (frame.subjects[i] for i in frame.subject_refs),
        frame.bodies(),
        strict=True,
    )
    assert list(read) == rows


@given(rows=events, first=numbers, recorded_us=numbers, source=names)
def test_a_record_reads_as_it_was_sealed(rows, first, recorded_us, source):
    sealed = seal(Frame.parse(build(rows)), first=first, recorded_us=recorded_us, source=source)
    read = Record.open(sealed.raw, expected=first)
    assert (read.first, read.recorded_us, read.source, read.last) == (first, recorded_us, source, first + len(rows) - 1)
    assert read.frame.raw == sealed.frame.raw
    assert read.frame.bodies() == [row[3] for row in rows]


@given(rows=events, data=st.data())
def test_any_flipped_byte_of_a_frame_is_refused(rows, data):
    raw = bytearray(build(rows))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedFrame):
        Frame.parse(bytes(raw))


@given(rows=events, data=st.data())
def test_a_cut_or_grown_record_is_refused(rows, data):
    """Guarantee (ADR-004): every record is checksummed."""
    raw = seal(Frame.parse(build(rows)), first=5, recorded_us=9, source="s").raw
    cut = data.draw(st.integers(0, len(raw) - 1))
    for damaged in (raw[:cut], raw + b"\0"):
        with pytest.raises(DamagedRecord):
            Record.open(damaged, expected=5)


@given(rows=events)
def test_a_header_alone_is_verified_without_its_bodies(rows):
    sealed = seal(Frame.parse(build(rows)), first=5, recorded_us=9, source="s")
    head = sealed.raw[: len(sealed.raw) - sum(sealed.frame.lengths)]
    assert Record.open(head, bodies=False).frame.types == sealed.frame.types


@given(junk=st.binary(max_size=200))
def test_junk_is_no_frame(junk):
    with pytest.raises(DamagedFrame):
        Frame.parse(junk)


@given(rows=events, flipped=st.integers(1, 255))
def test_every_byte_of_a_record_counts(rows, flipped):
    """Guarantee (ADR-004): every record is checksummed."""
    raw = seal(Frame.parse(build(rows[:3])), first=5, recorded_us=9, source="s").raw
    for at in range(len(raw)):
        with pytest.raises(DamagedRecord, match="position 5"):
            Record.open(raw[:at] + bytes([raw[at] ^ flipped]) + raw[at + 1 :], expected=5)
