"""POST requests to working, failing, slow and non-HTTP servers on loopback."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from ipaddress import IPv4Address
from pathlib import Path
from socket import create_server

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import OK, ScriptedServer, scripted_server, status

from flyball.app.telemetry.webhook import LONGEST_RETRY_SECONDS, Undelivered, post, retry_after

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


async def refused(*script: bytes | None, url: str | None = None, seconds: float = 5.0) -> Undelivered:
    async with scripted_server(*script) as server, asyncio.timeout(seconds):
        with pytest.raises(Undelivered) as caught:
            await post(url or server.url, b"{}", {}, NOON)
    return caught.value


async def test_accepted_message_arrives_whole(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with scripted_server(OK) as server:
        await post(server.url, "grüße".encode(), {"Content-Type": "text/plain"}, NOON)
    assert "hook" not in caplog.text, "the path may hold a secret"
    (request,) = server.requests
    assert (request.target, request.body.decode()) == ("/hook?x=1", "grüße")
    assert request.headers["content-type"] == "text/plain"
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
    async with scripted_server(b"HTTP/1.1 100 Continue\r\n\r\n" + OK) as server:
        await post(server.url, b"{}", {}, NOON)


@pytest.mark.parametrize(("code", "is_final"), [(301, False), (400, True), (401, False), (404, False), (413, True),
                                                (429, False), (500, False), (503, False)])  # fmt: skip
async def test_refusal_says_whether_another_attempt_helps(code: int, is_final: bool) -> None:
    error = await refused(status(code))
    assert (error.is_final, f"answered {code}" in str(error)) == (is_final, True)


async def test_wait_that_a_server_asks_for_is_told() -> None:
    assert (await refused(status(429, "Retry-After: 7\r\n"))).retry_seconds == 7.0
    date = format_datetime(NOON + timedelta(seconds=90), usegmt=True)
    assert (await refused(status(503, f"retry-after: {date}\r\n"))).retry_seconds == 90.0
    assert (await refused(status(503))).retry_seconds is None


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200", b"HTTP/1.1 2x0 OK\r\n\r\n",
                                    b"x" * 200_000])  # fmt: skip
async def test_server_that_speaks_no_http_is_undelivered(answer: bytes) -> None:
    assert not (await refused(answer)).is_final


async def test_servers_that_cannot_be_reached_are_undelivered() -> None:
    with create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = await refused(OK, url=f"http://127.0.0.1:{port}/secret-path")
    assert "cannot be reached" in str(error)
    assert "secret-path" not in str(error)

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ready\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        with pytest.raises(Undelivered):
            await post(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", b"{}", {}, NOON)
    assert not (await refused(OK, url="http://hook..example/")).is_final


def certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hook")])
    begin = datetime.now(UTC) - timedelta(days=1)  # noqa: TID251 - OpenSSL compares it with the machine's clock
    address = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin + timedelta(days=9))
    signed = made.add_extension(address, critical=False).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + signed.public_bytes(pem)
    (folder / "hook.pem").write_bytes(text)
    return folder / "hook.pem"


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
async def test_tls_is_spoken_with_trusted_servers_only(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted, context = ScriptedServer([OK]), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file := certificate(tmp_path))
    async with await asyncio.start_server(scripted.handle, "127.0.0.1", 0, ssl=context) as server:
        url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        with pytest.raises(Undelivered):
            await post(url, b"{}", {}, NOON)
        assert not scripted.requests
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        await post(url, b"{}", {}, NOON)
    assert len(scripted.requests) == 1


async def test_token_is_sent_whatever_it_and_the_address_hold() -> None:
    async with scripted_server(OK) as server:
        await post(server.url.replace("//", "//user:word@"), b"{}", {"Authorization": "Bearer grüße"}, NOON)
    assert server.requests[0].headers["authorization"] == "Bearer grüße"


async def test_deadlines_and_line_breaks_end_a_message() -> None:
    async with scripted_server(None) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await post(server.url, b"{}", {}, NOON)
    async with scripted_server(OK) as server:
        with pytest.raises(Undelivered, match="line break") as caught:
            await post(server.url, b"{}", {"Authorization": "Bearer x\r\nEvil: 1"}, NOON)
    assert caught.value.is_final
    assert not server.requests


@given(value=st.text(st.characters(codec="latin-1", exclude_characters="\r\n")))
def test_any_retry_after_is_a_bounded_wait_or_none(value: str) -> None:
    found = retry_after(value, NOON)
    assert found is None or 0.0 <= found <= LONGEST_RETRY_SECONDS


@pytest.mark.parametrize("date", ["Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
                                  "Mon, 01 Jan 2026 00:00:00 +99999999999999999999"])  # fmt: skip
def test_retry_after_with_a_huge_date_is_ignored(date: str) -> None:
    assert retry_after(date, NOON) is None
