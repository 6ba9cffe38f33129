"""The dashboard's index of events."""

from hypothesis import given
from hypothesis import strategies as st
from recorded_run import KEY, recording

from flyball.app.dashboard.index import EventIndex
from flyball.app.events import ModelPromoted, TrainingCompleted


def indexed(most: int = 1_000_000) -> EventIndex:
    index = EventIndex(most)
    for event in recording().events:
        index.add(event)
    return index


def test_index_finds_every_event_by_its_id_but_the_oldest():
    index = indexed()
    assert [index.find(event.id) for event in recording().events] == list(range(1, 17))
    assert index.find("nothing") is None
    index = indexed(most=8)
    assert index.find(recording().events[0].id) is None
    assert index.select()[-1] == 16
    assert len(index.select()) in (8, 9, 10)
    assert index.cause(1) is None


def test_index_knows_causes_and_effects_as_recorded():
    index, events = indexed(), recording().events
    by_id = {event.id: event.sequence for event in events}
    for event in events:
        cause = event.envelope.causationid
        assert index.cause(event.sequence) == (by_id[cause] if cause else None)
        effects = [one.sequence for one in events if one.envelope.causationid == event.id]
        assert index.effects(event.sequence) == effects


def test_index_selects_by_type_and_configuration():
    index, events = indexed(), recording().events
    types = {TrainingCompleted.event_type, ModelPromoted.event_type}
    wanted = [event.sequence for event in events if event.data.event_type in types]
    assert index.select(types) == wanted
    assert index.select(types, last=1) == wanted[-1:]
    assert index.select(None, KEY, after=6, before=10) == [e.sequence for e in events[6:9] if e.subject == KEY]
    assert index.select(None, "unknown_2p") == []
    assert index.select(None, last=0) == []
    assert index.select(after=3, first=2) == [4, 5]
    assert index.select(after=3, last=2) == [15, 16]


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_skipped_positions_match_nothing(kept):
    events = [event for event, keep in zip(recording().events * 2, kept, strict=False) if keep][:16]
    events = sorted({event.sequence: event for event in events}.values(), key=lambda one: one.sequence)
    index = EventIndex()
    for event in events:
        index.add(event)
    assert index.select() == [event.sequence for event in events]
