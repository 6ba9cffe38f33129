"""Text generation by transformers and PEFT in this process.

Requests are grouped by adapter, and each group is decoded as a batch. Groups are faster than one mixed batch, in which
every layer computes each adapter separately.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from torch import Tensor

from flyball.app.config import CPU, Compute
from flyball.app.language.base_model import BaseModel
from flyball.app.language.decoding import AnswerRow, draw, only_legal
from flyball.app.language.generator import (
    Adapter,
    Completion,
    Generator,
    Ids,
    ModelMismatch,
    PromptRequest,
    Sampling,
    UnknownAdapter,
    adapter_name,
    check_canary,
)
from flyball.app.language.scoring import answer_logits, common_prefix, log_probs, padded, prefix_cache
from flyball.app.language.trie import Tries
from flyball.app.learning.devices import arithmetic, resolve
from flyball.app.store.blobs import key_of

_NONE = "none"
"""Name of an adapter that is never used, because PEFT needs one before others can be added."""

BATCH_TOKENS = 1 << 15
"""Tokens, padding included, that are decoded or scored at once."""


class PeftGenerator(Generator):
    """See ``Generator``. Not thread-safe.

    Attributes:
        base: the base model. PEFT puts its layers into it, so no other generator may use it.
        peft: the ``PeftModel`` around it.
    """

    def __init__(self, base: BaseModel, compute: Compute = CPU) -> None:
        from peft import LoraConfig, get_peft_model

        self.base, self.device = base, resolve(compute.device)
        self._precision = compute.precision
        base.model.to(self.device, torch.float32)  # whatever the precision, so that canaries are exact
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PEFT 0.21 asks transformers 5 for an old attribute
            self.peft: Any = get_peft_model(base.model, LoraConfig(r=1, target_modules="all-linear"), _NONE)
        self.peft.eval().requires_grad_(requires_grad=False)
        self._loaded: dict[str, Adapter] = {}
        self._tries = Tries(base)

    @property
    def fingerprint(self) -> str:
        """See ``Generator.fingerprint``."""
        return self.base.fingerprint

    @property
    def loaded(self) -> tuple[str, ...]:
        """See ``Generator.loaded``."""
        return tuple(self._loaded)

    def load(self, adapter: Adapter) -> None:
        """See ``Generator.load``. Hash, base model, shapes and numbers are checked before the canary."""
        if adapter.name in self._loaded:
            self._loaded[adapter.name] = self._loaded.pop(adapter.name)  # now the one used last
            return
        check_content(adapter, self.fingerprint)
        self.add(adapter.name, adapter)
        try:
            self._loaded[adapter.name] = adapter
            check_canary(self, adapter)
        except BaseException:
            self.unload(adapter.name)
            raise

    def add(self, name: str, adapter: Adapter) -> None:
        """Add an adapter to the model under a name. Its canary is not checked. Raises ``ModelMismatch``."""
        from peft import LoraConfig, get_peft_model_state_dict, set_peft_model_state_dict

        lora = adapter.checkpoint.manifest.lora
        assert lora is not None
        tensors = load_tensors(adapter.checkpoint.parameters)
        if not _have_rank(tensors, lora.rank):  # otherwise PEFT would take memory for the declared one
            raise _mismatch(adapter)
        config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=list(lora.targets))
        self.peft.add_adapter(name, config)
        expected = get_peft_model_state_dict(self.peft, adapter_name=name)
        if _shapes(tensors) != _shapes(expected):
            self.drop(name)
            raise _mismatch(adapter)
        set_peft_model_state_dict(self.peft, tensors, adapter_name=name)
        self.peft.requires_grad_(requires_grad=False)
        self.peft.eval()

    def unload(self, name: str) -> None:
        """See ``Generator.unload``."""
        if self._loaded.pop(name, None) is None:
            raise UnknownAdapter(name, self.loaded)
        self.drop(name)

    def drop(self, name: str) -> None:
        """Remove an adapter's layers from the model."""
        self.peft.base_model.set_adapter(_NONE, inference_mode=True)  # PEFT warns if an active adapter is deleted
        self.peft.delete_adapter(name)

    @contextmanager
    def active(self, name: str | None) -> Iterator[Any]:
        """Yield the model, which answers by an adapter (None: by none) in the context. Raises ``UnknownAdapter``."""
        if name is None:
            with self.peft.disable_adapter():
                yield self.base.model
            return
        if name not in self.peft.peft_config or name == _NONE:
            raise UnknownAdapter(name, self.loaded)
        self.peft.base_model.set_adapter(name, inference_mode=True)
        yield self.base.model

    def arithmetic(self) -> AbstractContextManager[object]:
        """Return the context for decoding and training. See ``flyball.app.learning.devices``."""
        return arithmetic(self.device, self._precision)

    def generate(self, requests: Sequence[PromptRequest], sampling: Sampling) -> list[Completion]:
        """See ``Generator.generate``."""
        completions: dict[int, Completion] = {}
        for adapter in dict.fromkeys(request.adapter for request in requests):
            rows = [row for row, request in enumerate(requests) if request.adapter == adapter]
            prompts = {row: self.base.encode(requests[row].prompt) for row in rows}
            rows.sort(key=lambda row: len(prompts[row]))
            with torch.inference_mode(), self.arithmetic(), self.active(adapter) as model:
                for batch in batches(rows, [len(prompts[row]) + sampling.most_tokens for row in rows]):
                    batched = [AnswerRow(prompts[row], requests[row], self._tries) for row in batch]
                    self._decode(model, batched, sampling)
                    completions |= {row: answer.completion() for row, answer in zip(batch, batched, strict=True)}
        return [completions[row] for row in range(len(requests))]

    def score(self, texts: Sequence[Ids], adapter: str | None) -> list[list[float]]:
        """See ``Generator.score``. The arithmetic is in float32, whatever the precision of answers."""
        scores: list[list[float]] = []
        with torch.inference_mode(), self.active(adapter) as model:
            for text in texts:  # one by one, so that there is no padding
                logits = answer_logits(model, [text[:1]], [text[1:]])
                scored, _ = log_probs(logits, [text[1:]], [()], [1.0])
                scores.append(scored[0].tolist())
        return scores

    def close(self) -> None:
        """See ``Generator.close``; this one has no connections."""

    def _decode(self, model: Any, rows: list[AnswerRow], sampling: Sampling) -> None:
        """Decode rows together; tokens without a choice are read together with the token drawn before them."""
        live = [row for row in rows if row.finish is None]
        if not live:
            return
        texts = [row.prompt + row.unread() for row in live]
        prefix = common_prefix(texts)
        cache = prefix_cache(model, texts[0][:prefix], len(live), self.device)
        ids, mask, positions = padded(texts, prefix, self.device)
        while live:
            out = model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                cache=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = out.cache
            drawn = draw(only_legal(out.logits[:, -1].float().cpu(), live), live, sampling)
            for row, (token, log_prob) in zip(live, drawn, strict=True):
                row.take(token, log_prob, self.base.decode, sampling)
            going = [index for index, row in enumerate(live) if row.finish is None]
            if len(going) < len(live):
                kept_rows = torch.tensor(going, dtype=torch.long, device=self.device)
                cache.batch_select_indices(kept_rows)
                mask, positions = mask[kept_rows], positions[kept_rows]
                live = [live[index] for index in going]
            if live:
                ids, new_mask, after = padded([row.unread() for row in live], 0, self.device)
                mask = torch.cat([mask, new_mask], 1)
                positions = positions[:, -1:] + 1 + after


