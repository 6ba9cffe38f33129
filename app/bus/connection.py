"""A client's socket on an asyncio loop.

ZeroMQ's descriptor is edge-triggered: it says that something changed since the socket was last looked at, and any
send looks at it. So after every send the socket is drained again before the loop is trusted to wake us (pyzmq #2173).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

import zmq
from zmq.utils.monitor import recv_monitor_message

TURN = 64
"""Messages handled before the loop's other tasks get their turn."""


class Listener(Protocol):
    """Callbacks of a connection to its owner."""

    def on_up(self) -> None:
        """Say that the broker can be reached (again)."""
        ...

    def on_down(self) -> None:
        """Say that the broker is gone; what was not sent is dropped."""
        ...

    def on_message(self, parts: list[bytes]) -> None:
        """Hand over a message."""
        ...

    def fill(self, send: Callable[[list[bytes]], None]) -> None:
        """Send what is due."""
        ...


class Connection:
    """A DEALER that connects to the broker, and again whenever it was cut off.

    Args:
        endpoint: the broker's address.
        listener: its owner.
        loop: the running loop.
    """

    def __init__(self, endpoint: str, listener: Listener, loop: asyncio.AbstractEventLoop) -> None:
        self._listener, self._loop = listener, loop
        self._queue: deque[list[bytes]] = deque()
        self._scheduled = False
        self._context = zmq.Context()
        self._socket = _dealer(self._context)
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        self._monitor = self._socket.get_monitor_socket(events)
        self._watched = (_option(self._socket, zmq.FD), _option(self._monitor, zmq.FD))
        for descriptor in self._watched:
            loop.add_reader(descriptor, self._turn)
        self._socket.connect(endpoint)
        self.wake()

    def send(self, parts: list[bytes]) -> None:
        """Queue a message; it is sent at the end of the loop's present turn."""
        self._queue.append(parts)
        self.wake()

    def wake(self) -> None:
        """Ask the owner for what is due, at the end of the loop's present turn."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def close(self) -> None:
        """Close. What is queued is sent if that takes no time."""
        if self._socket.closed:
            return
        self._flush()
        for descriptor in self._watched:
            self._loop.remove_reader(descriptor)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=200)
        self._context.term()

    def _turn(self) -> None:
        self._scheduled = False
        handled = 0
        while not self._socket.closed:
            self._look_at_monitor()
            self._listener.fill(self._queue.append)
            sent = self._flush()
            received = self._drain()
            if not sent and not received:
                return
            handled += received
            if handled >= TURN:
                self.wake()
                return

    def _flush(self) -> int:
        sent = 0
        while self._queue:
            try:
                self._socket.send_multipart(self._queue[0], zmq.NOBLOCK)
            except zmq.Again:
                if not _option(self._socket, zmq.EVENTS) & zmq.POLLOUT:
                    return sent
                continue
            self._queue.popleft()
            sent += 1
        return sent

    def _drain(self) -> int:
        for received in range(TURN):
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return received
            self._listener.on_message(parts)
            if self._socket.closed:
                return received
        return TURN

    def _look_at_monitor(self) -> None:
        while _option(self._monitor, zmq.EVENTS) & zmq.POLLIN:
            event = recv_monitor_message(self._monitor)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._listener.on_up()
            else:
                self._queue.clear()
                self._listener.on_down()


def _dealer(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.IMMEDIATE, 1)  # nothing is queued for a broker that is not there
    socket.setsockopt(zmq.SNDHWM, 0)  # the window bounds what is under way
    socket.setsockopt(zmq.RCVHWM, 0)  # credit does
    socket.setsockopt(zmq.RECONNECT_IVL, 20)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 10_000)
    return socket


def _option(socket: zmq.Socket[bytes], option: int) -> int:
    return int(socket.getsockopt(option))
