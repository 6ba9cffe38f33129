"""The PostgreSQL database of a journal: connections, tables, and the lock of its one writer (ADR-040)."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from flyball.app.config.journal_address import unprotected_host, unprotected_text
from flyball.app.journal.database import (
    BEGIN,
    DamagedDatabase,
    NotAJournal,
    OtherFormat,
    ServerRefused,
    ServerUnavailable,
    StorageError,
    StorageFull,
    StorageInUse,
)
from flyball.app.journal.ports import DatabaseState

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

LEAST_SERVER = 140_000
"""PostgreSQL 14, the first with ``idle_session_timeout``."""

IDLE_SECONDS = 5
"""Idle time after which the server ends the writer's session, and so frees the writer's lock.

A writer that is halted or cut off loses the lock this soon, but not a broker that waits for a slow disk for a while.
"""

STARTING_SECONDS = 60
"""The same for a writer that has not served yet, and is silent while it reads settings and imports backends."""

ALIVE_SECONDS = 1.0
"""Idle time after which the writer shows the server that it lives."""

RETRY_SECONDS = 0.25
"""Seconds between two attempts to get the lock.

A session that waits in ``pg_advisory_lock`` would hold a snapshot as old as its wait, so the server could remove no
dead rows while a standby waits.
"""

ENDING_SECONDS = 2.0
"""Time that the server has to free the lock of a session that its client has closed."""

LOCKS = 0x464C5937 << 32
"""Advisory locks are 64-bit numbers. Ours consist of these 32 bits ("FLY7") and an object's id or a small number."""

CREATING, SNAPSHOTS, WAITING = 1, 2, 3
"""Small numbers of locks.

They are for creating the tables; and, added to the tables' id, for taking snapshots, and shared by those who wait to
write. Every user may look which locks are held.
"""

CONNECTING: Mapping[str, str | int] = {
    "client_encoding": "utf8",
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""Parameters of libpq, unless the URL sets them. A server that vanished is noticed within ten seconds."""

WRITING: Mapping[str, str] = {
    "idle_session_timeout": f"{STARTING_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
    "lock_timeout": "10s",
    "statement_timeout": "60s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10s",
}
"""Settings of the writer's session. By the last four the server notices that the writer's machine vanished."""

COMPRESSING = """SELECT set_config(name, 'lz4', false) FROM pg_settings
    WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals)"""
"""Compresses large bodies by LZ4 where the server has it, in half of the time that its own method takes."""

SYNCHRONOUS = """SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') <> 'remote_apply'"""
"""Makes commits wait for the disk, whatever the server's settings or the role's are, unless they ask for more."""

NEEDED_OF_SERVER = ("fsync", "full_page_writes")
"""Settings of the server without which a loss of power loses or damages what was acknowledged."""

STATE = """SELECT current_user, EXISTS (
        SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database AND datname = current_database()
        WHERE locktype = 'advisory' AND granted AND classid = %(high)s AND objid = %(low)s AND objsubid = 1),
    current_setting('synchronous_standby_names'), count(pid), count(sync_state),
    count(pid) FILTER (WHERE sync_state IN ('sync', 'quorum')),
    max(pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn))::bigint
FROM pg_stat_replication"""
"""A user without the rights of pg_read_all_stats sees the processes in pg_stat_replication, but no state."""

