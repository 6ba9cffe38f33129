"""Import of adapters from folders of PEFT into a store."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors

from flyball.app.config import GameConfig
from flyball.app.core import ModelHash, UnusableFile, parse_json, reading
from flyball.app.language.adapters import CONFIG, WEIGHTS, first_manifest, put_adapter
from flyball.app.language.generator import Adapter, Ids, ModelMismatch
from flyball.app.language.peft_generator import PeftGenerator
from flyball.app.store import BlobStore, Canary, Checkpoint, LoraManifest

_IMPORTED = "imported"
"""Name of an adapter in the generator while it is imported."""

_UNSUPPORTED = (
    "use_dora",
    "use_rslora",
    "use_qalora",
    "use_bdlora",
    "alora_invocation_tokens",
    "arrow_config",
    "layer_replication",
    "modules_to_save",
    "rank_pattern",
    "alpha_pattern",
    "layers_to_transform",
)
"""PEFT's settings that change the meaning of an adapter's tensors, and that ``LoraManifest`` lacks."""


def is_adapter(folder: Path) -> bool:
    """Return whether a folder holds an adapter as PEFT writes it."""
    return (folder / CONFIG).is_file()


def import_adapter(
    store: BlobStore, generator: PeftGenerator, folder: Path, config: GameConfig, *, canary: Sequence[Ids]
) -> ModelHash:
    """Store the adapter in a folder of PEFT; return its hash.

    Its canary is made here, from the texts in ``canary``. Raises ``UnusableFile`` if there is no adapter, or one of a
    kind that cannot be played. Raises ``ModelMismatch`` if the adapter does not fit the generator's base model, or is
    not finite.
    """
    if not is_adapter(folder):
        raise UnusableFile(
            f"There is no adapter in {folder}.",
            hint=f"A folder of PEFT has {CONFIG} and {WEIGHTS}, as save_pretrained writes them. Is the path right?",
        )
    with reading(folder / CONFIG):
        text = (folder / CONFIG).read_text()
    with reading(folder / WEIGHTS):
        data = (folder / WEIGHTS).read_bytes()
    try:
        lora = _lora(parse_json(text))
        finite = all(tensor.isfinite().all() for tensor in load_tensors(data).values())
    except (AttributeError, KeyError, TypeError, ValueError, ValidationError, SafetensorError) as error:
        raise UnusableFile(
            f"The adapter in {folder} cannot be used: {error}.",
            hint="Save it once more by PEFT's save_pretrained, as a plain LoRA with a list of target_modules.",
        ) from error
    if not finite:
        raise ModelMismatch(
            f"MODEL_MISMATCH: the adapter in {folder} holds a NaN or an infinity.",
            hint="Its training diverged: leave it out.",
        )
    manifest = first_manifest(config, lora)
    try:
        generator.add(_IMPORTED, Adapter(str(folder), Checkpoint(ModelHash(""), manifest, data, None)))
    except ValueError as error:  # from PEFT, if the base model has no such modules
        raise ModelMismatch(
            f"MODEL_MISMATCH: the adapter in {folder} does not fit the base model: {error}",
            hint="Set language.base to the base model that it adapts.",
        ) from error
    try:
        return put_adapter(store, generator, _IMPORTED, manifest, canary=canary)
    finally:
        generator.drop(_IMPORTED)


def _lora(config: dict[str, Any]) -> LoraManifest:
    """Return PEFT's settings of a plain LoRA as a manifest. Raises ``ValueError`` or ``KeyError`` for others."""
    others = [name for name in _UNSUPPORTED if config.get(name)]
    if config["peft_type"] != "LORA" or others or config.get("bias", "none") != "none":
        raise ValueError(f"it is no plain LoRA ({config['peft_type']}, {', '.join(others) or 'bias'})")
    targets = config["target_modules"]
    if not isinstance(targets, list):
        raise ValueError(f"target_modules is {targets!r}, not a list of names")  # noqa: TRY004 - a fault of the file
    unknown = Canary(ids=((0,),), log_probs=((),))  # the real one is written once the adapter is loaded
    return LoraManifest(rank=config["r"], alpha=config["lora_alpha"], targets=tuple(sorted(targets)), canary=unknown)
