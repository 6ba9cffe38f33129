"""An HTTP server on loopback with scripted answers. It keeps the requests that it receives."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Answer = bytes | None
"""Bytes that the server writes before it closes the connection; ``None``: it waits until the client leaves."""

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def status(code: int, headers: str = "") -> bytes:
    """Return an answer with a status."""
    return f"HTTP/1.1 {code} Whatever\r\n{headers}Content-Length: 0\r\n\r\n".encode()


@dataclass
class Request:
    """A request: its target, its headers in lower case, and its body."""

    target: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class ScriptedServer:
    """Answers requests by its script; the last answer is repeated."""

    script: list[Answer]
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?x=1"

    async def wait_for(self, count: int, seconds: float = 20.0) -> list[Request]:
        """Wait for ``count`` requests; return all requests."""
        async with asyncio.timeout(seconds):
            while len(self.requests) < count:
                await asyncio.sleep(0.005)
        return self.requests

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers["content-length"]))
            answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            self.requests.append(Request(head[0].split(" ")[1], headers, body))
            if answer is None:
                await reader.read()
            else:
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def scripted_server(*script: Answer) -> AsyncIterator[ScriptedServer]:
    """Serve in the context."""
    scripted = ScriptedServer([*script])
    server = await asyncio.start_server(scripted.handle, "127.0.0.1", 0)
    scripted.port = server.sockets[0].getsockname()[1]
    try:
        yield scripted
    finally:
        server.close()


def answers(*codes: int) -> Sequence[bytes]:
    """Return answers with these statuses."""
    return [status(code) for code in codes]
