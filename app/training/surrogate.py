"""PPO's loss and its gradient in one compiled pass over the legal actions, for networks on the CPU.

``app.training.ppo.losses`` is the definition; this is its derivative by hand, and the tests hold the two together. On
a CPU a batch of small outputs costs PyTorch more in the forty operations of the loss, most of them on actions that
are illegal, than in the multiplications of the network.
"""

from math import exp, log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.config import PpoSettings
from app.core.kernels import kernel
from app.training.samples import Samples

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
