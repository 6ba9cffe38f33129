"""The network's derivative by hand, for the CPU.

There, autograd adds an eighth to the time of a small network's passes: it allocates each gradient and adds it to
one of zeros. This writes products over it. What it needs of a network is what an ``ActorCritic`` is: linear
layers, a ReLU after each, under two linear heads: whoever changes its ``features`` or ``heads`` changes this too, and
the tests, which compare it with autograd, say so.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from app.policy import ActorCritic, linear


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
