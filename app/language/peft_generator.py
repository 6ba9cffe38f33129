"""Generation by transformers and PEFT in this process: requests are grouped by adapter, each group decoded as a batch.

Groups are faster than one mixed batch, in which every layer computes each adapter apart.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from torch import Tensor

from app.config import CPU, Compute
from app.language.base_model import BaseModel
from app.language.generator import (
    Adapter,
    Completion,
    Generator,
    Ids,
    ModelMismatch,
    Request,
    Sampling,
    UnknownAdapter,
    adapter_name,
    check_canary,
)
from app.language.scoring import answer_logits, common_prefix, log_probs, padded, prefix_cache
from app.language.trie import Cursor, Tries
from app.learning.devices import arithmetic, resolve
from app.play.rng import draw_points
from app.store.blobs import key_of

_NONE = "none"
"""Name of an adapter that is never used: PEFT wants one before others can be added."""

BATCH_TOKENS = 1 << 15
"""Tokens, padding included, that are decoded or scored at once."""


class PeftGenerator(Generator):
    """See ``Generator``. Not thread-safe.

    Attributes:
        base: the base model. PEFT puts its layers into it, so it belongs to this generator alone.
        peft: the ``PeftModel`` around it.
    """

    def __init__(self, base: BaseModel, compute: Compute = CPU) -> None:
        from peft import LoraConfig, get_peft_model

        self.base, self.device = base, resolve(compute.device)
        self._precision = compute.precision
        base.model.to(self.device, torch.float32)  # in any precision, so that canaries are exact
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
        """See ``Generator.load``. Before the canary, hash, base, shapes and numbers are checked."""
        if adapter.name in self._loaded:
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
        """Put an adapter's tensors into the model under a name, without a canary. Raises ``ModelMismatch``."""
        from peft import LoraConfig, get_peft_model_state_dict, set_peft_model_state_dict

        lora = adapter.checkpoint.manifest.lora
        assert lora is not None
        tensors = load_tensors(adapter.checkpoint.parameters)
        config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=list(lora.targets))
        self.peft.add_adapter(name, config)
        wanted = get_peft_model_state_dict(self.peft, adapter_name=name)
        if _shapes(tensors) != _shapes(wanted):
            self.drop(name)
            raise ModelMismatch(
                f"MODEL_MISMATCH: the tensors of {adapter.name} are not those of its rank and of this base model.",
                hint="It was made for another base model, or by another version of peft.",
            )
        set_peft_model_state_dict(self.peft, tensors, adapter_name=name)
        self.peft.requires_grad_(requires_grad=False)
        self.peft.eval()

    def unload(self, name: str) -> None:
        """See ``Generator.unload``."""
        if self._loaded.pop(name, None) is None:
            raise _unknown(name, self.loaded)
        self.drop(name)

    def drop(self, name: str) -> None:
        """Take an adapter's layers out of the model."""
        self.peft.base_model.set_adapter(_NONE, inference_mode=True)  # PEFT warns if an active one goes
        self.peft.delete_adapter(name)

    @contextmanager
    def active(self, name: str | None) -> Iterator[Any]:
        """Return the model that answers by an adapter in the context; None: by the base alone."""
        if name is None:
            with self.peft.disable_adapter():
                yield self.base.model
            return
        if name not in self.peft.peft_config or name == _NONE:
            raise _unknown(name, self.loaded)
        self.peft.base_model.set_adapter(name, inference_mode=True)
        yield self.base.model

    def arithmetic(self) -> AbstractContextManager[object]:
        """Return the context in which answers are drawn and learned from; see ``app.learning.devices``."""
        return arithmetic(self.device, self._precision)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """See ``Generator.generate``."""
        found: dict[int, Completion] = {}
        for adapter in dict.fromkeys(request.adapter for request in requests):
            rows = [row for row, request in enumerate(requests) if request.adapter == adapter]
            prompts = {row: self.base.encode(requests[row].prompt) for row in rows}
            rows.sort(key=lambda row: len(prompts[row]))
            with torch.inference_mode(), self.arithmetic(), self.active(adapter) as model:
                for batch in batches(rows, [len(prompts[row]) + sampling.most_tokens for row in rows]):
                    batched = [_Row(prompts[row], requests[row], self._tries) for row in batch]
                    self._decode(model, batched, sampling)
                    found |= {row: one.completion() for row, one in zip(batch, batched, strict=True)}
        return [found[row] for row in range(len(requests))]

    def score(self, texts: Sequence[Ids], adapter: str | None) -> list[list[float]]:
        """See ``Generator.score``. The arithmetic is in float32 whatever the precision of answers."""
        scores: list[list[float]] = []
        with torch.inference_mode(), self.active(adapter) as model:
            for text in texts:  # one by one, so that no padding is between
                logits = answer_logits(model, [text[:1]], [text[1:]])
                found, _ = log_probs(logits, [text[1:]], [()], [1.0])
                scores.append(found[0].tolist())
        return scores

    def _decode(self, model: Any, rows: list["_Row"], sampling: Sampling) -> None:
        """Decode the answers of rows together. Tokens without a choice are read with the one drawn before them."""
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
            drawn = _draw(out.logits[:, -1].float().cpu(), live, sampling)
            for row, (token, log_prob) in zip(live, drawn, strict=True):
                row.take(token, log_prob, self.base, sampling)
            going = [place for place, row in enumerate(live) if row.finish is None]
            if len(going) < len(live):
                places = torch.tensor(going, dtype=torch.long, device=self.device)
                cache.batch_select_indices(places)
                mask, positions = mask[places], positions[places]
                live = [live[place] for place in going]
            if live:
                ids, seen, after = padded([row.unread() for row in live], 0, self.device)
                mask = torch.cat([mask, seen], 1)
                positions = positions[:, -1:] + 1 + after


