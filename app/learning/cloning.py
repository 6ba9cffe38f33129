"""Behavioural cloning: a network learns to do what another player did, and to expect what came of it."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from app.config import CloningSettings
from app.learning.network import ActorCritic, masked_log_probs
from app.learning.optimizer import VectorAdam
from app.learning.samples import Samples, minibatches


@dataclass(frozen=True, slots=True)
class CloningMetrics:
    """Means over the last epoch.

    Attributes:
        cross_entropy: of the player's actions under the network, nats.
        value_loss: mean squared error of the critic.
        accuracy: share of the rows where the network finds the player's action the most probable.
    """

    cross_entropy: float
    value_loss: float
    accuracy: float


def clone(
    network: ActorCritic,
    optimizer: VectorAdam,
    samples: Samples,
    settings: CloningSettings,
    *,
    generator: torch.Generator,
) -> CloningMetrics:
    """Fit ``network`` in place to the actions and targets of ``samples``, on their device."""
    for _ in range(settings.epochs):
        metrics = []
        for batch in minibatches(samples, settings.batch_size, generator):
            loss, part = cloning_loss(network, batch, settings.value_coef)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step(settings.max_grad_norm)
            metrics.append(part)
    return CloningMetrics(*torch.stack(metrics).mean(dim=0).tolist())


def cloning_loss(network: ActorCritic, batch: Samples, value_coef: float) -> tuple[Tensor, Tensor]:
    """Return the loss, and the metrics of ``CloningMetrics`` as one tensor without gradient."""
    logits, values = network(batch.obs.float())
    log_probs = masked_log_probs(logits, batch.mask)
    cross_entropy = -log_probs.gather(1, batch.action).mean()
    value_loss = mse_loss(values, batch.target)
    loss = cross_entropy + value_coef * value_loss
    with torch.no_grad():
        accuracy = (log_probs.argmax(dim=1) == batch.action[:, 0]).float().mean()
        return loss, torch.stack((cross_entropy, value_loss, accuracy))