RECORDS = "first bigint PRIMARY KEY, head bytea NOT NULL, bodies bytea NOT NULL"
SCHEMA = (
    """CREATE TABLE journal (id integer PRIMARY KEY DEFAULT 1 CHECK (id = 1), format integer NOT NULL DEFAULT 0,
        run uuid NOT NULL DEFAULT gen_random_uuid(), epoch bigint NOT NULL DEFAULT 0,
        first bigint NOT NULL DEFAULT 1, head bigint NOT NULL DEFAULT 0)""",
    f"CREATE TABLE frames ({RECORDS})",
    f"CREATE TABLE landmarks ({RECORDS})",
    """CREATE TABLE marks (producer bytea, epoch bigint, next bigint NOT NULL, used bigint NOT NULL,
        checksum bigint NOT NULL, PRIMARY KEY (producer, epoch))""",
    """CREATE TABLE dead_letters (number bigint PRIMARY KEY, position bigint NOT NULL, producer bytea NOT NULL,
        reporter bytea NOT NULL, error bytea NOT NULL, body bytea NOT NULL, checksum bigint NOT NULL)""",
    "CREATE TABLE snapshots (position bigint PRIMARY KEY, content bytea NOT NULL, checksum bigint NOT NULL)",
    "INSERT INTO journal DEFAULT VALUES",
)
"""Tables of format 0. Texts are bytes, because a database's encoding may lack characters, and none has NUL."""

MIGRATIONS: Sequence[Sequence[str]] = ()
"""Statements that lead from each format to the next, beginning with format 0."""


@dataclass(frozen=True, slots=True)
class JournalRow:
    """The row of the table ``journal``.

    Attributes:
        epoch: number of the latest writer. An append of an earlier writer changes nothing.
        first: position of the oldest event that is kept.
        head: position of the last event.
        run: id of the journal, by which a run folder recognises its own.
    """

    epoch: int
    first: int
    head: int
    run: str


def connect(url: str, role: str, *, primary: bool = False) -> Connection:
    """Connect to a journal's database, for reading.

    Args:
        url: of the database; libpq adds what its own files and variables say.
        role: shown by the server beside the session.
        primary: pass over servers that only read, of the hosts in the URL: replicas, which may lack the latest
            events, and a former primary that its operator has set so.

    Raises:
        ServerUnavailable: the server does not answer.
        ServerRefused: the server refuses this user, is too old, or is on another machine and not verified.
    """
    parameters = {**CONNECTING, **conninfo_to_dict(url), "application_name": f"flyball {role}"}
    if primary:
        parameters["target_session_attrs"] = "read-write"
    with ExitStack() as on_error, server_errors():
        connection = psycopg.connect(**parameters, autocommit=True)  # type: ignore[arg-type]
        on_error.callback(connection.close)
        used = connection.info.get_parameters()  # also those of a service file and of variables
        if host := unprotected_host(used.get("host", "").split(","), used):
            raise ServerRefused(f"The journal's database is not used: {unprotected_text(host)}.")
        if connection.info.server_version < LEAST_SERVER:
            raise ServerRefused(f"The server is PostgreSQL {connection.info.server_version // 10_000}; 14 is needed.")
        connection.execute("SET default_transaction_read_only = on")
        on_error.pop_all()
    return connection


def open_for_reading(url: str, role: str = "reader", *, primary: bool = False) -> Connection:
    """Connect to a database that holds a journal of this format.

    Raises what ``connect`` raises, ``NotAJournal`` or ``OtherFormat``.
    """
    with ExitStack() as on_error, server_errors():
        connection = connect(url, role, primary=primary)
        on_error.callback(connection.close)
        version = _version(connection)
        if version is None:
            _schema_and_user(connection)
            raise NotAJournal("The database has no journal.", hint=BEGIN)
        if version < len(MIGRATIONS):
            raise OtherFormat(
                f"The journal is of format {version}, from an earlier version of Flyball; this one reads format "
                f"{len(MIGRATIONS)}.",
                hint="Run `flyball journal migrate`, or start the run.",
            )
        on_error.pop_all()
    return connection


