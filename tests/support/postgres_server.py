"""A real PostgreSQL server on a Unix socket, in its own process."""

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

import pytest

FOLDERS = Path("/usr/lib/postgresql")
NUMBERS = itertools.count(1)


def _programs() -> Path:
    """Return the folder of the newest server's programs; skip the test without one."""
    if find_spec("psycopg") is None:
        pytest.skip("needs flyball[postgres]")
    if found := shutil.which("initdb"):
        return Path(found).parent
    folders = sorted(FOLDERS.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if not folders:
        pytest.skip("needs a PostgreSQL server: initdb is neither on the PATH nor below /usr/lib/postgresql")
    return folders[-1].parent


@contextmanager
def postgres_server(settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a server; yield the URL of its database. A commit waits for the disk, unless ``settings`` change that."""
    programs = _programs()
    folder = Path(mkdtemp(prefix="flyball-postgres-"))  # short, because the name of a socket is
    user: dict[str, str | int] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    if user:
        shutil.chown(folder, **user)
    try:
        subprocess.run(
            [programs / "initdb", "--no-sync", "-D", folder / "data", "-U", "admin", "-A", "trust", "-E", "UTF8"],
            check=True, capture_output=True, cwd=folder, **user,
        )  # fmt: skip
        options = {"listen_addresses": "", "unix_socket_directories": str(folder), **(settings or {})}
        arguments = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (folder / "log").open("wb") as log:
            command = [programs / "postgres", "-D", folder / "data", *arguments]
            server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **user)
        try:
            url = f"postgresql://admin@/postgres?host={folder}"
            _await(url, server, folder / "log")
            yield url
        finally:
            server.send_signal(signal.SIGQUIT)  # at once
            server.wait()
    finally:
        shutil.rmtree(folder)


def _await(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    end = monotonic() + 60
    while monotonic() < end:
        assert server.poll() is None, log.read_text()
        with suppress(psycopg.OperationalError):
            psycopg.connect(url).close()
            return
        sleep(0.05)
    raise TimeoutError(log.read_text())


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
