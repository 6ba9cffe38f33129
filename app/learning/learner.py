"""Training of one model in memory, by PPO or imitation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim import Adam

from flyball.app.config import CPU, CloningSettings, Compute, PpoSettings
from flyball.app.learning.devices import arithmetic, resolve
from flyball.app.learning.network import (
    BadNetwork,
    BadParameters,
    bytes_to_parameters,
    candidates,
    load_network,
    masked_log_probs,
    parameters_to_bytes,
)
from flyball.app.learning.ppo import EpochMetrics, descend, update
from flyball.app.learning.ranks import ALONE, Ranks
from flyball.app.learning.samples import Samples, minibatches
from flyball.app.store import Checkpoint

M = TypeVar("M")

_STATE = ("step", "exp_avg", "exp_avg_sq")
_EPSILON = 1e-5  # as in the reference implementation of PPO; PyTorch's 1e-8 lets tiny gradients make large steps


@dataclass(frozen=True, slots=True)
class CloningMetrics:
    """Means over the last epoch of a cloning."""

    cross_entropy: float  # of the player's actions under the network, nats
    value_loss: float  # mean squared error of the critic
    accuracy: float  # share of rows where the player's action is the network's most probable one


@dataclass(frozen=True, slots=True)
class Improvement(Generic[M]):
    """Result of a training, with metrics of type ``M``."""

    parameters: bytes  # a safetensors file
    optimizer: bytes  # a safetensors file
    metrics: M  # of the last epoch
    gradients: dict[str, float]  # norms of the last batch's gradient, clipped, by parameter


def improve(
    base: Checkpoint,
    samples: Samples,
    settings: PpoSettings,
    *,
    seed: int,
    compute: Compute = CPU,
    ranks: Ranks = ALONE,
    report: Callable[[int, EpochMetrics], None],
) -> Improvement[EpochMetrics]:
    """Train a copy of ``base`` by PPO. Raises ``TrainingDiverged``.

    Training continues with the optimiser's state of ``base``, if there is one. The same arguments give the same bytes
    on one kind of device; on the CPU, with the same number of threads. Among ``ranks``, each trains the same copy.
    Raises ``MissingDevice``.
    """
    device, precision = resolve(compute.device), compute.precision
    network, optimizer = learner(base, settings.learning_rate, device)
    generator, samples = torch.Generator().manual_seed(seed), samples.to(device)
    metrics = update(
        network, optimizer, samples, settings, generator=generator, precision=precision, ranks=ranks, report=report
    )
    return improvement(network, optimizer, metrics)


def imitate(
    base: Checkpoint,
    samples: Samples,
    settings: CloningSettings,
    *,
    seed: int,
    compute: Compute = CPU,
) -> Improvement[CloningMetrics]:
    """Train a copy of ``base`` to imitate the actions in ``samples``. Otherwise as ``improve``."""
    device = resolve(compute.device)
    network, optimizer = learner(base, settings.learning_rate, device)
    generator, samples = torch.Generator().manual_seed(seed), samples.to(device)
    for _ in range(settings.epochs):
        parts = []
        for batch in minibatches(samples, settings.batch_size, generator):
            with arithmetic(device, compute.precision):
                logits, values = network(batch.obs)
                logits, mask, action = candidates(logits, batch.mask, batch.action)
                log_probs = masked_log_probs(logits, mask)
                cross_entropy, value_loss = -log_probs.gather(1, action).mean(), mse_loss(values, batch.target)
            descend(network, optimizer, cross_entropy + settings.value_coef * value_loss, settings.max_grad_norm)
            accuracy = (log_probs.argmax(dim=1) == action[:, 0]).float().mean()
            parts.append(torch.stack((cross_entropy, value_loss, accuracy)).detach())
    return improvement(network, optimizer, CloningMetrics(*torch.stack(parts).mean(dim=0).tolist()))


def load_adam(network: nn.Module, learning_rate: float, state: bytes | None) -> Adam:
    """Return Adam over a network's parameters, continued from ``state`` if given. Raises ``BadParameters``."""
    optimizer = Adam(network.parameters(), lr=learning_rate, eps=_EPSILON, fused=True)
    tensors = {} if state is None else bytes_to_parameters(state)
    for name, parameter in network.named_parameters() if state is not None else ():
        entries = {key: tensors.get(f"{key}.{name}") for key in _STATE}
        moments = [entries[key] for key in _STATE[1:]]
        if entries["step"] is None or any(moment is None or moment.shape != parameter.shape for moment in moments):
            raise BadParameters(
                f"The optimiser's state has no moments for {name} of shape {tuple(parameter.shape)}.",
                hint="Train from an earlier checkpoint, or from the same parameters without an optimiser.",
            )
        optimizer.state[parameter] = {key: t.to(parameter.device) for key, t in entries.items() if t is not None}
    return optimizer


def adam_to_bytes(network: nn.Module, optimizer: Adam) -> bytes:
    """Return Adam's state as a safetensors file, with names such as ``exp_avg.<parameter>``. Raises ``BadNetwork``."""
    named = dict(network.named_parameters())
    if idle := [name for name, parameter in named.items() if parameter not in optimizer.state]:
        raise BadNetwork(
            f"The network cannot be trained, because no gradient reaches {', '.join(idle)}.",
            hint="Use it in forward, or register it as a buffer. `flyball check network` finds such parameters.",
        )
    return parameters_to_bytes(
        {f"{key}.{name}": optimizer.state[p][key] for name, p in named.items() for key in _STATE}
    )


def learner(base: Checkpoint, learning_rate: float, device: torch.device) -> tuple[nn.Module, Adam]:
    """Return a checkpoint's network and its optimiser, on ``device``."""
    manifest, parameters = base.manifest, bytes_to_parameters(base.parameters)
    network = load_network(manifest.network, manifest.shape, parameters).to(device)
    return network, load_adam(network, learning_rate, base.optimizer)


def improvement(network: nn.Module, optimizer: Adam, metrics: M) -> Improvement[M]:
    """Return the result of a training: parameters, optimiser's state and metrics."""
    named = network.named_parameters()
    return Improvement(
        parameters=parameters_to_bytes(network.state_dict()),
        optimizer=adam_to_bytes(network, optimizer),
        metrics=metrics,
        gradients={name: float(p.grad.norm()) for name, p in named if p.grad is not None},
    )
