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


def test_patience_includes_the_time_of_requests(
    base: BaseModel, adapter: Adapter, server: FakeTextServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that hangs answers a request by nothing for two minutes, and would be asked thirty times."""
    clock, waits = [0.0], list[float]()

    def hangs(_: TextServer) -> NoReturn:
        clock[0] += 120.0
        raise NoServer("It hangs.")

    monkeypatch.setattr(served_generator, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(served_generator, "sleep", waits.append)
    monkeypatch.setattr(TextServer, "models", hangs)
    with closing(ask(base, tmp_path, server, patience=120.0)) as generator, pytest.raises(NoServer, match="hangs"):
        generator.load(adapter)
    assert waits == []


class CountingLock:
    """A lock that knows how many have asked for it."""

    def __init__(self) -> None:
        self._lock, self.asked = Lock(), 0

    def __enter__(self) -> None:
        self.asked += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_requests_wait_for_a_server_together(
    base: BaseModel, adapter: Adapter, server: FakeTextServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait for the first, which verifies the adapter, do not ask the server in turn: it may hang."""
    asked = list[int]()
    with closing(ask(base, tmp_path, server, patience=0.0)) as generator:
        generator.load(adapter)
        (one,) = generator._servers
        one.lock = lock = CountingLock()
        one.verified.clear()

        def hangs(_: TextServer) -> NoReturn:
            while lock.asked < 6:
                sleep(0.001)
            asked.append(lock.asked)
            one._was_away()
            raise NoServer("It hangs.")

        monkeypatch.setattr(TextServer, "models", hangs)
        with pytest.raises(NoServer):
            generator.generate(requests(adapter), FREE)
    assert len(asked) == 1


def test_server_that_is_away_is_not_asked_for_each_answer(
    base: BaseModel, adapter: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, models = list[str](), TextServer.models
    with FakeTextServer(small_base(STORE)) as left:
        gone = FakeTextServer(small_base(STORE))
        with closing(ask(base, tmp_path, gone, left)) as generator:
            generator.load(adapter)
            gone.close()
            before = generator.generate(requests(adapter), FREE)
            monkeypatch.setattr(TextServer, "models", lambda one: asked.append(one.address) or models(one))
            assert generator.generate(requests(adapter), FREE) == before
    assert gone.address not in asked
