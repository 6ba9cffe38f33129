"""Engine jobs that make a first adapter, or train an adapter.

The first adapter comes with a base model, unless the user names one. Training is by GRPO. Results depend on the spec
alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import islice, pairwise
from time import perf_counter
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from flyball.app.config import GameConfig
from flyball.app.core import derive_seed
from flyball.app.engine import Report
from flyball.app.job_specs import InitialiseSpec, ModelResult, TrainSpec, job
from flyball.app.language.adapters import draw_adapter, first_manifest, put_adapter
from flyball.app.language.base_model import BaseModel, check_texts, get_base, load_base, put_base
from flyball.app.language.generator import Adapter, get_adapter
from flyball.app.language.grpo import Answered, advantages, improve, with_base_log_probs
from flyball.app.language.lessons import bot_answers, small_base
from flyball.app.language.models import GENERATORS
from flyball.app.language.peft_generator import PeftGenerator
from flyball.app.language.text_games import open_text_table
from flyball.app.language.token_shard import TokenShard, get_token_shard
from flyball.app.learning.devices import decided
from flyball.app.learning.training import UnfitData
from flyball.app.store import BlobStore, open_store

CANARIES = 4
"""Number of texts in a canary; each is a prompt of the game with an answer."""

_TRAINED = "trained"
"""Name of an adapter in the generator while it is trained."""


@job
def initialise(spec: InitialiseSpec, report: Report) -> ModelResult:
    """Store a configuration's first adapter, at step 0 (a job).

    The adapter answers as its base model does. If the user names no base model, a small one is drawn, taught the
    teacher's moves, and stored. Reports ``epoch``, ``epochs`` and ``metrics`` of the lessons. Raises ``NoBaseModel``,
    ``NoLanguagePackages``, ``UnfitLanguageSettings``, ``UnusableTokenizer`` or ``UnknownGame``.
    """
    store, config = open_store(spec.store), spec.config
    settings, seed = config.language, derive_seed(spec.seed, config.key, "language")

    def taught(part: int, parts: int, loss: float) -> None:
        report({"epoch": part, "epochs": parts, "metrics": {"lesson_loss": loss}})

    if settings.base is None:
        base = get_base(store, put_base(store, small_base(config, seed, taught)))
    else:
        base = load_base(settings.base)
        check_texts(base, config)
    generator = PeftGenerator(base, decided(spec, config.backend))
    draw_adapter(
        generator,
        _TRAINED,
        rank=settings.rank,
        alpha=settings.alpha,
        targets=settings.targets,
        seed=derive_seed(seed, "adapter") % 2**32,
    )
    model = put_adapter(store, generator, _TRAINED, first_manifest(config), canary=canary_texts(config, base))
    return ModelResult(model=model, parent=None, step=0, rows=0, metrics=None)


def canary_texts(config: GameConfig, base: BaseModel) -> list[list[int]]:
    """Return the token ids of a configuration's canary texts, always the same: prompts with an answer."""
    games = bot_answers(open_text_table(config, 4 * CANARIES), "random", seed=0)
    return [base.encode(prompt + answer) for prompt, answer in islice(games, CANARIES)]


@job
def train(spec: TrainSpec, report: Report) -> ModelResult:
    """Train an adapter by GRPO on shards of its answers (a job).

    The same spec gives the same model. The optimiser's state continues that of the base. Raises ``UnfitData``,
    ``DiscardedUpdate``, and what ``GENERATORS.get_own`` raises.
    """
    began, store, config = perf_counter(), open_store(spec.store), spec.config
    shards = [get_token_shard(store, key) for key in spec.shards]
    with GENERATORS.lock:
        generator = GENERATORS.get_own(store, config, [spec.base_model], decided(spec, config.backend))
        base = _base(store, spec)
        _check_shards(shards, config, generator.fingerprint)
        answers, figures = answers_of(shards, config)
        with generator.arithmetic(), generator.active(None) as model:
            answers = with_base_log_probs(model, answers, config.language.batch_tokens)
        with _training(generator, base, config, spec.learning_rate) as (parameters, optimizer):

            def epoch_ended(epoch: int, metrics: dict[str, float]) -> None:
                report({"epoch": epoch, "epochs": spec.epochs, "metrics": metrics | figures})

            metrics = improve(
                generator.base.model,
                arithmetic=generator.arithmetic,
                parameters=parameters,
                optimizer=optimizer,
                answers=answers,
                settings=config.language,
                epochs=spec.epochs,
                generator=torch.Generator().manual_seed(spec.seed),
                report=epoch_ended,
            )
            manifest = base.checkpoint.manifest
            assert manifest.lora is not None
            model = put_adapter(
                store,
                generator,
                _TRAINED,
                manifest.successor(spec.base_model),
                canary=manifest.lora.canary.ids,
                optimizer=_state_of(optimizer),
            )
    return ModelResult(
        model=model,
        parent=spec.base_model,
        step=spec.step + 1,
        rows=sum(shard.rows for shard in shards),
        metrics=metrics | figures | {"seconds": perf_counter() - began},
    )