def open_for_writing(url: str, *, wait: bool, give_up: Callable[[], bool]) -> tuple[Connection, JournalRow]:
    """Connect as the journal's one writer; create or migrate its tables, and begin a new epoch.

    Args:
        url: of the database.
        wait: wait until an earlier writer ends, instead of raising ``StorageInUse`` after ``ENDING_SECONDS``.
        give_up: polled four times a second while waiting; once True, ``StorageInUse`` is raised.

    Raises what ``connect`` raises, ``StorageInUse`` or ``OtherFormat``.
    """
    with ExitStack() as on_error, server_errors():
        connection = connect(url, "writer", primary=True)
        on_error.callback(connection.close)
        connection.execute("SET default_transaction_read_only = off")
        _check_server(connection)
        if _version(connection) is None:
            _create(connection)
        key = lock_key(connection)
        for name, value in WRITING.items():  # first, because a writer may be halted as soon as it has the lock
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        waiting = lock_key(connection, WAITING)
        connection.execute("SELECT pg_advisory_lock_shared(%s)", (waiting,))
        refused_at = time.monotonic() + ENDING_SECONDS
        while not _try_lock(connection, key):
            if give_up() if wait else time.monotonic() > refused_at:
                raise StorageInUse("Another broker writes this journal.", hint="Stop it first.")
            time.sleep(RETRY_SECONDS)
        connection.execute("SELECT pg_advisory_unlock_shared(%s)", (waiting,))
        connection.execute(COMPRESSING)
        _migrate(connection)
        connection.execute("UPDATE journal SET epoch = epoch + 1")
        row = journal_row(connection)
        on_error.pop_all()
    return connection, row


def url_of_server(connection: Connection, url: str) -> str:
    """Return a URL that names the server of a connection only. After a failover, another host may hold old records."""
    server = connection.info
    return make_conninfo(url, host=server.host, hostaddr=server.hostaddr, port=server.port)


def expect_life(connection: Connection) -> None:
    """Let the server end the writer's session once it is idle for ``IDLE_SECONDS``."""
    connection.execute("SELECT set_config('idle_session_timeout', %s, false)", (f"{IDLE_SECONDS}s",))


def journal_row(connection: Connection) -> JournalRow:
    """Read the row of the table ``journal``. Raises ``DamagedDatabase`` if it is missing."""
    row = connection.execute("SELECT epoch, first, head, run::text FROM journal").fetchone()
    if row is None:
        raise DamagedDatabase("Damaged journal: the row of its table journal is missing.")
    return JournalRow(*row)


def lock_key(connection: Connection, number: int = 0) -> int:
    """Return the number of a lock of this journal. A database may hold several journals."""
    row = connection.execute("SELECT 'journal'::regclass::oid::bigint").fetchone()
    assert row is not None
    return LOCKS + int(row[0]) + (number << 56)


@contextmanager
def locked_for_snapshots(connection: Connection) -> Iterator[None]:
    """Keep other processes from taking snapshots of this journal. Raises ``StorageInUse``."""
    key = lock_key(connection, SNAPSHOTS)
    if not _try_lock(connection, key):
        raise StorageInUse("Another process takes snapshots of this journal.", hint="Wait until it has ended.")
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(%s)", (key,))


def _try_lock(connection: Connection, key: int) -> bool:
    return connection.execute("SELECT pg_try_advisory_lock(%s)", (key,)).fetchone() == (True,)


def _check_server(connection: Connection) -> None:
    """Refuse a server that could lose what it confirmed, and make this session wait for the disk."""
    for concern in concerns(connection):
        raise concern
    connection.execute(SYNCHRONOUS)


def concerns(connection: Connection) -> Iterator[ServerRefused]:
    """Iterate over settings of the server with which it could lose what it confirmed."""
    for name in NEEDED_OF_SERVER:
        if connection.execute("SELECT current_setting(%s)", (name,)).fetchone() != ("on",):
            yield ServerRefused(
                f"The server has {name} = off: a loss of power could lose or damage the journal.",
                hint=f"Set {name} = on in its postgresql.conf, and reload it.",
            )


def database_state(connection: Connection) -> DatabaseState | None:
    """Return what the server says about the journal's heads and copies; None from a replica, which knows neither."""
    if connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
        return None
    high, low = divmod(lock_key(connection, WAITING), 1 << 32)
    row = connection.execute(STATE, {"high": high, "low": low}).fetchone()
    assert row is not None
    user, stands_by, names, connected, seen, synchronous, behind_bytes = row
    number = re.match(r"(?:(?:FIRST|ANY)\s+)?(\d+)\s*\(", names, re.IGNORECASE)
    return DatabaseState(
        user,
        stands_by,
        names,
        needed=int(number[1]) if number else int(bool(names)),
        connected=connected,
        synchronous=synchronous if seen == connected else None,
        behind_bytes=behind_bytes,
    )


