"""The journal on PostgreSQL after a failover: no former primary takes part (ADR-040)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import sleep

import pytest
from archives import record_of
from postgres_server import PostgresServer, new_schema, postgres_server, replicated_servers, url_of

pytest.importorskip("psycopg")

from flyball.app.events import RunConfigured
from flyball.app.journal.database import ServerUnavailable
from flyball.app.journal.postgres_journal import PostgresJournal


def append(journal: PostgresJournal) -> None:
    first = journal.head + 1
    journal.append([record_of(first, [b"x"], kinds={1: RunConfigured.event_type})], marks={("trainer@a", 1): first + 1})


@pytest.fixture
def former() -> Iterator[tuple[PostgresServer, str]]:
    """Return a primary that died, and the URL of a journal with one event on it and on the promoted replica."""
    with replicated_servers() as (primary, replica):
        schema = new_schema(primary.url).removeprefix(primary.url)
        url = url_of(primary, replica) + schema
        with closing(PostgresJournal(url)) as journal:
            append(journal)
        primary.crash()
        replica.promote()
        yield primary, url


def test_former_primary_confirms_nothing(former: tuple[PostgresServer, str]) -> None:
    """Its commits wait for a replica that follows it no more."""
    primary, url = former
    primary.start()
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(PostgresJournal, url)
        sleep(2)
        assert not opening.done()
        primary.crash()
        with pytest.raises(ServerUnavailable):
            opening.result(timeout=10)
    with closing(PostgresJournal(url)) as journal:
        append(journal)


def test_writer_reads_from_the_server_that_it_writes_to(former: tuple[PostgresServer, str]) -> None:
    """The former primary comes back while a second writer waits, and has old marks of producers."""
    primary, url = former
    with closing(PostgresJournal(url)) as journal, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(PostgresJournal, url, wait=True)
        append(journal)
        sleep(1)
        primary.start()
        journal.close()
        with closing(waiting.result(timeout=10)) as second:
            assert (second.head, second.mark("trainer@a", 1), len(second.read(0).records)) == (2, 3, 2)


def test_server_that_is_set_to_read_only_is_passed_over() -> None:
    settings = {"default_transaction_read_only": "on"}
    with postgres_server(settings=settings) as server, pytest.raises(ServerUnavailable, match="read-only"):
        PostgresJournal(server.url)
