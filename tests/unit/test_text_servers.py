"""Servers and the folder of adapters that processes share: races, waits, and what is not ours."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Lock
from time import sleep
from typing import Any, NoReturn

import pytest
from fake_text_server import FakeTextServer
from language_models import random_adapter, small_base, turns

from app.config import TextServers
from app.language import served_generator
from app.language.adapter_folder import AdapterFolder
from app.language.base_model import BaseModel
from app.language.generator import Adapter, Request, Sampling
from app.language.peft_generator import PeftGenerator
from app.language.served_generator import ServedGenerator
from app.language.text_server import NoServer, ServerRefused, TextServer
from app.store import MemoryStore

STORE = MemoryStore()
FREE = Sampling(temperature=1.0, stop="\n", most_tokens=4)


@pytest.fixture(scope="module")
def base() -> BaseModel:
    return small_base(STORE)


@pytest.fixture(scope="module")
def adapter() -> Adapter:
    return random_adapter(STORE, PeftGenerator(small_base(STORE)), 0)


@pytest.fixture
def server() -> Iterator[FakeTextServer]:
    with FakeTextServer(small_base(STORE)) as running:
        yield running


def test_adapter_folder_leaves_what_it_did_not_write(adapter: Adapter, tmp_path: Path) -> None:
    """A user's folder may be named, in which other things, and exported adapters, have an @ in their names."""
    others = ["me@example.org", "exported@" + "0" * 64, "notes@home.part"]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / "mail@home").write_text("not a folder")
    folder = AdapterFolder(tmp_path, "base")
    folder.take(adapter)
    folder.release(adapter.name)
    folder.remove_unused(lambda _: True)
    assert sorted(path.name for path in tmp_path.glob("*@*")) == sorted([*others, "mail@home"])


def ask(base: BaseModel, folder: Path, *servers: FakeTextServer, patience: float = 5.0) -> ServedGenerator:
    addresses = tuple(server.address for server in servers)
    return ServedGenerator(base, TextServers(addresses=addresses, folder=str(folder)), "base", patience)


def requests(adapter: Adapter, count: int = 6) -> list[Request]:
    return [Request(turn.prompt, adapter.name, turn.answers, seed) for seed, turn in enumerate(turns(count))]


def test_adapter_that_another_process_loads_meanwhile_is_used(
    base: BaseModel, adapter: Adapter, server: FakeTextServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, models = [server._models()] * 2, server._models
    with closing(ask(base, tmp_path, server)) as other, closing(ask(base, tmp_path, server)) as generator:
        other.load(adapter)
        monkeypatch.setattr(server, "_models", lambda: before.pop() if before else models())
        generator.load(adapter)
        assert generator.loaded == (adapter.name,)


@pytest.mark.parametrize("found", ["Hello", {"data": [{}]}, {"object": "list"}])
def test_server_of_another_protocol_is_refused(
    base: BaseModel,
    adapter: Adapter,
    server: FakeTextServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: Any,
) -> None:
    monkeypatch.setattr(server, "_models", lambda: found)
    with closing(ask(base, tmp_path, server)) as generator, pytest.raises(ServerRefused, match="unlike vLLM"):
        generator.load(adapter)


def test_answer_without_log_probabilities_is_refused(
    base: BaseModel, adapter: Adapter, server: FakeTextServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(ask(base, tmp_path, server)) as generator:
        generator.load(adapter)
        monkeypatch.setattr(server, "_choice", lambda *_: {"text": "3", "logprobs": None})
        with pytest.raises(ServerRefused, match="unlike vLLM"):
            generator.generate(requests(adapter), FREE)