def _version(connection: Connection) -> int | None:
    """Return the journal's format; None without a journal. Raises ``OtherFormat`` for a newer one."""
    if connection.execute("SELECT to_regclass('journal')").fetchone() == (None,):
        return None
    row = connection.execute("SELECT format FROM journal").fetchone()
    version = int(row[0]) if row else 0
    if version > len(MIGRATIONS):
        raise OtherFormat(
            f"The journal is of format {version}; this version of Flyball knows formats up to {len(MIGRATIONS)}.",
            hint="Use the version of Flyball that wrote it, or a later one.",
        )
    return version


def _schema_and_user(connection: Connection) -> tuple[str, str]:
    """Return the schema in which tables are made, and the user. Raises ``ServerRefused`` if there is no schema."""
    row = connection.execute("SELECT current_schema(), current_user, current_setting('search_path')").fetchone()
    assert row is not None
    schema, user, wanted = row
    if schema is None:
        raise ServerRefused(
            f"The database has no schema {wanted} that the user {user} may use.",
            hint=f'Its owner can make it: CREATE SCHEMA {wanted} AUTHORIZATION "{user}"; or let others read it: '
            f'GRANT USAGE ON SCHEMA {wanted} TO "{user}";',
        )
    return schema, user


def _create(connection: Connection) -> None:
    schema, user = _schema_and_user(connection)
    # Before the transaction, because one that waits for another writer does not see the tables that it made.
    connection.execute("SELECT pg_advisory_lock(%s)", (LOCKS + CREATING,))
    try:
        with connection.transaction():
            if _version(connection) is None:  # another writer may have made them meanwhile
                for statement in SCHEMA:
                    connection.execute(statement)
                _run_migrations(connection, 0)
    except errors.InsufficientPrivilege as error:
        raise ServerRefused(
            f"The user {user} may not create the journal's tables in the schema {schema}.",
            hint=f'Its owner can allow it: GRANT CREATE ON SCHEMA "{schema}" TO "{user}";',
        ) from error
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", (LOCKS + CREATING,))


def _migrate(connection: Connection) -> None:
    version = _version(connection)
    assert version is not None
    if version < len(MIGRATIONS):
        with connection.transaction():
            _run_migrations(connection, version)


def _run_migrations(connection: Connection, version: int) -> None:
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute("UPDATE journal SET format = %s", (len(MIGRATIONS),))


@contextmanager
def server_errors() -> Iterator[None]:
    """Convert the driver's errors into ``StorageError`` and its subclasses."""
    try:
        yield
    except psycopg.Error as error:
        raise _explain(error) from error


def _explain(error: psycopg.Error) -> StorageError:
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    if isinstance(error, errors.DiskFull):
        return StorageFull("No room for the journal on the PostgreSQL server.", hint="Free disk space there.")
    if isinstance(error, errors.DataCorrupted | errors.IndexCorrupted | errors.UniqueViolation | errors.CheckViolation):
        return DamagedDatabase(f"The journal's database is damaged ({text}).")
    if isinstance(error, errors.InsufficientPrivilege):
        return ServerRefused(
            f"The server does not let this user read or write the journal: {text}.",
            hint='Grant it the rights of its role: see "A journal in PostgreSQL" in flyball docs.',
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return ServerRefused(f"The server only reads: {text}.", hint="Name the primary server, not its copy.")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return ServerUnavailable(
            f"The connection to the journal's database failed: {text}.",
            hint="Look whether the server runs, at deployment.journal.url, and at the server's log.",
        )
    return StorageError(f"The journal's database could not be used: {text}.", hint="Look at the server's log.")