def answers_of(shards: Sequence[TokenShard], config: GameConfig) -> tuple[list[Answered], dict[str, float]]:
    """Return the answers to learn from, and figures of all answers.

    Answers without an advantage would only shrink the gradients of the others, so they are left out. If no answer has
    an advantage, all are returned: they teach how to stay legal and near the base model. Raises ``UnfitData`` if no
    answer leaves a choice.
    """
    answers: list[Answered] = []
    rewards: list[float] = []
    for shard in shards:
        rows = ~shard.truncated[shard.game] if config.language.truncated == "left_out" else np.ones(shard.rows, bool)
        episodes = shard.game * shard.returns.shape[1] + shard.seat
        _, firsts, places = np.unique(episodes[rows], return_index=True, return_inverse=True)
        reward, group = shard.reward[rows][firsts], shard.group[rows][firsts]
        gains = advantages(reward, group, standardised=config.language.advantage == "standardised")[places]
        rewards += reward.tolist()
        answers += [
            answer
            for row, gain in zip(np.flatnonzero(rows).tolist(), gains.tolist(), strict=True)
            if any((answer := _answered(shard, row, gain)).learned)
        ]
    if not answers:
        raise UnfitData(
            "The shards hold no answer that leaves a choice.", hint="Play longer games, or learn from truncated ones."
        )
    figures = {
        "reward": float(np.mean(rewards)),
        "legal": float(np.mean(np.concatenate([shard.legal for shard in shards]))),
        "decided": float(np.mean([answer.advantage != 0 for answer in answers])),
    }
    return [answer for answer in answers if answer.advantage] or answers, figures


def _answered(shard: TokenShard, row: int, advantage: float) -> Answered:
    begin, end = int(shard.offsets[row]), int(shard.offsets[row + 1])
    middle = begin + int(shard.prompt_length[row])
    counts = shard.allowed_counts[middle:end]
    first = int(shard.allowed_counts[:middle].sum())
    bounds = first + np.cumsum([0, *counts])
    return Answered(
        prompt=shard.ids[begin:middle].tolist(),
        ids=shard.ids[middle:end].tolist(),
        allowed=[shard.allowed[a:b].tolist() for a, b in pairwise(bounds)],
        log_probs=shard.log_prob[middle:end].tolist(),
        learned=shard.loss_mask[middle:end].tolist(),
        temperature=shard.meta.temperature,
        advantage=advantage,
    )


def _base(store: BlobStore, spec: TrainSpec) -> Adapter:
    """Return the adapter to train from. Raises ``UnfitData`` if it is of another configuration or step."""
    base = get_adapter(store, spec.base_model, optimizer=True)
    identity = base.checkpoint.manifest.config_key, base.checkpoint.manifest.step
    if identity != (spec.config.key, spec.step):
        raise UnfitData(
            f"Model {spec.base_model} is {identity}, not {(spec.config.key, spec.step)}.",
            hint="Ask for the model's own configuration and step.",
        )
    return base


def _check_shards(shards: Sequence[TokenShard], config: GameConfig, base: str) -> None:
    expected = config.key, open_text_table(config, 0).spec.rules_version, base
    for shard in shards:
        origin = shard.meta.config_key, shard.meta.rules_version, shard.meta.base
        if origin != expected:
            raise UnfitData(
                f"A shard of {shard.meta.worker} is of {origin}, not of {expected}.",
                hint="Leave it out; it was played by other rules, or with another base model.",
            )


@contextmanager
def _training(
    generator: PeftGenerator, base: Adapter, config: GameConfig, learning_rate: float
) -> Iterator[tuple[list[Tensor], torch.optim.AdamW]]:
    """Yield the parameters of an adapter's copy, and their optimiser.

    The copy is active and has gradients. The optimiser continues from the adapter's stored state.
    """
    generator.add(_TRAINED, base)
    try:
        generator.peft.base_model.set_adapter(_TRAINED)
        parameters = [parameter for parameter in generator.peft.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=config.language.weight_decay)
        if base.checkpoint.optimizer is not None:
            _restore(optimizer, base.checkpoint.optimizer)
        with checkpointed_layers(generator.base.model) if config.language.gradient_checkpointing else nullcontext():
            yield parameters, optimizer
    finally:
        generator.drop(_TRAINED)


@contextmanager
def checkpointed_layers(model: Any) -> Iterator[None]:
    """Use gradient checkpointing for a model's layers in the context.

    The backward pass computes each layer again, so that the values within it need not be kept.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers: list[Any] = [layer for layer in model.modules() if isinstance(layer, GradientCheckpointingLayer)]
    for layer in layers:
        layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)  # noqa: SLF001  # as upstream
        # The method of transformers needs the whole model in training mode, which would switch dropout on.
        layer.gradient_checkpointing = layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.gradient_checkpointing = layer.training = False


def _state_of(optimizer: torch.optim.AdamW) -> bytes:
    """Return an optimiser's state as a safetensors file."""
    state = optimizer.state_dict()["state"]
    return save_tensors(
        {
            f"{index}.{name}": value.cpu().contiguous()
            for index, values in state.items()
            for name, value in values.items()
        }
    )


def _restore(optimizer: torch.optim.AdamW, data: bytes) -> None:
    """Put a state back into an optimiser of the same parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in load_tensors(data).items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
