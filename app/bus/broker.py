"""The broker: one process, one thread, one socket.

Each turn of its loop receives waiting messages, writes one transaction, acknowledges, and delivers. A separate
commit thread cost 30% of the throughput in a prototype (ADR-004).
"""

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import zmq

from flyball.app.bus.access import Access, check_endpoint
from flyball.app.bus.hub import Hub, Message
from flyball.app.bus.keys import Key
from flyball.app.bus.ports import BrokerLimits, BusError
from flyball.app.bus.sequencer import microseconds
from flyball.app.core import Clock
from flyball.app.events import Envelope, Payload
from flyball.app.journal import Journal

MAX_WAIT_S = 0.25
LONGEST_TURN_S = 1.0
"""Most seconds that a turn adds to the broker's clock.

In a longer turn, as with a stalled disk, the broker hears nothing, and daemons would otherwise look silent.
"""

PROBE_S = 5.0
HANDSHAKE_MS = 5000
ZAP_ENDPOINT = "inproc://zeromq.zap.01"
"""Endpoint at which libzmq asks about a client's key (https://rfc.zeromq.org/spec/27)."""


class Broker:
    """Records events and delivers them.

    Args:
        journal: where events are recorded; the broker is its only writer.
        endpoint: where clients connect, ``ipc:///path`` or ``tcp://address:port`` (port ``*``: any free one). Without
            ``access`` an address must be of the loopback interface.
        clock: gives the time of recording.
        node: this machine's name; the broker's own events come from ``broker@node``.
        limits: see ``BrokerLimits``.
        on_tick: returns the broker's own events (the clock's ticks), given the time; called every ``tick_s`` seconds.
        tick_s: seconds between ticks.
        access: the keys that are admitted (ADR-008); None admits every local client.
        write: returns the broker's own facts (refusals, lost daemons) as events, given the time; None drops the facts.
        on_loop: called every turn of the loop, at least four times a second.
        give_up: polled during construction; once True, the start is cut short. Then only call ``close``, or ``run``
            with a ``stop`` that returns True at once.

    Raises:
        InsecureEndpoint: other machines could connect, and there are no keys.
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
        access: Access | None = None,
        write: Callable[[datetime, Sequence[Payload]], Sequence[Envelope[Any]]] | None = None,
        on_loop: Callable[[], None] | None = None,
        give_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self._limits = limits or BrokerLimits()
        self._journal = journal
        self._clock = clock
        self._hub = Hub(journal, f"broker@{node}", self._limits, access, give_up)
        self._access, self._write = access, write
        self._on_tick, self._tick_s, self._on_loop = on_tick, tick_s, on_loop
        self._next_tick = self._turned = clock.monotonic()
        self._listened = self._next_probe = 0.0
        check_endpoint(endpoint, secured=access is not None)
        self._context = zmq.Context()
        self._zap = _bind_zap(self._context) if access else None
        self._socket = _bind(self._context, endpoint, self._limits, access)
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def run(self, stop: Callable[[], bool], *, wake_fd: int | None = None) -> None:
        """Serve until ``stop()``, polled four times a second and when ``wake_fd`` becomes readable; then close."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        if self._zap is not None:
            poller.register(self._zap, zmq.POLLIN)
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
        if self._zap is not None:
            self._zap.close(linger=0)
        self._context.term()

    def _turn(self, *, idle: bool) -> bool:
        now, time = self._clock.monotonic(), self._clock.now()
        self._listened += min(now - self._turned, LONGEST_TURN_S)
        self._turned, heard, now_us = now, self._listened, microseconds(time)
        if self._access is not None:
            self._authenticate(self._access)
        full = self._drain(heard, now_us)
        if self._on_tick is not None and now >= self._next_tick:
            self._next_tick = max(self._next_tick + self._tick_s, now)
            self._hub.originate(self._on_tick(time), now_us)
        self._hub.settle()
        facts: list[Payload] = [] if self._access is None else [*self._access.refusals.due(now)]
        facts += [] if full else self._hub.presence_facts(heard)  # otherwise signs of life may wait in the socket
        if facts and self._write is not None:
            self._hub.originate(self._write(time, facts), now_us)
            self._hub.settle()
        self._send(self._hub.messages())
        if heard >= self._next_probe:
            self._next_probe = heard + PROBE_S
            self._send(self._hub.probe(heard))
        self._journal.maintain(idle=idle)
        if self._on_loop is not None:
            self._on_loop()
        return full or self._hub.has_more()

    def _drain(self, now: float, now_us: int) -> bool:
        receive, room = self._receive if self._access is None else self._receive_keyed, self._limits.drain_bytes
        for _ in range(self._limits.drain_messages):
            try:
                peer, parts, key = receive()
            except zmq.Again:
                return False
            self._hub.receive(peer, parts, now, now_us, key)
            room -= sum(map(len, parts))
            if room <= 0:
                break
        return True

    def _receive(self) -> tuple[bytes, list[bytes], Key | None]:
        peer, *parts = self._socket.recv_multipart(zmq.NOBLOCK)
        return peer, parts, None

    def _receive_keyed(self) -> tuple[bytes, list[bytes], Key | None]:
        """Receive a message and its connection's key, looked up each time because it may have been revoked."""
        assert self._access is not None
        first = self._socket.recv(zmq.NOBLOCK, copy=False)
        parts = self._socket.recv_multipart(zmq.NOBLOCK) if first.more else []
        return first.bytes, parts, self._access.key(str(first.get("User-Id")))

    def _authenticate(self, access: Access) -> None:
        """Answer libzmq's questions about keys; cut off revoked connections."""
        if access.refresh():
            self._hub.drop_revoked()
        assert self._zap is not None
        while int(self._zap.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._zap.send_multipart(access.answer(self._zap.recv_multipart()))

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


def _bind_zap(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.REP)
    socket.bind(ZAP_ENDPOINT)
    return socket


def _bind(
    context: zmq.Context[zmq.Socket[bytes]], endpoint: str, limits: BrokerLimits, access: Access | None
) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.MAXMSGSIZE, limits.max_message_bytes)
    socket.setsockopt(zmq.RCVHWM, 64)  # holds back a client that exceeds its frames in flight
    socket.setsockopt(zmq.SNDHWM, 0)  # no limit, because credit bounds unconsumed deliveries
    socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 10_000)
    socket.setsockopt(zmq.BACKLOG, 1024)
    if access is not None:
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, bytes.fromhex(access.pair.secret))
        socket.setsockopt(zmq.ZAP_DOMAIN, b"flyball")
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        context.destroy(linger=0)
        in_use = error.errno == zmq.EADDRINUSE
        hint = "Another broker listens there: stop it, or choose another address." if in_use else "Look at the address."
        raise BusError(f"The broker cannot listen at {endpoint}: {error.strerror}.", hint=hint) from error
    return socket
