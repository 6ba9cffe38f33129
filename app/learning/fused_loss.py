"""The network's derivative by hand, for the CPU.

There, autograd adds an eighth to the time of a small network's passes: it allocates each gradient and adds it to
one of zeros. This writes products over it. What it needs of a network is what an ``ActorCritic`` is: linear
layers, a ReLU after each, under two linear heads: whoever changes its ``features`` or ``heads`` changes this too, and
the tests, which compare it with autograd, say so.
"""

from itertools import pairwise
from math import exp, log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from app.config import PpoSettings
from app.core.kernels import kernel
from app.learning.network import ActorCritic, linear
from app.learning.samples import Samples

# PPO's loss and its gradient in one compiled pass over the legal actions, for networks on the CPU.
#
# ``app.learning.ppo.losses`` is the definition; this is its derivative by hand, and the tests hold the two together. On
# a CPU a batch of small outputs costs PyTorch more in the forty operations of the loss, most of them on actions that
# are illegal, than in the multiplications of the network.

Floats = NDArray[np.float32]


def surrogate(
    logits: Tensor, values: Tensor, batch: Samples, settings: PpoSettings
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return the gradient of the loss by logits [N, A] and values [N], and the metrics as ``losses`` returns them."""
    by_logits, by_values = torch.zeros_like(logits), torch.empty_like(values)
    sums = np.zeros(5)
    _differentiate(
        (logits.detach().numpy(), values.detach().numpy()),
        (batch.mask.numpy(), batch.action.numpy()[:, 0], batch.temperature.numpy()[:, 0]),
        (batch.log_prob.numpy(), batch.value.numpy(), batch.advantage.numpy(), batch.target.numpy()),
        (settings.clip_epsilon, settings.value_coef, settings.entropy_coef),
        (by_logits.numpy(), by_values.numpy(), sums),
    )
    return (by_logits, by_values), torch.from_numpy((sums / len(batch)).astype(np.float32))


@kernel
def _differentiate(
    outputs: tuple[Floats, Floats],
    choices: tuple[NDArray[np.bool_], NDArray[np.int64], Floats],
    estimates: tuple[Floats, Floats, Floats, Floats],
    coefficients: tuple[float, float, float],
    out: tuple[Floats, Floats, NDArray[np.float64]],
) -> None:
    """Write the gradient of the mean loss, by logits and by values, and the sums of the metrics into ``out``."""
    logits, values = outputs
    mask, actions, temperatures = choices
    log_probs, olds, advantages, targets = estimates
    epsilon, value_coef, entropy_coef = coefficients
    by_logits, by_values, sums = out
    rows, width = mask.shape
    legal, surprises, shares = np.empty(width, dtype=np.int64), np.empty(width), np.empty(width)
    for n in range(rows):
        count, entropy = _softmax(logits[n], mask[n], temperatures[n], (legal, surprises, shares))
        log_ratio = -log_probs[n]
        for j in range(count):
            if legal[j] == actions[n]:
                log_ratio -= surprises[j]
        ratio, advantage = exp(log_ratio), advantages[n]
        near = min(max(ratio, 1 - epsilon), 1 + epsilon)
        slope = advantage * ratio if ratio * advantage <= near * advantage else 0.0
        for j in range(count):
            chosen = 1.0 if legal[j] == actions[n] else 0.0
            gradient = entropy_coef * shares[j] * (entropy - surprises[j]) - slope * (chosen - shares[j])
            by_logits[n, legal[j]] = gradient / (temperatures[n] * rows)
        error = values[n] - targets[n]
        moved = min(max(values[n] - olds[n], -epsilon), epsilon)
        clipped_error = olds[n] + moved - targets[n]
        free = abs(values[n] - olds[n]) <= epsilon or error * error >= clipped_error * clipped_error
        by_values[n] = 2 * value_coef * error / rows if free else 0.0
        sums[0] -= min(ratio * advantage, near * advantage)
        sums[1] += max(error * error, clipped_error * clipped_error)
        sums[2] += entropy
        sums[3] += ratio - 1 - log_ratio
        sums[4] += ratio != near


@kernel
def _softmax(
    logits: Floats,
    mask: NDArray[np.bool_],
    temperature: float,
    out: tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]],
) -> tuple[int, float]:
    """Write which actions are legal, minus the logarithms of their probabilities, and these; return count, entropy."""
    legal, surprises, shares = out
    count, top, total, mean = 0, -np.inf, 0.0, 0.0
    for action in range(len(mask)):
        if mask[action]:
            legal[count] = action
            top = max(top, logits[action])
            count += 1
    for j in range(count):
        surprises[j] = (top - logits[legal[j]]) / temperature
        shares[j] = exp(-surprises[j])
        total += shares[j]
        mean += shares[j] * surprises[j]
    rest = log(total)
    for j in range(count):
        surprises[j] += rest
        shares[j] /= total
    return count, mean / total + rest


def backward(network: ActorCritic, features: list[Tensor], by_logits: Tensor, by_values: Tensor) -> None:
    """Overwrite the gradients of the network's parameters, which must be there, with those of a loss.

    Args:
        network: whose outputs the loss is of.
        features: what ``network.features`` returned.
        by_logits: the loss's gradient by logits [N, A].
        by_values: and by values [N].
    """
    policy, value = network.policy_head, network.value_head
    by_value = by_values[:, None]
    _write(policy, features[-1], by_logits)
    _write(value, features[-1], by_value)
    by_outputs = linear(by_logits, policy.weight.t()).addmm_(by_value, value.weight)
    for layer, (inputs, outputs) in reversed(list(zip(network.trunk, pairwise(features), strict=True))):
        assert isinstance(layer, nn.Linear)
        by_sums = torch.ops.aten.threshold_backward(by_outputs, outputs, 0)
        _write(layer, inputs, by_sums)
        if inputs is not features[0]:  # an observation has no gradient
            by_outputs = linear(by_sums, layer.weight.t())


def _write(layer: nn.Linear, inputs: Tensor, by_outputs: Tensor) -> None:
    weight, bias = layer.weight.grad, layer.bias.grad
    assert weight is not None
    assert bias is not None
    weight.copy_(linear(by_outputs.t(), inputs.t()))
    torch.sum(by_outputs, 0, out=bias)
