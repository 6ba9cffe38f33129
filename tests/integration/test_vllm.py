"""The generator on a real vLLM, with vLLM's known faults of adapters."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
import torch
from language_models import random_adapter, requests, small_base, turns
from safetensors.torch import load, save
from vllm_server import VllmServer, shared_vllm

from flyball.app.config import TextServers
from flyball.app.language import served_generator
from flyball.app.language.adapters import WEIGHTS, export_adapter
from flyball.app.language.base_model import export_base, get_base
from flyball.app.language.generator import Adapter, ModelMismatch, PromptRequest, Sampling, get_adapter
from flyball.app.language.peft_generator import PeftGenerator
from flyball.app.language.served_generator import ServedGenerator
from flyball.app.language.text_game import OneOf
from flyball.app.language.text_server import NoServer, NotLoaded, ServerRefused, TextServer
from flyball.app.store import MemoryStore, put_checkpoint

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

STORE = MemoryStore()
FREE = Sampling(temperature=1.0, stop="\n", most_tokens=6)


@pytest.fixture(scope="module")
def local() -> PeftGenerator:
    """Return the generator of this process, whose answers are right."""
    return PeftGenerator(small_base(STORE))


@pytest.fixture(scope="module")
def adapters(local: PeftGenerator) -> list[Adapter]:
    made = [random_adapter(STORE, local, seed) for seed in range(18)]
    for adapter in made:
        local.load(adapter)
    return made


@pytest.fixture
def generator() -> Iterator[ServedGenerator]:
    with closing(generator_of(shared_vllm())) as made:
        yield made
        for name in made.loaded:
            made.unload(name)


@pytest.fixture
def raw() -> Iterator[TextServer]:
    with closing(TextServer(shared_vllm().address)) as server:
        yield server


def generator_of(server: VllmServer, patience: float = 900.0) -> ServedGenerator:
    servers = TextServers(addresses=(server.address,), folder=str(server.adapters))
    return ServedGenerator(small_base(STORE), servers, "base", patience)


def same(generator: ServedGenerator, local: PeftGenerator, asked: list[PromptRequest]) -> None:
    """Assert that both generators give the same answers, masks and log-probabilities."""
    for one, other in zip(generator.generate(asked, FREE), local.generate(asked, FREE), strict=True):
        assert (one.ids, one.allowed) == (other.ids, other.allowed)
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)


def remade(adapter: Adapter, tensors: dict[str, torch.Tensor], **lora: object) -> Adapter:
    """Return an adapter with other tensors under the old canary. It is stored and named like a sound one."""
    manifest = adapter.checkpoint.manifest
    assert manifest.lora is not None
    changed = manifest.replace(lora=manifest.lora.replace(**lora))
    return get_adapter(STORE, put_checkpoint(STORE, changed, save(tensors), None))


def broken(adapter: Adapter) -> Adapter:
    tensors = load(adapter.checkpoint.parameters)
    return remade(adapter, {name: torch.full_like(tensor, float("nan")) for name, tensor in tensors.items()})


def test_base_beside_adapters_in_all_slots_answers_as_itself(
    generator: ServedGenerator, local: PeftGenerator, adapters: list[Adapter]
) -> None:
    """Ask for the base as well as eight adapters."""
    for adapter in adapters[:8]:
        generator.load(adapter)
    same(generator, local, requests(*(adapter.name for adapter in adapters[:8]), None, None, count=60))


def test_stale_cache_of_prefixes_is_noticed(
    generator: ServedGenerator, raw: TextServer, adapters: list[Adapter]
) -> None:
    """Load other weights under an earlier name and path."""
    adapter, other = random_adapter(STORE, PeftGenerator(small_base(STORE)), 30), adapters[0]
    path = export_adapter(adapter, shared_vllm().adapters, "base")
    sound = (path / WEIGHTS).read_bytes()
    (path / WEIGHTS).write_bytes(other.checkpoint.parameters)
    raw.load(adapter.name, str(path))
    lora = adapter.checkpoint.manifest.lora
    assert lora is not None
    for text in lora.canary.ids:
        raw.next_log_probs(adapter.name, text[:-1], text[-1:])
    raw.unload(adapter.name, str(path))
    (path / WEIGHTS).write_bytes(sound)
    with pytest.raises(ModelMismatch, match="answers unlike"):
        generator.load(adapter)
    assert adapter.name not in raw.models()


def test_adapters_beyond_a_servers_memory_answer_as_themselves(
    generator: ServedGenerator, raw: TextServer, local: PeftGenerator, adapters: list[Adapter]
) -> None:
    """Load more adapters than the 16 that vLLM keeps in memory."""
    for adapter in adapters:
        generator.load(adapter)
    same(generator, local, requests(*(adapter.name for adapter in adapters), None, count=57))
    for adapter in adapters:
        folder = shared_vllm().adapters / adapter.name
        assert (folder / WEIGHTS).is_file()
        generator.unload(adapter.name)
        assert adapter.name not in raw.models()
        assert not folder.exists()


def test_unfit_adapters_that_vllm_loads_are_refused(
    generator: ServedGenerator, raw: TextServer, adapters: list[Adapter]
) -> None:
    """Load adapters of other modules or another base model, and with NaN."""
    tensors = load(adapters[0].checkpoint.parameters)
    elsewhere = {name.replace("v_proj", "k_proj"): tensor for name, tensor in tensors.items()}
    with pytest.raises((ModelMismatch, ServerRefused)):
        generator.load(remade(adapters[0], elsewhere, targets=("q_proj", "k_proj", "down_proj")))
    other = adapters[0].checkpoint.manifest.replace(base="0" * 64)
    with pytest.raises(ModelMismatch, match="adapts base model"):
        generator.load(get_adapter(STORE, put_checkpoint(STORE, other, save(tensors), None)))
    with pytest.raises(ModelMismatch, match="NaN"):
        generator.load(broken(adapters[0]))
    assert generator.loaded == ()
    assert [*raw.models()] == [generator.fingerprint]


def test_refusals_of_a_server_that_goes_on(
    generator: ServedGenerator, raw: TextServer, local: PeftGenerator, adapters: list[Adapter], tmp_path: Path
) -> None:
    """Use an unknown adapter, a truncated file and a too large rank. The rank is above --max-lora-rank."""
    with pytest.raises(NotLoaded):
        raw.next_log_probs("connect_four_text_2p@" + "0" * 64, [1, 2, 3], [4])
    path = copytree(export_adapter(adapters[0], tmp_path / "whole", "base"), tmp_path / "cut")
    (path / WEIGHTS).write_bytes((path / WEIGHTS).read_bytes()[:-100])
    with pytest.raises(ServerRefused):
        raw.load("cut", str(path))
    with pytest.raises(ServerRefused, match="rank"):
        generator.load(random_adapter(STORE, local, 40, rank=32))
    generator.load(adapters[0])
    same(generator, local, requests(adapters[0].name, count=4))


def test_log_probs_among_legal_answers_are_those_of_training(
    generator: ServedGenerator, local: PeftGenerator, adapters: list[Adapter]
) -> None:
    """Draw answers along a trie. vLLM's structured outputs may spell an answer otherwise than its tokenizer does."""
    generator.load(adapters[0])
    answers = OneOf((" 3 1\n", " 3 2\n", " 44\n", " 4\n", " 5 and 6\n"))
    prompt = turns(1)[0].prompt
    same(generator, local, [PromptRequest(prompt, adapters[0].name, answers, seed) for seed in range(20)])