def batches(rows: Sequence[int], lengths: Sequence[int], most: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Yield rows, by ascending ``lengths``, as batches of at least one row and at most ``most`` tokens with padding."""
    batch: list[int] = []
    for row, length in zip(rows, lengths, strict=True):
        if batch and (len(batch) + 1) * length > most:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def check_content(adapter: Adapter, fingerprint: str) -> None:
    """Check an adapter's hash, base model, rank and numbers before loading. Raises ``ModelMismatch``."""
    checkpoint = adapter.checkpoint
    manifest = checkpoint.manifest
    assert manifest.lora is not None
    key = key_of(checkpoint.parameters)
    if adapter.name != adapter_name(manifest.config_key, checkpoint.model) or checkpoint.model != key:
        raise ModelMismatch(
            f"MODEL_MISMATCH: the file of {adapter.name} has the hash {key}.",
            hint="It was overwritten or mixed up. Adapters are stored by their hash, and never changed.",
        )
    if manifest.base != fingerprint:
        raise ModelMismatch(
            f"MODEL_MISMATCH: {adapter.name} adapts base model {manifest.base}, and {fingerprint} is loaded.",
            hint="Set the base model with which the run was begun: an adapter fits no other.",
        )
    tensors = load_tensors(checkpoint.parameters)
    if not _have_rank(tensors, manifest.lora.rank):
        raise _mismatch(adapter)
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ModelMismatch(
                f"MODEL_MISMATCH: {name} of {adapter.name} holds a NaN or an infinity.",
                hint="Its training diverged. Train again from its parent.",
            )


def _have_rank(tensors: Mapping[str, Tensor], rank: int) -> bool:
    """Return whether all tensors are matrices of a rank."""
    dimensions = {name: 0 if ".lora_A." in name else 1 for name in tensors}
    return all(tensor.ndim == 2 and tensor.shape[dimensions[name]] == rank for name, tensor in tensors.items())


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _mismatch(adapter: Adapter) -> ModelMismatch:
    return ModelMismatch(
        f"MODEL_MISMATCH: the tensors of {adapter.name} are not those of its rank and of this base model.",
        hint="It was made for another base model, or by another version of peft.",
    )
