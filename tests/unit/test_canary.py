"""The canary: a wrong adapter is recognised when it is loaded."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from language_models import KEY, random_adapter, small_base
from safetensors.torch import load, save

from flyball.app.core import ModelHash
from flyball.app.language.generator import (
    TOLERANCE,
    Adapter,
    Ids,
    ModelMismatch,
    adapter_name,
    check_canary,
    get_adapter,
)
from flyball.app.language.peft_generator import PeftGenerator
from flyball.app.store import Manifest, MemoryStore, put_checkpoint, with_note
from flyball.app.store.blobs import key_of

STORE = MemoryStore()


@pytest.fixture(scope="module")
def generator() -> PeftGenerator:
    return PeftGenerator(small_base(STORE))


@pytest.fixture(scope="module")
def adapter(generator: PeftGenerator) -> Adapter:
    return random_adapter(STORE, generator, 1)


def remade(adapter: Adapter, changes: dict[str, torch.Tensor], **manifest: object) -> Adapter:
    """Return an adapter with changed tensors under the old canary."""
    old = adapter.checkpoint
    data = save(load(old.parameters) | changes)
    written = Manifest.model_validate(old.manifest.model_dump() | manifest)
    return get_adapter(STORE, put_checkpoint(STORE, written, data, None))


def refused(generator: PeftGenerator, adapter: Adapter, what: str) -> None:
    before = generator.loaded
    with pytest.raises(ModelMismatch, match=what) as refusal:
        generator.load(adapter)
    assert "MODEL_MISMATCH" in refusal.value.message
    assert generator.loaded == before
    assert adapter.name not in generator.peft.peft_config


def test_sound_adapter_passes_and_stays(generator: PeftGenerator, adapter: Adapter) -> None:
    generator.load(adapter)
    assert check_canary(generator, adapter) < 1e-5
    generator.unload(adapter.name)


def test_wrong_file_or_base_model_is_refused(generator: PeftGenerator, adapter: Adapter) -> None:
    other = random_adapter(STORE, generator, 2)
    wrong = replace(adapter, checkpoint=replace(adapter.checkpoint, parameters=other.checkpoint.parameters))
    refused(generator, wrong, "has the hash")
    refused(generator, replace(adapter, name=other.name), "has the hash")
    base = PeftGenerator(small_base(STORE, seed=5))
    refused(base, adapter, "adapts base model")
    refused(base, remade(adapter, {}, base=base.fingerprint), "answers unlike")


def test_wrong_tensors_under_the_canary_are_refused(generator: PeftGenerator, adapter: Adapter) -> None:
    tensors = load(adapter.checkpoint.parameters)
    name, tensor = next(iter(tensors.items()))
    spoiled = tensor.clone()
    spoiled[0, 0] = float("nan")
    first, second = (f"base_model.model.model.layers.{layer}.self_attn.v_proj.lora_B.weight" for layer in (0, 1))
    for changes, what in (
        (load(random_adapter(STORE, generator, 3).checkpoint.parameters), "answers unlike"),
        ({first: tensors[second]}, "answers unlike"),
        ({name: spoiled}, "NaN"),
        ({name: torch.cat([tensor, tensor])}, "not those of its rank"),
    ):
        refused(generator, remade(adapter, changes), what)


class Stale(PeftGenerator):
    """Answers with the adapter that was loaded first. A cache does so if a name is reused."""

    def score(self, texts: Sequence[Ids], adapter: str | None) -> list[list[float]]:
        return super().score(texts, self.loaded[0])


class Deaf(PeftGenerator):
    """Answers by the base model, whatever the adapter."""

    def score(self, texts: Sequence[Ids], adapter: str | None) -> list[list[float]]:
        return super().score(texts, None)


class Broken(PeftGenerator):
    def score(self, texts: Sequence[Ids], adapter: str | None) -> list[list[float]]:
        return [
            [float("nan") if k == 3 else score for k, score in enumerate(one)] for one in super().score(texts, adapter)
        ]


@pytest.mark.parametrize("kind", [Deaf, Broken, Stale])
def test_generator_that_answers_by_something_else_is_noticed(kind, generator, adapter) -> None:
    wrong = kind(small_base(STORE))
    if kind is Stale:
        wrong.load(adapter)
        adapter = random_adapter(STORE, generator, 4)
    refused(wrong, adapter, "answers unlike")


def test_adapter_that_was_changed_in_memory_is_noticed(generator: PeftGenerator, adapter: Adapter) -> None:
    generator.load(adapter)
    changed = next(p for name, p in generator.peft.named_parameters() if f"lora_B.{adapter.name}" in name)
    changed.data += 0.05
    with pytest.raises(ModelMismatch, match="answers unlike"):
        check_canary(generator, adapter)
    generator.unload(adapter.name)
    generator.load(adapter)
    generator.unload(adapter.name)


def test_swaps_beside_other_adapters_raise_no_false_alarm(generator: PeftGenerator) -> None:
    """30 of the 1,000 swaps of tests/benchmarks/results/language.md."""
    adapters = [random_adapter(STORE, generator, 10 + seed) for seed in range(6)]
    largest = 0.0
    for swap in range(30):
        adapter = adapters[swap % 6]
        generator.load(adapter)
        largest = max(largest, check_canary(generator, adapter))
        if swap >= 3:
            generator.unload(adapters[(swap - 3) % 6].name)
    assert largest < TOLERANCE / 10
    for name in generator.loaded:
        generator.unload(name)


def test_name_holds_the_hash_of_the_content(adapter: Adapter) -> None:
    assert adapter.name == adapter_name(KEY, ModelHash(key_of(adapter.checkpoint.parameters)))
    lora = adapter.checkpoint.manifest.lora
    assert lora is not None
    assert np.isfinite(np.concatenate(lora.canary.log_probs)).all()
    with pytest.raises(ValueError, match="a canary has"):
        lora.canary.replace(log_probs=lora.canary.log_probs[:1])


def test_network_is_no_adapter() -> None:
    manifest = Manifest.model_validate(
        {"config_key": KEY, "network": {}, "obs_size": 1, "actions": 1, "step": 0, "parent": None, "optimizer": None}
    )
    data = with_note(save({"weight": torch.zeros(1)}), manifest.note)
    with pytest.raises(ModelMismatch, match="is a network, not an adapter"):
        get_adapter(STORE, ModelHash(STORE.put(data)))
