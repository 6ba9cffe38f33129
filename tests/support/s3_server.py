"""A real S3-compatible server on loopback: moto's, in its own process."""

import importlib.util
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from time import sleep

import fsspec
import pytest
from ports import free_port

from flyball.app.config.store_address import StoreAddress

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
NUMBERS = itertools.count()


def skip_without_moto() -> None:
    if importlib.util.find_spec("moto") is None or importlib.util.find_spec("s3fs") is None:
        pytest.skip("needs an S3-compatible server: pip install 's3fs' 'moto[server]'")


@contextmanager
def s3_server(*, checks_credentials: bool = False) -> Iterator[str]:
    """Run a server; yield its URL. If it ``checks_credentials``, it refuses all of them."""
    skip_without_moto()
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    environment = os.environ | ({"INITIAL_NO_AUTH_ACTION_COUNT": "0"} if checks_credentials else {})
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, **quiet) as server:
        try:
            while True:
                assert server.poll() is None, "the server ended at its start"
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def new_bucket(endpoint: str) -> StoreAddress:
    """Make a bucket and return the address of a store in it."""
    name = f"bucket{next(NUMBERS)}"
    fsspec.filesystem("s3", endpoint_url=endpoint).mkdir(name)
    return StoreAddress.parse(f"s3://{name}/run/one?endpoint_url={endpoint}")


class Gate:
    """A proxy of a server that can be closed.

    A closed gate refuses connections. ``passed`` counts the bytes of requests. After ``jams_after`` bytes, no more are
    passed on.
    """

    def __init__(self, endpoint: str, jams_after: int | None = None) -> None:
        host, _, port = endpoint.removeprefix("http://").partition(":")
        self._behind, self._port = (host, int(port)), free_port()
        self._listener: socket.socket | None = None
        self.passed, self._jams_after = 0, jams_after

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def open(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self._port))
            Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self._behind)
                Thread(target=self._connect, args=(client, server), daemon=True).start()

    def _connect(self, client: socket.socket, server: socket.socket) -> None:
        answers = Thread(target=self._answer, args=(server, client), daemon=True)
        answers.start()
        with client, server:
            with suppress(OSError):
                while data := client.recv(1 << 16):
                    self.passed += len(data)
                    if self._jams_after is None or self.passed < self._jams_after:
                        server.sendall(data)
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            answers.join()

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)
