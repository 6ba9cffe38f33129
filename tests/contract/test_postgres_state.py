"""Standbys and replicas, as a reader of a journal on PostgreSQL sees them with the least rights."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import monotonic, sleep

import pytest
from postgres_server import PostgresServer, execute, new_schema, postgres_server

pytest.importorskip("psycopg")

from flyball.app.journal.database import StorageInUse
from flyball.app.journal.ports import DatabaseState
from flyball.app.journal.postgres import connect, database_state
from flyball.app.journal.postgres_journal import PostgresJournal, PostgresJournalReader

PATIENCE_SECONDS = 60.0


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Run a server of this test's own, because its settings change."""
    with postgres_server() as own:
        yield own


def begun(url: str) -> str:
    """Make a journal, and return its URL for a user who may only read it."""
    PostgresJournal(url).close()
    schema = url.rpartition("%3D")[2]
    execute(url, f"CREATE ROLE {schema} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {schema}")
    execute(url, f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {schema}")
    return url.replace("admin@", f"{schema}@")


def state_of(url: str) -> DatabaseState:
    with closing(PostgresJournalReader(url)) as reader:
        state = reader.database_state()
    assert state is not None
    return state


def wait_for(url: str, reached: Callable[[DatabaseState], bool]) -> DatabaseState:
    end = monotonic() + PATIENCE_SECONDS
    while not reached(state := state_of(url)):
        assert monotonic() < end, state
        sleep(0.05)
    return state


def test_every_user_sees_a_broker_that_waits(database: str, postgres: str) -> None:
    reader, other, over = begun(database), begun(new_schema(postgres)), False

    def wait() -> None:
        with pytest.raises(StorageInUse):
            PostgresJournal(database, wait=True, give_up=lambda: over)

    with closing(PostgresJournal(database)), ThreadPoolExecutor() as pool:
        assert not state_of(reader).stands_by
        waiting = pool.submit(wait)
        wait_for(reader, lambda state: state.stands_by)
        assert not state_of(other).stands_by, "it waits for another journal of this database"
        over = True
        waiting.result()
        wait_for(reader, lambda state: not state.stands_by)


def test_broker_that_has_waited_waits_no_more(database: str) -> None:
    reader = begun(database)
    with closing(PostgresJournal(database, wait=True)):
        assert not state_of(reader).stands_by


def test_replicas_are_seen_as_far_as_rights_allow(server: PostgresServer) -> None:
    """Without pg_read_all_stats a replica can be counted, and its state is unknown."""
    url = new_schema(server.url)
    reader = begun(url)
    user = reader.partition("://")[2].partition("@")[0]
    assert state_of(reader) == DatabaseState(user, stands_by=False)
    execute(url, "ALTER SYSTEM SET synchronous_standby_names = 'ANY 2 (replica, other)'")
    execute(url, "SELECT pg_reload_conf()")
    alone = wait_for(reader, lambda state: bool(state.names))
    assert (alone.needed, alone.connected, alone.synchronous) == (2, 0, 0)
    with postgres_server(primary=server) as replica:
        seen = wait_for(url, lambda state: state.synchronous == 1)
        assert (seen.needed, seen.connected) == (2, 1)
        assert seen.behind_bytes is not None
        assert state_of(reader) == DatabaseState(
            user, stands_by=False, names=seen.names, needed=2, connected=1, synchronous=None
        )
        execute(url, f"SET synchronous_commit = local; GRANT pg_read_all_stats TO {user}")
        assert state_of(reader).synchronous == 1
        with connect(replica.url, "test") as connection:
            assert database_state(connection) is None, "a replica knows nothing of heads and other replicas"
    wait_for(url, lambda state: state.connected == 0)
