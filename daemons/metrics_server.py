"""The port that answers Prometheus."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from io import BytesIO
from typing import ClassVar

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import MetricsHandler

from flyball.app.core import FlyballError
from flyball.app.core.hosts import LOOPBACK_NAMES, is_loopback, name_in

IDLE_SECONDS = 10.0
"""Longest wait for the next bytes of a request; a scrape sends its request at once."""


class PortTaken(FlyballError):
    """The port of the metrics cannot be opened."""


class _Handler(MetricsHandler):
    """Handler of a scrape. A silent client is dropped after ``timeout``, because it would keep its thread."""

    names: ClassVar[frozenset[str] | None] = None  # host names that are answered; None: any

    def do_GET(self) -> None:  # noqa: N802 - its base calls it
        """Answer, or refuse a foreign Host.

        Otherwise a page of another site could read the metrics, once its name is rebound to this address.
        """
        host = ",".join(self.headers.get_all("Host", ()))
        if self.names is not None and name_in(host) not in self.names:
            self.send_error(421, f"These metrics are not called {host!r}"[:200])
            return
        super().do_GET()

    def do_HEAD(self) -> None:  # noqa: N802 - its base calls it
        """Answer as a GET, without the body."""
        self.do_GET()

    def end_headers(self) -> None:
        """Send the headers; drop what follows in an answer to HEAD."""
        super().end_headers()
        if self.command == "HEAD":
            self.wfile = BytesIO()


@contextmanager
def answering(
    host: str, port: int, registry: CollectorRegistry, *, idle_seconds: float = IDLE_SECONDS
) -> Iterator[int]:
    """Answer Prometheus in threads inside the context; return the port. Raises ``PortTaken``.

    At an address that only this machine reaches, requests have to name this machine.
    """
    names = LOOPBACK_NAMES | {host.lower()} if is_loopback(host) else None
    handler = type("_Answer", (_Handler,), {"registry": registry, "names": names, "timeout": idle_seconds})
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        server = type("_Server", (ThreadingHTTPServer,), {"address_family": family})((host, port), handler)
    except OSError as error:
        raise PortTaken(
            f"No metrics at {host}:{port}: {error.strerror or error}.",
            hint="Choose another deployment.metrics.port, or end what listens there.",
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
