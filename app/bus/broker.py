"""The broker: one process, one thread, one socket.

Each turn of its loop receives waiting messages, writes one transaction, acknowledges, and delivers. A separate
commit thread cost 30% of the throughput in a prototype (ADR-003).
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from ipaddress import ip_address
from typing import Any

import zmq

from app.bus.hub import Hub, Message
from app.bus.ports import BrokerLimits, BusError, InsecureEndpoint
from app.bus.sequencer import microseconds
from app.core import Clock
from app.events import Envelope
from app.journal import Journal

MAX_WAIT_S = 0.25
PROBE_S = 5.0


def _check_endpoint(endpoint: str) -> None:
    """Refuse an address that other machines can reach, because clients are not authenticated."""
    transport, _, rest = endpoint.partition("://")
    if transport in ("ipc", "inproc"):
        return
    host = rest.rpartition(":")[0].strip("[]")
    with suppress(ValueError):  # a host name, not an IP address
        if transport == "tcp" and (host == "localhost" or ip_address(host).is_loopback):
            return
    raise InsecureEndpoint(
        f"The bus will not listen at {endpoint}: other machines could connect, and nothing would keep them out.",
        hint="Use ipc:///path or tcp://127.0.0.1:port.",
    )


class Broker:
    """Records events and delivers them.

    Args:
        journal: where events are recorded; the broker is its only writer.
        endpoint: where clients connect, ``ipc:///path`` or ``tcp://127.0.0.1:port`` (port ``*``: any free one).
        clock: gives the time of recording.
        node: this machine's name; the broker's own events come from ``broker@node``.
        limits: see ``BrokerLimits``.
        on_tick: returns the broker's own events (the clock's ticks), given the time; called every ``tick_s`` seconds.
        tick_s: seconds between ticks.
        on_loop: called every turn of the loop, at least four times a second.
        give_up: polled during construction; once True, the start is cut short. Then only call ``close``, or ``run``
            with a ``stop`` that returns True at once.

    Raises:
        InsecureEndpoint: other machines could connect.
        BusError: the address is taken or malformed.
    """

    def __init__(
        self,
        journal: Journal,
        endpoint: str,
        clock: Clock,
        *,
        node: str = "localhost",
        limits: BrokerLimits | None = None,
        on_tick: Callable[[datetime], Sequence[Envelope[Any]]] | None = None,
        tick_s: float = 1.0,
        on_loop: Callable[[], None] | None = None,
        give_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self._limits = limits or BrokerLimits()
        self._journal = journal
        self._clock = clock
        self._hub = Hub(journal, f"broker@{node}", self._limits, give_up)
        self._on_tick, self._tick_s, self._on_loop = on_tick, tick_s, on_loop
        self._next_tick = self._next_probe = clock.monotonic()
        _check_endpoint(endpoint)
        self._context = zmq.Context()
        self._socket = _bind(self._context, endpoint, self._limits)
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def run(self, stop: Callable[[], bool], *, wake_fd: int | None = None) -> None:
        """Serve until ``stop()`` is true; then close.

        ``stop`` is polled at least four times a second, and at once when ``wake_fd`` becomes readable (see
        ``signal.set_wakeup_fd``).
        """
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        if wake_fd is not None:
            poller.register(wake_fd, zmq.POLLIN)
        more = False
        try:
            while not stop():
                ready = dict(poller.poll(0 if more else self._patience_ms()))
                if wake_fd is not None and wake_fd in ready:
                    os.read(wake_fd, 4096)
                more = self._turn(idle=not ready and not more)
        finally:
            self.close()

    def close(self) -> None:
        """Close the socket; the journal stays open. Idempotent."""
        self._socket.close(linger=1000)
        self._context.term()

    def _turn(self, *, idle: bool) -> bool:
        now, time = self._clock.monotonic(), self._clock.now()
        now_us = microseconds(time)
        full = self._drain(now, now_us)
        if self._on_tick is not None and now >= self._next_tick:
            self._next_tick = max(self._next_tick + self._tick_s, now)
            self._hub.originate(self._on_tick(time), now_us)
        self._hub.settle()
        self._send(self._hub.messages())
        if now >= self._next_probe:
            self._next_probe = now + PROBE_S
            self._send(self._hub.probe(now))
        self._journal.rest(idle=idle)
        if self._on_loop is not None:
            self._on_loop()
        return full or self._hub.has_more()

    def _drain(self, now: float, now_us: int) -> bool:
        receive, room = self._socket.recv_multipart, self._limits.drain_bytes
        for _ in range(self._limits.drain_messages):
            try:
                peer, *parts = receive(zmq.NOBLOCK)
            except zmq.Again:
                return False
            self._hub.receive(peer, parts, now, now_us)
            room -= sum(map(len, parts))
            if room <= 0:
                break
        return True

    def _send(self, messages: Iterable[Message]) -> None:
        for peer, parts in messages:
            try:
                self._socket.send_multipart([peer, *parts], zmq.NOBLOCK)
            except zmq.ZMQError as error:
                if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                    raise
                self._hub.forget(peer)  # the client is gone; after a reconnection it sends a hello

    def _patience_ms(self) -> int:
        wait = MAX_WAIT_S
        if self._on_tick is not None:
            wait = min(wait, self._next_tick - self._clock.monotonic())
        return max(0, int(1000 * wait) + 1)


def _bind(context: zmq.Context[zmq.Socket[bytes]], endpoint: str, limits: BrokerLimits) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.MAXMSGSIZE, limits.max_message_bytes)
    socket.setsockopt(zmq.RCVHWM, 64)  # holds back a client that exceeds its frames in flight
    socket.setsockopt(zmq.SNDHWM, 0)  # no limit, because credit bounds unconsumed deliveries
    socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 10_000)
    socket.setsockopt(zmq.BACKLOG, 1024)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        socket.close(linger=0)
        context.term()
        taken = error.errno == zmq.EADDRINUSE
        hint = "Another broker listens there: stop it, or choose another address." if taken else "Look at the address."
        raise BusError(f"The broker cannot listen at {endpoint}: {error.strerror}.", hint=hint) from error
    return socket
