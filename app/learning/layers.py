"""Layers, and their first parameters drawn from an explicit generator.

Layers are made without memory. PyTorch's default initialisation would draw from the global generator, and a file may
declare sizes that no memory holds.
"""

from math import sqrt

import torch
from torch import nn

TRUNK_GAIN, POLICY_GAIN, VALUE_GAIN = sqrt(2.0), 0.01, 1.0  # for a near-uniform first policy and a critic of unit scale


def empty_linear(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear layer without memory for its parameters."""
    return nn.Linear(inputs, outputs, device="meta")


def empty_conv(inputs: int, outputs: int, size: int, padding: int | None = None) -> nn.Conv2d:
    """Return a convolution without memory, which keeps the board's size unless ``padding`` is given."""
    edge = size // 2 if padding is None else padding
    return nn.Conv2d(inputs, outputs, size, padding=edge, device="meta")


def allocate(layer: nn.Linear | nn.Conv2d) -> None:
    """Allocate a layer's parameters without values.

    ``Module.to_empty`` does the same, but imports SymPy, which takes 0.5 s.
    """
    for name, parameter in layer.named_parameters(recurse=False):
        setattr(layer, name, nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype)))


def draw(layer: nn.Linear | nn.Conv2d, gain: float, generator: torch.Generator) -> None:
    """Draw orthogonal weights, and set the biases to 0. Each output's weights are one row of the orthogonal matrix."""
    allocate(layer)
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
