"""A real PostgreSQL server on a Unix socket, in its own process."""

import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic, sleep

import pytest

FOLDERS = Path("/usr/lib/postgresql")
NUMBERS = itertools.count(1)


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
    """A server in a folder of its own. A commit waits for the disk."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.url = f"postgresql://admin@/postgres?host={folder}"
        self._programs, self._folder = programs, folder
        self._user: dict[str, str | int] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        if self._user:
            shutil.chown(folder, **self._user)
        command = [programs / "initdb", "--no-sync", "-D", folder / "data", "-U", "admin", "-A", "trust", "-E", "UTF8"]
        subprocess.run(command, check=True, capture_output=True, cwd=folder, **self._user)
        self.start()

    @contextmanager
    def replica(self, name: str) -> Iterator[str]:
        """Run a server that copies this one, under a name; yield the folder of its socket."""
        folder = self._folder / name
        source = f"user=admin host={self._folder} application_name={name}"
        command = [self._programs / "pg_basebackup", "-D", folder, "-R", "-c", "fast", "-d", source]
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder, **self._user)
        command = [self._programs / "postgres", "-D", folder, "-k", folder, "-h", ""]
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder, **self._user)
        try:
            yield str(folder)
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        import psycopg

        command = [self._programs / "postgres", "-D", self._folder / "data", "-k", self._folder, "-h", ""]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder, **self._user)
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


@contextmanager
def postgres_server(folder: Path | None = None) -> Iterator[PostgresServer]:
    """Run a server in a folder, which need not exist; skip the test if the machine has none."""
    programs = _programs()
    if folder is None:
        folder = Path(mkdtemp(prefix="flyball-postgres-"))  # the name of a socket has to be short
    folder.mkdir(exist_ok=True)
    try:
        server = PostgresServer(programs, folder)
        try:
            yield server
        finally:
            server.crash()
    finally:
        shutil.rmtree(folder)


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
