"""Interface of text generators: prompts become answers of the base model, alone or with an adapter."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Literal, Protocol

from flyball.app.core import ConfigKey, FlyballError, ModelHash
from flyball.app.language.text_game import Answers
from flyball.app.store import BlobStore, Checkpoint, get_checkpoint

LORA = "lora"
"""Content of a model that is a low-rank adapter of a base model."""

TOLERANCE = 1e-3
"""Largest difference in nats between a canary's log-probabilities and those of a sound adapter, in float32.

Batches, threads and kernels make differences of 1e-5. Two adapters that differ by less than the tolerance in every
token of the canary play the same.
"""

Ids = Sequence[int]


class ModelMismatch(FlyballError):
    """A loaded model that is not the requested one. No game may be played by it."""


class UnknownAdapter(FlyballError):
    """An adapter that is not loaded."""

    def __init__(self, name: str, loaded: Sequence[str]) -> None:
        super().__init__(
            f"There is no adapter {name!r} loaded.", hint=f"Load it first; loaded are {', '.join(loaded) or 'none'}."
        )


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter from the store. Its name holds the hash of its content, so a name always means the same adapter."""

    name: str  # CONFIGURATION@SHA-256
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """A prompt to answer."""

    prompt: str
    adapter: str | None  # name of a loaded adapter; None: the base model
    answers: Answers | None  # the answer is decoded along these; None: without constraint
    seed: int  # of the draws; the answer does not depend on the other requests


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature, end and length of answers."""

    temperature: float  # divides the logits; 0: the most probable token, with log-probabilities at 1
    stop: str  # ends a free answer, and belongs to it
    most_tokens: int  # of an answer


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer."""

    text: str
    prompt: tuple[int, ...]  # token ids
    ids: tuple[int, ...]  # of the answer's T tokens
    log_probs: tuple[float, ...]  # [T] of the tokens, at the temperature and among the allowed ones
    allowed: tuple[tuple[int, ...], ...]  # [T] tokens that were allowed at each place; empty: any
    finish: Literal["stop", "length"]  # "length": the answer is not complete


class Scorer(Protocol):
    """Source of log-probabilities of texts under an adapter."""

    def score(self, texts: Sequence[Ids], adapter: str) -> list[list[float]]:
        """Return each text's log-probabilities in nats, without its first token. Raises ``UnknownAdapter``."""


class Generator(Protocol):
    """A base model with adapters, loaded and unloaded while it runs."""

    @property
    def fingerprint(self) -> str:
        """The base model's fingerprint; see ``Vocabulary``."""

    @property
    def loaded(self) -> tuple[str, ...]:
        """Names of the loaded adapters, in the order of their latest ``load``."""

    def load(self, adapter: Adapter) -> None:
        """Load and verify an adapter, unless it is loaded already.

        The canary shows whether it is the adapter that the trainer made. Raises ``ModelMismatch``; then the adapter is
        not loaded.
        """

    def unload(self, name: str) -> None:
        """Unload an adapter. Raises ``UnknownAdapter``."""

    def generate(self, requests: Sequence[PromptRequest], sampling: Sampling) -> list[Completion]:
        """Return an answer to each request. Raises ``UnknownAdapter``."""

    def score(self, texts: Sequence[Ids], adapter: str | None) -> list[list[float]]:
        """See ``Scorer.score``; without an adapter, under the base model."""

    def close(self) -> None:
        """End the connections, if there are any; the last call."""


def adapter_name(key: ConfigKey, model: ModelHash) -> str:
    """Return an adapter's name in a generator and as a folder."""
    return f"{key}@{model}"


def get_adapter(store: BlobStore, model: ModelHash, *, optimizer: bool = False) -> Adapter:
    """Return a verified adapter from the store.

    With ``optimizer``, it includes the state that further training needs. Raises ``MissingBlob``, ``DamagedBlob``,
    ``NoModel`` or ``ModelMismatch``.
    """
    checkpoint = get_checkpoint(store, model, optimizer=optimizer)
    manifest = checkpoint.manifest
    if manifest.content != LORA or manifest.lora is None or manifest.base is None:
        raise ModelMismatch(
            f"Model {model} of backend {manifest.backend} is a {manifest.content}, not an adapter.",
            hint=f"Play it under a configuration with backend = {manifest.backend!r}.",
        )
    return Adapter(adapter_name(manifest.config_key, model), checkpoint)


def check_canary(generator: Scorer, adapter: Adapter, tolerance: float = TOLERANCE) -> float:
    """Return the largest difference from the canary's log-probabilities, in nats.

    The trainer wrote the canary. Raises ``ModelMismatch`` if the difference is above ``tolerance``, or not a number.
    """
    lora = adapter.checkpoint.manifest.lora
    assert lora is not None
    scores = generator.score(lora.canary.ids, adapter.name)
    differences = [
        abs(actual - expected)
        for text_scores, written in zip(scores, lora.canary.log_probs, strict=True)
        for actual, expected in zip(
            text_scores, written[-len(text_scores) :], strict=True
        )  # some scorers return only the last ones
    ]
    largest = max(differences, key=lambda difference: (isnan(difference), difference))
    if not largest <= tolerance:
        raise ModelMismatch(
            f"MODEL_MISMATCH: {adapter.name} answers unlike the adapter that was trained: log-probabilities of fixed "
            f"texts differ by {largest:.2g} nats, more than {tolerance:g}.",
            hint="Other weights are loaded than its name says. Nothing is played by it. Restart the process that "
            "generates; if that does not help, train the adapter again.",
        )
    return largest
