"""The generator that asks servers: restarts, faults, races and unloading."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Lock
from time import sleep
from typing import NoReturn

import pytest
import torch
from fake_text_server import FakeTextServer
from language_models import random_adapter, requests, small_base
from safetensors.torch import load, save

from flyball.app.config import TextServers
from flyball.app.core import UnusableFile
from flyball.app.language import served_generator
from flyball.app.language.adapter_folder import AdapterFolder
from flyball.app.language.base_model import BaseModel, get_base
from flyball.app.language.generator import Adapter, ModelMismatch, PromptRequest, Sampling, get_adapter
from flyball.app.language.peft_generator import PeftGenerator
from flyball.app.language.served_generator import ServedGenerator
from flyball.app.language.text_game import OneOf
from flyball.app.language.text_server import NoServer, ServerRefused, TextServer
from flyball.app.store import MemoryStore, put_checkpoint

STORE = MemoryStore()
FREE = Sampling(temperature=1.0, stop="\n", most_tokens=4)


@pytest.fixture(scope="module")
def base() -> BaseModel:
    return small_base(STORE)


@pytest.fixture(scope="module")
def local() -> PeftGenerator:
    """Return the in-process generator, whose answers are the reference."""
    made = PeftGenerator(small_base(STORE))
    for adapter in [random_adapter(STORE, made, seed) for seed in range(3)]:
        made.load(adapter)
    return made


@pytest.fixture(scope="module")
def adapters(local: PeftGenerator) -> list[Adapter]:
    return [*local._loaded.values()]


def fake(base: BaseModel, port: int = 0) -> FakeTextServer:
    return FakeTextServer(get_base(STORE, base.fingerprint), port)


@pytest.fixture
def server(base: BaseModel) -> Iterator[FakeTextServer]:
    with fake(base) as running:
        yield running


def ask(base: BaseModel, folder: Path, *servers: FakeTextServer, patience: float = 0.2) -> ServedGenerator:
    addresses = tuple(server.address for server in servers)
    return ServedGenerator(base, TextServers(addresses=addresses, folder=str(folder)), "models/base", patience)


@pytest.fixture
def generator(base: BaseModel, server: FakeTextServer, tmp_path: Path) -> Iterator[ServedGenerator]:
    with closing(ask(base, tmp_path, server)) as made:
        yield made


@pytest.fixture
def loaded(generator: ServedGenerator, adapters: list[Adapter]) -> ServedGenerator:
    generator.load(adapters[0])
    return generator


def test_answers_are_those_of_the_generator_of_this_process(local, adapters, server, loaded):
    """Texts, tokens and masks are equal; the base model is never requested by its own name."""
    asked = requests(adapters[0].name, adapters[1].name, None, count=12)
    loaded.load(adapters[1])
    for sampling in (FREE, replace(FREE, temperature=0.5), replace(FREE, temperature=0.0)):
        for one, other in zip(loaded.generate(asked, sampling), local.generate(asked, sampling), strict=True):
            assert (one.text, one.ids, one.allowed, one.finish) == (other.text, other.ids, other.allowed, other.finish)
            assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)
    assert {body["model"] for body in server.asked} <= server.roots.keys()


def test_place_with_one_legal_token_is_not_asked_for(adapters, server, loaded):
    server.asked.clear()
    (made,) = loaded.generate([PromptRequest("Your column:", adapters[0].name, OneOf((" 3 1\n", " 3 2\n")), 0)], FREE)
    choices = sum(len(legal) > 1 for legal in made.allowed)
    assert len(server.asked) == choices < len(made.ids)


def test_options_beyond_the_server_s_limit_are_asked_in_parts(base, local, adapters, loaded):
    options = tuple(text for token in range(300) if base.encode(text := base.decode([token])) == [token])
    assert len(options) > 128
    asked = [PromptRequest("Your column:", adapters[0].name, OneOf(options), seed) for seed in range(3)]
    assert [one.ids for one in loaded.generate(asked, FREE)] == [one.ids for one in local.generate(asked, FREE)]


def test_server_that_lost_its_adapters_loads_them_again(base, adapters, tmp_path):
    asked = requests(adapters[0].name, None)
    first = fake(base)
    with closing(ask(base, tmp_path, first, patience=5.0)) as generator:
        generator.load(adapters[0])
        before = generator.generate(asked, FREE)
        first.close()
        with fake(base, first.port) as second:
            after = generator.generate(asked, FREE)
            assert adapters[0].name in second.roots
            assert any(len(body["prompt"]) > 1 for body in second.asked)  # the canary
    assert [one.ids for one in before] == [one.ids for one in after]


def test_adapter_that_somebody_unloaded_is_loaded_again(adapters, server, loaded):
    for missed in (lambda: loaded.generate(requests(adapters[0].name), FREE), lambda: loaded.load(adapters[0])):
        server.answer("/v1/unload_lora_adapter", {"lora_name": adapters[0].name})
        missed()
        assert [*server.roots] == [adapters[0].name]


def test_server_that_is_away_is_passed_over(base, adapters, tmp_path, monkeypatch):
    asked, models = list[str](), TextServer.models
    with fake(base) as left:
        gone = fake(base)
        with closing(ask(base, tmp_path, gone, left, patience=5.0)) as generator:
            generator.load(adapters[0])
            assert [*gone.roots] == [*left.roots] == [adapters[0].name]
            gone.close()
            before = generator.generate(requests(adapters[0].name), FREE)
            assert len(before) == 6
            monkeypatch.setattr(TextServer, "models", lambda one: asked.append(one.address) or models(one))
            assert generator.generate(requests(adapters[0].name), FREE) == before
            assert gone.address not in asked, "it is not asked for each answer"
            generator.load(adapters[1])
            assert len(left.roots) == 2


def test_no_server_ends_in_an_error_that_says_how_to_start_one(base, adapters, server, generator):
    server.close()
    with pytest.raises(NoServer, match="does not answer: ConnectError") as refusal:
        generator.load(adapters[0])
    assert f"--model models/base --served-model-name {base.fingerprint}" in refusal.value.hint
    assert generator.loaded == ()


def test_failures_that_pass_are_repeated_and_others_are_not(base, adapters, server, tmp_path):
    asked = requests(adapters[0].name, count=1)
    with closing(ask(base, tmp_path, server, patience=5.0)) as generator:
        generator.load(adapters[0])
        right = generator.generate(asked, FREE)
        server.failures = [500, 503, 429]
        assert generator.generate(asked, FREE) == right
        server.failures = [400]
        with pytest.raises(ServerRefused, match="400: '\"a planted failure\"'"):
            generator.generate(asked, FREE)
        assert server.failures == []


def test_server_that_answers_by_another_adapter_is_noticed(adapters, server, loaded, tmp_path):
    server.stale = {adapters[1].name: adapters[0].name}
    with pytest.raises(ModelMismatch):
        loaded.load(adapters[1])
    assert loaded.loaded == (adapters[0].name,)
    assert [*server.roots] == [adapters[0].name]
    assert not (tmp_path / adapters[1].name).exists()


def test_server_of_another_base_model_is_refused(base, adapters, tmp_path):
    with FakeTextServer(small_base(STORE, seed=5)) as other, closing(ask(base, tmp_path, other)) as generator:
        with pytest.raises(ModelMismatch, match=f"no server .* serves base model {base.fingerprint}"):
            generator.load(adapters[0])
        assert other.roots == {}


def test_adapter_out_of_another_folder_is_refused(base, adapters, server, loaded, tmp_path):
    with closing(ask(base, tmp_path / "other", server)) as other, pytest.raises(ModelMismatch, match="out of"):
        other.load(adapters[0])
    assert [*server.roots] == [adapters[0].name]


def test_damaged_adapters_never_reach_a_server(adapters, server, generator, tmp_path):
    tensors = load(adapters[0].checkpoint.parameters)
    name, tensor = next((name, tensor) for name, tensor in tensors.items() if "lora_A" in name)
    for bad, what in ((torch.full_like(tensor, float("nan")), "NaN"), (torch.cat([tensor, tensor]), "its rank")):
        manifest = adapters[0].checkpoint.manifest
        broken = get_adapter(STORE, put_checkpoint(STORE, manifest, save(tensors | {name: bad}), None))
        with pytest.raises(ModelMismatch, match=what):
            generator.load(broken)
    assert server.roots == {}
    assert not [*tmp_path.glob("*@*")]


def test_folder_that_holds_another_adapter_is_refused(adapters, generator, tmp_path):
    (tmp_path / adapters[0].name).mkdir()
    (tmp_path / adapters[0].name / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(UnusableFile, match="holds another adapter"):
        generator.load(adapters[0])


def test_adapter_is_unloaded_and_deleted_when_nobody_uses_it(base, adapters, server, loaded, tmp_path):
    name = adapters[0].name
    with closing(ask(base, tmp_path, server)) as other:
        other.load(adapters[0])
        loaded.unload(name)
        assert name in server.roots
        assert len(other.generate(requests(name), FREE)) == 6
        other.unload(name)
        assert name not in server.roots
        assert not (tmp_path / name).exists()


def test_adapters_of_a_killed_process_are_removed_by_the_next(base, adapters, server, loaded, tmp_path):
    loaded.close()
    assert [*server.roots] == [adapters[0].name]
    (tmp_path / f"{adapters[1].name}.part").mkdir()
    ask(base, tmp_path, server).close()
    assert server.roots == {}
    assert not [*tmp_path.glob("*@*")]


def test_folder_stays_while_a_server_cannot_be_asked(base, adapters, tmp_path):
    server = fake(base)
    with closing(ask(base, tmp_path, server)) as generator:
        generator.load(adapters[0])
        server.close()
        generator.unload(adapters[0].name)
        assert (tmp_path / adapters[0].name).is_dir()
    with fake(base, server.port):
        ask(base, tmp_path, server).close()
    assert not (tmp_path / adapters[0].name).exists()


def test_requests_under_way_are_bounded(adapters, server, loaded, monkeypatch):
    monkeypatch.setattr(served_generator, "OUTSTANDING", 3)
    loaded.generate(requests(adapters[0].name, count=20), FREE)
    assert server.most_under_way <= 3


def test_log_probs_at_another_temperature_are_refused(base, adapters, server, loaded, tmp_path):
    free = [replace(one, answers=None) for one in requests(adapters[0].name, count=2)]
    hot = replace(FREE, temperature=2.0)
    assert len(loaded.generate(free, hot)) == 2
    server.is_raw = True
    with closing(ask(base, tmp_path, server)) as generator:
        generator.load(adapters[0])
        with pytest.raises(ServerRefused, match="at temperature 1") as refusal:
            generator.generate(free, hot)
    assert "--logprobs-mode processed_logprobs" in refusal.value.hint


def test_adapter_folder_leaves_what_it_did_not_write(adapters: list[Adapter], tmp_path: Path) -> None:
    """A user's folder may contain other names with an @. Exported adapters have such names, too."""
    others = ["me@example.org", "exported@" + "0" * 64, "notes@home.part"]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / "mail@home").write_text("not a folder")
    folder = AdapterFolder(tmp_path, "base")
    folder.take(adapters[0])
    folder.release(adapters[0].name)
    folder.remove_unused(lambda _: True)
    assert sorted(path.name for path in tmp_path.glob("*@*")) == sorted([*others, "mail@home"])


