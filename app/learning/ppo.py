"""Proximal policy optimisation (Schulman et al. 2017)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Adam

from flyball.app.config import PpoSettings, Precision
from flyball.app.core import FlyballError
from flyball.app.learning.devices import arithmetic
from flyball.app.learning.network import candidates, masked_log_probs
from flyball.app.learning.ranks import ALONE, Ranks
from flyball.app.learning.samples import Samples, minibatches


@dataclass(frozen=True, slots=True)
class EpochMetrics:
    """Means over one epoch. Losses exclude their coefficients; entropy and KL divergence are in nats."""

    policy_loss: float
    value_loss: float
    entropy: float
    approx_kl: float
    clip_fraction: float
    gradient_norm: float  # of a batch, before clipping


class TrainingDiverged(FlyballError, code="diverged"):
    """The update diverged and must be discarded. ``metrics`` are those of its last epoch."""

    def __init__(self, complaint: str, metrics: EpochMetrics) -> None:
        super().__init__(
            f"Training diverged: {complaint} ({metrics}).",
            hint="Keep the base model; lower the learning rate and the clip, or raise the entropy coefficient.",
        )
        self.metrics = metrics


def update(
    network: nn.Module,
    optimizer: Adam,
    samples: Samples,
    settings: PpoSettings,
    *,
    generator: torch.Generator,
    precision: Precision = "float32",
    ranks: Ranks = ALONE,
    report: Callable[[int, EpochMetrics], None],
) -> EpochMetrics:
    """Improve ``network`` in place; return the metrics of the last epoch.

    Raises ``TrainingDiverged``.

    Args:
        network: on the device of ``samples``; it played them, or is a slightly later policy.
        optimizer: over the parameters of ``network``.
        samples: rows to learn from.
        settings: coefficients and limits.
        generator: shuffles the rows; on the CPU, so that a seed gives the same order on every device.
        precision: of the network's arithmetic; parameters and losses are float32.
        ranks: the processes that share each minibatch; what is returned and raised is the same on all of them.
        report: receives each epoch's number, from 1, and its metrics.
    """
    for epoch in range(1, settings.epochs + 1):
        parts = []
        for minibatch in minibatches(samples, settings.batch_size, generator):
            batch = minibatch.part(ranks.share(len(minibatch)))
            weight = len(batch) / len(minibatch)  # losses are means, so the ranks' weighted ones add up
            with arithmetic(samples.action.device, precision):
                logits, values = network(batch.obs)
                loss, figures = losses(logits, values, batch, settings)
            norm = descend(network, optimizer, loss * weight, settings.max_grad_norm, ranks)
            parts.append(torch.cat((figures * weight, norm[None] / ranks.size)))
        metrics = EpochMetrics(*ranks.total(torch.stack(parts).mean(dim=0)).tolist())
        _check(network, metrics, settings)
        report(epoch, metrics)
        if metrics.approx_kl > settings.target_kl:
            break
    return metrics


def losses(logits: Tensor, values: Tensor, batch: Samples, settings: PpoSettings) -> tuple[Tensor, Tensor]:
    """Return the loss of N samples, and its metrics.

    The metrics are the first five of ``EpochMetrics``, as one tensor without gradient. The network's ``logits`` [N, A]
    are unmasked; its ``values`` are [N].
    """
    logits, mask, action = candidates(logits, batch.mask, batch.action)
    all_log_probs = masked_log_probs(logits / batch.temperature, mask)
    log_ratio = all_log_probs.gather(1, action).squeeze(1) - batch.log_prob
    ratio = log_ratio.exp()
    low, high = 1 - settings.clip_epsilon, 1 + settings.clip_epsilon
    gain = torch.minimum(ratio * batch.advantage, ratio.clamp(low, high) * batch.advantage)
    policy_loss = -gain.mean()
    value_loss = clipped_value_loss(values, batch.value, batch.target, settings.clip_epsilon)
    entropy = -(all_log_probs.exp() * all_log_probs).sum(dim=1).mean()
    loss = policy_loss + settings.value_coef * value_loss - settings.entropy_coef * entropy
    with torch.no_grad():
        kl = (ratio - 1 - log_ratio).mean()  # Schulman's estimator, never negative
        clipped = ((ratio < low) | (ratio > high)).float().mean()
        return loss, torch.stack((policy_loss, value_loss, entropy, kl, clipped))


def clipped_value_loss(values: Tensor, old: Tensor, target: Tensor, epsilon: float) -> Tensor:
    """Return the mean of the larger squared errors of values [N] and of clipped values, as in PPO."""
    clipped = old + (values - old).clamp(-epsilon, epsilon)
    return torch.maximum((values - target).square(), (clipped - target).square()).mean()


def descend(network: nn.Module, optimizer: Adam, loss: Tensor, max_norm: float, ranks: Ranks = ALONE) -> Tensor:
    """Take all ranks' joint optimiser step; return the gradient's norm [] before clipping to ``max_norm``."""
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    ranks.total_gradients(network)
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), max_norm)
    optimizer.step()
    return norm


def _check(network: nn.Module, metrics: EpochMetrics, settings: PpoSettings) -> None:
    finite = all(bool(tensor.isfinite().all()) for tensor in network.parameters())
    if not finite or metrics.policy_loss != metrics.policy_loss:
        raise TrainingDiverged("a parameter or a loss is not a number", metrics)
    if metrics.approx_kl > settings.max_kl:
        raise TrainingDiverged(f"the policy moved further than {settings.max_kl} nats", metrics)
    if metrics.entropy < settings.min_entropy:
        raise TrainingDiverged(f"the policy's entropy is below {settings.min_entropy} nats", metrics)
