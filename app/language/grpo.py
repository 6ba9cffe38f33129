"""Group-relative policy optimisation (Shao et al. 2024, "DeepSeekMath") of an adapter."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flyball.app.config import LanguageSettings
from flyball.app.language.generator import Ids
from flyball.app.language.peft_generator import batches
from flyball.app.language.scoring import answer_logits, log_probs
from flyball.app.learning.training import DiscardedUpdate

METRICS = ("policy_loss", "divergence", "illegality", "approx_kl", "clip_fraction", "surprise")


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer to learn from, of T tokens."""

    prompt: Ids
    ids: Ids
    allowed: Sequence[Ids]  # [T] tokens that were allowed at each place; empty: any
    log_probs: Sequence[float]  # [T] under the policy that played
    learned: Sequence[bool]  # [T] the loss mask: tokens that the model had a choice about
    temperature: float
    advantage: float
    base_log_probs: Sequence[float] = ()  # [T] under the base model, once ``with_base_log_probs`` found them


def advantages(reward: NDArray[np.float32], group: NDArray[np.int32], *, standardised: bool) -> NDArray[np.float32]:
    """Return the advantage of each episode [E] within its group.

    The advantage is the reward less the group's mean; ``standardised`` divides it by the group's standard deviation.
    Groups whose rewards are equal have advantages of 0.
    """
    result = np.zeros(len(reward), dtype=np.float32)
    for number in np.unique(group):
        members = group == number
        if np.ptp(reward[members]) == 0:
            continue  # because equal numbers may differ from their mean, which is rounded
        centred = reward[members] - reward[members].mean()
        deviation = reward[members].std(ddof=1)
        result[members] = centred / (deviation + 1e-4) if standardised else centred
    return result


def grpo_loss(
    new: Tensor,
    old: Tensor,
    base: Tensor,
    legal: Tensor,
    *,
    advantage: Tensor,
    learned: Tensor,
    lengths: Tensor,
    settings: LanguageSettings,
) -> tuple[Tensor, Tensor]:
    """Return the loss and the metrics, each summed over B answers.

    The sums of ``METRICS`` are one tensor without gradient.

    An answer's loss is a weighted sum of three means: of the clipped surrogate and of the divergence from the base
    model (Schulman's third estimator), both over its learned tokens, and of ``-legal`` over all its tokens. Without the
    third mean, training among legal tokens would let the probabilities of the others grow unnoticed.

    Args:
        new: [B, T] log-probabilities under the policy that learns, with gradient.
        old: [B, T] under the policy that played.
        base: [B, T] under the base model.
        legal: [B, T] log-probabilities that a free draw is an allowed token, with gradient.
        advantage: [B] of the answers.
        learned: [B, T] the loss mask.
        lengths: [B] tokens of the answers.
        settings: clip, weights, and whether ratios are those of tokens or of whole answers.
    """
    mask = learned.to(new.dtype)
    count = mask.sum(1).clamp(min=1)
    log_ratio = (new - old) * mask
    if settings.ratio == "sequence":  # the geometric mean of the tokens' ratios (Zheng et al. 2025, GSPO)
        log_ratio = (log_ratio.sum(1) / count)[:, None].expand_as(new)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - settings.clip_epsilon, 1 + settings.clip_epsilon)
    gain = torch.minimum(ratio * advantage[:, None], clipped * advantage[:, None])
    divergence = (base - new).exp() - (base - new) - 1

    def summed(values: Tensor) -> Tensor:
        return (values * mask).sum(1).div(count).sum()

    policy_loss, far, illegality = summed(-gain), summed(divergence), -legal.sum(1).div(lengths).sum()
    loss = policy_loss + settings.kl_coef * far + settings.legality_coef * illegality
    with torch.no_grad():
        moved, cut = summed(ratio - 1 - log_ratio), summed((ratio != clipped).to(new.dtype))
        return loss, torch.stack([policy_loss, far, illegality, moved, cut, summed(-new)])


