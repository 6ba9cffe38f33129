"""Property: a journal on PostgreSQL that is opened again and again is that in memory (ADR-040)."""

from collections.abc import Iterable, Sequence

import pytest
from archives import record_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postgres_server import new_schema
from profiles import examples

pytest.importorskip("psycopg")

from flyball.app.events import EventVoided, RunConfigured
from flyball.app.events.frames import DeadLetter, Record
from flyball.app.journal import Journal
from flyball.app.journal.memory import MemoryJournal
from flyball.app.journal.postgres_journal import PostgresJournal

TYPES = ("a", RunConfigured.event_type, EventVoided.event_type)
PRODUCERS = ("p", "é\0")

frames = st.lists(st.sampled_from(TYPES), min_size=1, max_size=3)
marks = st.dictionaries(st.tuples(st.sampled_from(PRODUCERS), st.integers(0, 11)), st.integers(0, 9), max_size=3)
letter = st.builds(DeadLetter, st.integers(0, 3), st.just("p"), st.sampled_from("rs"), st.just("e"), st.just(b""))
letters = st.lists(letter)
steps = st.one_of(st.tuples(st.lists(frames, max_size=3), marks, letters), st.integers(1, 6), st.none())


def records(first: int, batch: Sequence[Sequence[str]]):
    for types in batch:
        yield record_of(first, [b"x"] * len(types), kinds=dict(enumerate(types, first)))
        first += len(types)


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps, max_size=12))
def test_any_history_reads_as_in_memory(postgres: str, history: list[object]) -> None:
    url, memory = new_schema(postgres), MemoryJournal()
    journal = PostgresJournal(url)
    try:
        for kind in (journal, memory):
            kind.append(list(records(1, [["a", "a", "a"]])))  # dead letters are about recorded events
        for step in history:
            if step is None:
                journal.close()
                journal = PostgresJournal(url)
            else:
                take(journal, step)
                take(memory, step)
            check(journal, memory)
    finally:
        journal.close()


def take(journal: Journal, step: object) -> None:
    match step:
        case int(number):
            for dead in journal.dead_letters()[number - 1 : number]:
                assert journal.remove_dead_letter(dead.number)
        case batch, marks, letters:
            journal.append(list(records(journal.head + 1, batch)), marks=marks, dead_letters=letters)


def raw(records: Iterable[Record]) -> list[bytes]:
    return [record.raw for record in records]


def check(journal: PostgresJournal, memory: MemoryJournal) -> None:
    assert (journal.head, journal.recorded_us) == (memory.head, memory.recorded_us)
    for producer in PRODUCERS:
        for epoch in range(12):
            assert journal.mark(producer, epoch) == memory.mark(producer, epoch)
    for types in (None, {TYPES[1]}):
        chunks = [kind.read(0, types=types) for kind in (journal, memory)]
        assert raw(chunks[0].records) == raw(chunks[1].records)
        assert (chunks[0].position, chunks[0].checksum) == (chunks[1].position, chunks[1].checksum)
    assert raw(journal.landmarks()) == raw(memory.landmarks())
    spans = [[(record.first, record.last) for record in kind.headers_back(kind.head)] for kind in (journal, memory)]
    assert spans[0] == spans[1]
    assert [(at, tuple(ids)) for at, ids in journal.ids(1)] == [(at, tuple(ids)) for at, ids in memory.ids(1)]
    about = [(dead.position, dead.reporter) for dead in journal.dead_letters()]
    assert about == [(dead.position, dead.reporter) for dead in memory.dead_letters()]