def test_adapter_that_the_server_lost_is_loaded_again(
    generator: ServedGenerator, raw: TextServer, local: PeftGenerator, adapters: list[Adapter]
) -> None:
    generator.load(adapters[0])
    raw.unload(adapters[0].name, str(shared_vllm().adapters / adapters[0].name))
    same(generator, local, requests(adapters[0].name, count=4))


def test_poisoned_server_is_noticed_and_a_killed_one_waited_for(
    local: PeftGenerator, adapters: list[Adapter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Load NaN, which stay in a server's memory and reach other adapters."""
    base = local.fingerprint
    export_base(get_base(STORE, base), tmp_path / "base")
    server = VllmServer(tmp_path / "base", base, tmp_path / "log").start()
    try:
        with closing(generator_of(server)) as generator, ThreadPoolExecutor(1) as pool:
            generator.load(adapters[0])
            same(generator, local, requests(adapters[0].name, None, count=8))
            monkeypatch.setattr(served_generator, "check_content", lambda *_: None)
            with pytest.raises(ServerRefused, match="JSON compliant") as refusal:
                generator.load(broken(adapters[1]))
            assert "start it again" in refusal.value.hint
            server.kill()
            starting = pool.submit(server.start)
            same(generator, local, requests(adapters[0].name, None, count=8))
            starting.result()
            generator.unload(adapters[0].name)
    finally:
        server.kill()


def test_seeds_with_chunked_prefill_kill_no_run(local: PeftGenerator, adapters: list[Adapter], tmp_path: Path) -> None:
    """Send seeds to vLLM with chunked prefill, which ends its CPU engine."""
    export_base(get_base(STORE, local.fingerprint), tmp_path / "base")
    server = VllmServer(
        tmp_path / "base", local.fingerprint, tmp_path / "log", chunked=True, max_num_batched_tokens="64"
    ).start()
    try:
        with closing(generator_of(server, patience=5.0)) as generator:
            generator.load(adapters[0])
            asked = [replace(one, answers=None) for one in requests(adapters[0].name, count=40)]
            with pytest.raises(NoServer, match=server.address):
                generator.generate(asked, FREE)
    finally:
        server.kill()