def improve(
    model: Any,
    *,
    arithmetic: Callable[[], AbstractContextManager[object]],
    parameters: Sequence[Tensor],
    optimizer: torch.optim.Optimizer,
    answers: Sequence[Answered],
    settings: LanguageSettings,
    epochs: int,
    generator: torch.Generator,
    report: Callable[[int, dict[str, float]], None],
) -> dict[str, float]:
    """Improve an adapter in place; return the metrics of the last epoch.

    Args:
        model: answers by the adapter.
        arithmetic: returns the context in which the model runs.
        parameters: the adapter's.
        optimizer: over ``parameters``.
        answers: to learn from, with ``base_log_probs``.
        settings: of the loss and the batches.
        epochs: passes over the answers.
        generator: shuffles the answers.
        report: receives each epoch's number, from 1, and its metrics.

    Raises ``DiscardedUpdate`` if numbers are not finite, or the policy moved too far.
    """
    metrics: dict[str, float] = {}
    steps = ceil(len(answers) / settings.batch_rows)
    for epoch in range(1, epochs + 1):
        total, norms = torch.zeros(len(METRICS)), []
        order = torch.randperm(len(answers), generator=generator).numpy()
        for rows in np.array_split(order, steps):  # of equal size, because a small batch makes a noisy step
            optimizer.zero_grad()
            for batch in _by_tokens([answers[row] for row in rows], settings.batch_tokens):
                with arithmetic():  # new for each batch, because a context keeps the weights that it has rounded
                    loss, figures = _loss(model, batch, settings)
                torch.autograd.backward(loss / len(rows))
                total += figures.cpu()
            norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm)))
            optimizer.step()
        metrics = dict(zip(METRICS, (total / len(order)).tolist(), strict=True)) | {
            "gradient_norm": float(np.mean(norms))
        }
        if not all(np.isfinite(list(metrics.values()))) or not all(bool(p.isfinite().all()) for p in parameters):
            raise DiscardedUpdate(f"Epoch {epoch} made a NaN or an infinity.", hint="Train more gently.")
        report(epoch, metrics)
        if metrics["approx_kl"] > settings.max_kl:
            raise DiscardedUpdate(
                f"The policy moved by {metrics['approx_kl']:.2g} nats, more than {settings.max_kl:g}.",
                hint="Lower the learning rate or the epochs.",
            )
    return metrics


def with_base_log_probs(model: Any, answers: Sequence[Answered], most_tokens: int) -> list[Answered]:
    """Return answers, in order of length, with base log-probabilities; at most ``most_tokens`` are computed at once."""
    result = []
    with torch.no_grad():
        for batch in _by_tokens(answers, most_tokens):
            log_probs, _ = answered_log_probs(model, batch)
            result += [
                replace(row, base_log_probs=scores[: len(row.ids)])
                for row, scores in zip(batch, log_probs.tolist(), strict=True)
            ]
    return result


def answered_log_probs(model: Any, batch: Sequence[Answered], *, share_prefix: bool = True) -> tuple[Tensor, Tensor]:
    """Return ``log_probs`` of recorded answers, with the masks of their decoding."""
    ids = [row.ids for row in batch]
    logits = answer_logits(model, [row.prompt for row in batch], ids, share_prefix=share_prefix)
    return log_probs(logits, ids, [row.allowed for row in batch], [row.temperature for row in batch])


def _loss(model: Any, batch: Sequence[Answered], settings: LanguageSettings) -> tuple[Tensor, Tensor]:
    """Return ``grpo_loss`` of recorded answers."""
    new, legal = answered_log_probs(model, batch, share_prefix=not settings.gradient_checkpointing)
    old, base = torch.zeros(new.shape), torch.zeros(new.shape)
    learned = torch.zeros(new.shape, dtype=torch.bool)
    for index, row in enumerate(batch):
        old[index, : len(row.ids)] = torch.tensor(row.log_probs)
        base[index, : len(row.ids)] = torch.tensor(row.base_log_probs)
        learned[index, : len(row.ids)] = torch.tensor(row.learned)
    return grpo_loss(
        new,
        old.to(new.device),
        base.to(new.device),
        legal,
        advantage=torch.tensor([row.advantage for row in batch], device=new.device),
        learned=learned.to(new.device),
        lengths=torch.tensor([len(row.ids) for row in batch], device=new.device),
        settings=settings,
    )


def _by_tokens(rows: Sequence[Answered], most: int) -> list[list[Answered]]:
    ordered = sorted(rows, key=lambda row: len(row.prompt) + len(row.ids))
    lengths = [len(row.prompt) + len(row.ids) for row in ordered]
    return [[ordered[index] for index in batch] for batch in batches(range(len(ordered)), lengths, most)]
