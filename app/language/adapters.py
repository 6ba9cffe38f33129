"""Creation, storage and export of adapters.

An adapter is stored with its canary: fixed texts with their log-probabilities, which show whether a loaded adapter is
the stored one.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from flyball.app.config import GameConfig
from flyball.app.core import ModelHash, UnusableFile, writing
from flyball.app.language.generator import LORA, Adapter, Ids, adapter_name
from flyball.app.language.peft_generator import PeftGenerator
from flyball.app.store import BlobStore, Canary, LoraManifest, Manifest, put_checkpoint

WEIGHTS, CONFIG, MANIFEST = "adapter_model.safetensors", "adapter_config.json", "flyball.json"


def draw_adapter(
    generator: PeftGenerator, name: str, *, rank: int, alpha: int, targets: Sequence[str], seed: int
) -> None:
    """Add a new adapter, with random A and zero B matrices, which answers as the base model does."""
    from peft import LoraConfig

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(targets))
        generator.peft.add_adapter(name, config)
    generator.peft.requires_grad_(requires_grad=False)
    generator.peft.eval()


def first_manifest(config: GameConfig, lora: LoraManifest | None = None) -> Manifest:
    """Return the manifest of a configuration's adapter at step 0."""
    return Manifest(
        config_key=config.key,
        backend=config.backend,
        network=config.network,
        obs_size=1,
        actions=1,
        step=0,
        parent=None,
        optimizer=None,
        content=LORA,
        lora=lora,
    )


def put_adapter(
    store: BlobStore,
    generator: PeftGenerator,
    name: str,
    manifest: Manifest,
    *,
    canary: Sequence[Ids],
    optimizer: bytes | None = None,
) -> ModelHash:
    """Store an adapter of a generator with its canary; return its hash.

    ``name`` is the adapter's name in the generator. The canary holds its log-probabilities of the texts in ``canary``.
    """
    from peft import get_peft_model_state_dict

    tensors = get_peft_model_state_dict(generator.peft, adapter_name=name)
    config: Any = generator.peft.peft_config[name]
    written = Canary(
        ids=tuple(tuple(text) for text in canary),
        log_probs=tuple(tuple(scores) for scores in generator.score(canary, name)),
    )
    lora = LoraManifest(
        rank=config.r, alpha=config.lora_alpha, targets=tuple(sorted(config.target_modules)), canary=written
    )
    data = save_tensors({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()})
    return put_checkpoint(store, manifest.replace(base=generator.fingerprint, lora=lora), data, optimizer)


def export_adapter(adapter: Adapter, folder: Path, base: str) -> Path:
    """Export an adapter as a PEFT folder; return that folder.

    The folder lies in ``folder``, is named CONFIGURATION@SHA-256, and can be loaded by PEFT and vLLM. A folder is never
    overwritten. ``base`` is the base model's name or folder where the adapter is loaded. Raises ``UnusableFile``.
    """
    manifest = adapter.checkpoint.manifest
    lora = manifest.lora
    assert lora is not None
    path = folder / adapter_name(manifest.config_key, adapter.checkpoint.model)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(lora.targets),
        "inference_mode": True,
    }
    files = {
        WEIGHTS: save_tensors(load_tensors(adapter.checkpoint.parameters), {"format": "pt"}),
        CONFIG: json.dumps(config, indent=2).encode(),
        MANIFEST: manifest.note.encode(),
    }
    with writing(path):
        if path.exists():
            if any((path / name).read_bytes() != data for name, data in files.items()):
                raise UnusableFile(
                    f"{path} holds another adapter than its name says.",
                    hint="Delete the folder once nothing has loaded it, and export again.",
                )
            return path
        unfinished = path.with_name(f"{path.name}.part")
        unfinished.mkdir(parents=True, exist_ok=True)  # a killed export may have left one
        for name, data in files.items():
            (unfinished / name).write_bytes(data)
        unfinished.rename(path)
    return path
