"""``flyball participate``: refused usage, and settings that leave nothing to participants."""

import asyncio
import socket
from pathlib import Path

import pytest
from commands import invoke, refused

from flyball.app.cli.participate import _serve
from flyball.app.config import BadSettings
from flyball.app.engine import Engine


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("training",), "A participant needs a command"),
        (("training", "--"), "A participant needs a command"),
        (("--", "true"), "A participant needs a kind of task"),
        (("trianing", "--", "true"), "There is no kind of task 'trianing'"),
        (("training", "--", "no-such-program-here"), "There is no program 'no-such-program-here'"),
        (("training", "--http", "8000", "--", "true"), "either a command or --http"),
        (("training", "--http", "0.0.0.0:8000"), "this run has no keys"),
        (("training", "--http", "nonsense"), "No port for participants at nonsense"),
    ],
)
def test_participant_that_cannot_work_is_refused(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    refused(invoke("participate", *words, run=tmp_path), 2, message)


def test_token_file_that_others_read_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o644)
    words = ("participate", "training", "--http", "0", "--token-file", str(token))
    refused(invoke(*words, run=tmp_path), 2, "can be read by others")


async def test_refusal_of_a_run_ends_the_port_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """The port listens before the broker says which kinds the run leaves to participants."""

    async def host(engine: Engine, stop: asyncio.Event) -> None:
        await asyncio.sleep(0.3)
        raise BadSettings("This run accepts every shard.", hint="Change it.")

    with pytest.raises(BadSettings, match="accepts every shard"):
        await _serve(host, socket.create_server(("127.0.0.1", 0)), "0123456789abcdef")
    assert caplog.text == ""


def test_worker_of_an_external_run_is_not_started_here(tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text(
        'configs = ["mine_2p"]\n[games.mine_2p]\nbackend = "external"\ngame = "mine"\nplayers = 2\n'
    )
    refused(invoke("daemon", "run", "training", run=tmp_path), 2, "runs in its participants")
    assert invoke("config", "check", run=tmp_path).exit_code == 0