def test_adapter_that_another_process_loads_meanwhile_is_used(base, adapters, server, generator, tmp_path, monkeypatch):
    before, models = [server._models()] * 2, server._models
    with closing(ask(base, tmp_path, server)) as other:
        other.load(adapters[0])
        monkeypatch.setattr(server, "_models", lambda: before.pop() if before else models())
        generator.load(adapters[0])
        assert generator.loaded == (adapters[0].name,)


@pytest.mark.parametrize("found", ["Hello", {"data": [{}]}, {"object": "list"}])
def test_server_of_another_protocol_is_refused(adapters, server, generator, monkeypatch, found):
    monkeypatch.setattr(server, "_models", lambda: found)
    with pytest.raises(ServerRefused, match="unlike vLLM"):
        generator.load(adapters[0])


def test_answer_without_log_probabilities_is_refused(adapters, server, loaded, monkeypatch):
    monkeypatch.setattr(server, "_choice", lambda *_: {"text": "3", "logprobs": None})
    with pytest.raises(ServerRefused):
        loaded.generate(requests(adapters[0].name), FREE)


def test_patience_includes_the_time_of_requests(base, adapters, server, tmp_path, monkeypatch):
    """A hanging server blocks each request for two minutes."""
    clock, waits = [0.0], list[float]()

    def hangs(_: TextServer) -> NoReturn:
        clock[0] += 120.0
        raise NoServer("It hangs.")

    monkeypatch.setattr(served_generator, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(served_generator, "sleep", waits.append)
    monkeypatch.setattr(TextServer, "models", hangs)
    with closing(ask(base, tmp_path, server, patience=120.0)) as generator, pytest.raises(NoServer, match="hangs"):
        generator.load(adapters[0])
    assert waits == []


class CountingLock:
    def __init__(self) -> None:
        self._lock, self.asked = Lock(), 0

    def __enter__(self) -> None:
        self.asked += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_requests_wait_for_a_server_together(base, adapters, server, tmp_path, monkeypatch):
    """Requests that wait for the verification share its result."""
    asked = list[int]()
    with closing(ask(base, tmp_path, server, patience=0.0)) as generator:
        generator.load(adapters[0])
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
            generator.generate(requests(adapters[0].name), FREE)
    assert len(asked) == 1
