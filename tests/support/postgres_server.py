"""A real PostgreSQL server in its own process, with a replica if wanted."""

import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic, sleep
from types import MappingProxyType

import pytest
from ports import free_port

FOLDERS = Path("/usr/lib/postgresql")
NUMBERS = itertools.count(1)
LOOPBACK = "127.0.0.1"
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


def _programs() -> Path:
    """Return the folder of the newest server's programs; skip the test without one."""
    if find_spec("psycopg") is None:
        pytest.skip("needs flyball[postgres]")
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    folders = sorted(FOLDERS.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if not folders:
        pytest.skip("needs a PostgreSQL server: initdb is neither on the PATH nor below /usr/lib/postgresql")
    return folders[-1].parent


class PostgresServer:
    """A server in a folder of its own. A commit waits for the disk.

    Args:
        programs: folder of PostgreSQL's programs.
        folder: for its data, log and Unix socket.
        address: IP address to listen at; empty for the Unix socket alone. Beyond loopback, it needs TLS.
        settings: of the server, by name.
        primary: server that this one follows, as a replica with the application name ``replica``.
    """

    def __init__(
        self,
        programs: Path,
        folder: Path,
        address: str = "",
        settings: Mapping[str, str] = NO_SETTINGS,
        primary: "PostgresServer | None" = None,
    ) -> None:
        self.host, self.port = address or str(folder), free_port()
        self.url = url_of(self)
        certified = address not in ("", LOOPBACK)
        self._programs, self._folder = programs, folder
        places = ("-D", "data", "-k", str(folder), "-h", address, "-p", str(self.port))
        self._options = [*places, *(f"--{name}={value}" for name, value in settings.items()), f"--ssl={certified}"]
        self._user: dict[str, str | int] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        if self._user:
            shutil.chown(folder, **self._user)
        if primary is None:
            self._call(programs / "initdb", "--no-sync", "-D", "data", "-U", "admin", "-A", "trust", "-E", "UTF8")
        else:
            followed = f"{primary.url}&application_name=replica"
            self._call(programs / "pg_basebackup", "--no-sync", "-D", "data", "-R", "--checkpoint=fast", "-d", followed)
        if certified:
            self._certify()
        self.start()

    def _certify(self) -> None:
        """Make a certificate, demand it, and admit everybody who reaches the address."""
        names = ("-subj", "/CN=flyball", "-keyout", "data/server.key", "-out", "data/server.crt")
        self._call("openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2", *names)
        with (self._folder / "data/pg_hba.conf").open("a") as file:
            file.write("hostssl all all all trust\n")
        self.url += f"&sslmode=verify-ca&sslrootcert={self._folder}/data/server.crt"

    def _call(self, program: Path | str, *arguments: str) -> None:
        command = [program, *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder, **self._user)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        import psycopg

        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", *self._options], stdout=log, stderr=log, cwd=self._folder, **self._user
            )
        end = monotonic() + 60
        while monotonic() < end:
            assert self._process.poll() is None, (self._folder / "log").read_text()
            with suppress(psycopg.OperationalError):
                return psycopg.connect(self.url).close()
            sleep(0.05)
        raise TimeoutError((self._folder / "log").read_text())

    def crash(self) -> None:
        """End the server without a checkpoint, as a crash would; its next start recovers from its log."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def receiver(self) -> int:
        """Return the id of the process by which a replica receives what the primary commits."""
        import psycopg

        with psycopg.connect(self.url) as connection:
            row = connection.execute("SELECT pid FROM pg_stat_wal_receiver").fetchone()
        assert row is not None
        return int(row[0])

    def promote(self) -> None:
        """Make the primary of this replica."""
        execute(self.url, "SELECT pg_promote()")


@contextmanager
def postgres_server(
    address: str = "",
    settings: Mapping[str, str] = NO_SETTINGS,
    primary: PostgresServer | None = None,
    folder: Path | None = None,
) -> Iterator[PostgresServer]:
    """Run a server; skip the test if the machine has none. For the arguments see ``PostgresServer``."""
    programs = _programs()
    if folder is None:
        folder = Path(mkdtemp(prefix="flyball-postgres-"))  # the name of a socket has to be short
    folder.mkdir(exist_ok=True)
    try:
        server = PostgresServer(programs, folder, address, settings, primary)
        try:
            yield server
        finally:
            server.crash()
    finally:
        shutil.rmtree(folder)


@contextmanager
def replicated_servers() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """Run a primary server whose commits wait for its replica, and the replica, on loopback."""
    waiting = {"synchronous_standby_names": "replica"}
    with postgres_server(LOOPBACK, waiting) as primary, postgres_server(LOOPBACK, primary=primary) as replica:
        yield primary, replica


def url_of(*servers: PostgresServer) -> str:
    """Return the URL of the database that one of some servers serves."""
    hosts, ports = ",".join(server.host for server in servers), ",".join(str(server.port) for server in servers)
    return f"postgresql://admin@/postgres?host={hosts}&port={ports}"


def new_schema(url: str) -> str:
    """Make a schema, and return the URL of the database with it."""
    import psycopg

    name = f"schema{next(NUMBERS)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{url}&options=-csearch_path%3D{name}"


def execute(url: str, statement: str) -> None:
    """Run a statement behind the writer's back."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)