@dataclass(slots=True, eq=False)
class _Row:
    """An answer that is being decoded."""

    prompt: list[int]
    request: Request
    tries: Tries
    cursor: Cursor | None = field(init=False, default=None)
    ids: list[int] = field(init=False, default_factory=list)
    log_probs: list[float] = field(init=False, default_factory=list)
    allowed: list[tuple[int, ...]] = field(init=False, default_factory=list)
    finish: Any = field(init=False, default=None)
    text: str = field(init=False, default="")
    read: int = field(init=False, default=0)  # tokens of the answer that the model has read

    def __post_init__(self) -> None:
        if self.request.answers is not None:
            self.cursor = Cursor(self.request.answers, self.tries)
            self._take_without_choice(self.cursor)

    @property
    def legal(self) -> tuple[int, ...]:
        """The allowed next tokens; none: any."""
        return () if self.cursor is None else self.cursor.allowed

    def take(self, token: int, log_prob: float, base: BaseModel, sampling: Sampling) -> None:
        """Append a drawn token, and those after it that leave no choice.

        A free answer ends at ``stop`` or is cut off; one along ``answers`` is never cut off, for then it is not legal.
        """
        self._append(token, log_prob)
        if self.cursor is not None:
            self._take_without_choice(self.cursor)
            return
        self.text = base.decode(self.ids)
        if sampling.stop in self.text:
            self.text = self.text[: self.text.index(sampling.stop) + len(sampling.stop)]
            self.finish = "stop"
        elif len(self.ids) >= sampling.most_tokens:
            self.finish = "length"

    def _append(self, token: int, log_prob: float) -> None:
        self.allowed.append(self.legal)
        self.ids.append(token)
        self.log_probs.append(log_prob)
        if self.cursor is not None:
            self.cursor.take(token)

    def _take_without_choice(self, cursor: Cursor) -> None:
        """Append tokens as long as only one is allowed, with log-probabilities of 0."""
        while len(cursor.allowed) == 1:
            self._append(cursor.allowed[0], 0.0)
        if not cursor.allowed:
            self.text, self.finish = cursor.text, "stop"

    def unread(self) -> list[int]:
        """Return the answer's tokens that were not returned before."""
        tokens, self.read = self.ids[self.read :], len(self.ids)
        return tokens

    def completion(self) -> Completion:
        """Return the answer."""
        return Completion(
            self.text, tuple(self.prompt), tuple(self.ids), tuple(self.log_probs), tuple(self.allowed), self.finish
        )


def _draw(logits: Tensor, rows: Sequence[_Row], sampling: Sampling) -> list[tuple[int, float]]:
    """Return a token for each row of ``logits`` [B, V], and its log-probability."""
    scaled = logits.double() / (sampling.temperature or 1.0)
    for place, row in enumerate(rows):
        if legal := row.legal:
            barred = torch.ones(logits.shape[1], dtype=torch.bool)
            barred[list(legal)] = False
            scaled[place, barred] = float("-inf")
    found = scaled.log_softmax(-1)
    if sampling.temperature:
        seeds = np.array([row.request.seed for row in rows], dtype=np.uint64)
        points = draw_points(seeds, np.array([len(row.ids) for row in rows]))
        sums = found.exp().cumsum(-1)
        target = torch.from_numpy(points)[:, None] * sums[:, -1:]
        tokens = torch.searchsorted(sums, target, right=True)[:, 0].clamp(max=logits.shape[1] - 1)
    else:
        tokens = found.argmax(-1)
    chosen = found.gather(1, tokens[:, None])[:, 0]
    return list(zip(tokens.tolist(), chosen.tolist(), strict=True))


def batches(rows: Sequence[int], lengths: Sequence[int], most: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Yield consecutive rows, of ascending ``lengths``, as batches of at most ``most`` tokens, but at least one row."""
    batch: list[int] = []
    for row, length in zip(rows, lengths, strict=True):
        if batch and (len(batch) + 1) * length > most:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def check_content(adapter: Adapter, fingerprint: str) -> None:
    """Check an adapter before it is loaded: its hash, base model and numbers. Raises ``ModelMismatch``."""
    checkpoint = adapter.checkpoint
    manifest = checkpoint.manifest
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
    for name, tensor in load_tensors(checkpoint.parameters).items():
        if not tensor.isfinite().all():
            raise ModelMismatch(
                f"MODEL_MISMATCH: {name} of {adapter.name} holds a NaN or an infinity.",
                hint="Its training diverged. Train again from its parent.",
            )


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _unknown(name: str, loaded: Sequence[str]) -> UnknownAdapter:
    return UnknownAdapter(
        f"There is no adapter {name!r} loaded.", hint=f"Load it first; loaded are {', '.join(loaded) or 'none'}."
    )
