"""Networks that play as dense layers: a perceptron and board windows."""

from dataclasses import replace
from itertools import pairwise
from math import prod, sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from flyball.app.config import NetworkSettings
from flyball.app.core import NetworkShape
from flyball.app.learning.layers import POLICY_GAIN, TRUNK_GAIN, VALUE_GAIN, draw, empty_conv, empty_linear

LARGEST_WINDOW = 4  # cells a side
WINDOWS_GAIN = sqrt(1 / 3)  # gain of PyTorch's default layers; windows learn faster with it than with other gains

DenseLayer = tuple[Tensor, Tensor]
"""Weight [outputs, inputs] and bias [outputs]."""


class ActorCritic(nn.Module):
    """A perceptron: a ReLU trunk with a policy and a value head.

    The trunk has layers of ``settings.hidden`` units, and then ``settings.residual`` residual blocks. The heads are
    linear. The weights are not initialised: see ``init_policy`` and ``load_network``.
    """

    trunk_gain, policy_gain, value_gain = TRUNK_GAIN, POLICY_GAIN, VALUE_GAIN

    def __init__(self, settings: NetworkSettings, shape: NetworkShape) -> None:
        super().__init__()
        widths = (shape.features, *settings.hidden)
        self.trunk = nn.ModuleList(empty_linear(wide, narrow) for wide, narrow in pairwise(widths))
        self.blocks = nn.ModuleList(DenseBlock(widths[-1]) for _ in range(settings.residual))
        self.policy_head = empty_linear(widths[-1], shape.actions)
        self.value_head = empty_linear(widths[-1], 1)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw orthogonal weights; set biases to 0."""
        second = self.trunk_gain / max(1, len(self.blocks))
        gains = {"second": second, "policy_head": self.policy_gain, "value_head": self.value_gain}
        for name, layer in self.named_modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                draw(layer, gains.get(name.rpartition(".")[2], self.trunk_gain), generator)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return unmasked logits [N, A] and values [N] of floating-point observations [N, D]."""
        features = obs
        for layer in self.trunk:
            features = torch.relu(layer(features))
        for block in self.blocks:
            features = block(features)
        return self.policy_head(features), self.value_head(features).squeeze(-1)

    def hidden_layers(self) -> list[DenseLayer]:
        """Return the layers before the blocks, with ReLU after each."""
        return [(layer.weight.detach(), layer.bias.detach()) for layer in self.trunk if isinstance(layer, nn.Linear)]


class DenseBlock(nn.Module):
    """Two layers beside a shortcut. The second begins with small weights, as in ``flyball.app.learning.tower``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = empty_linear(width, width), empty_linear(width, width)

    def forward(self, features: Tensor) -> Tensor:
        """Return features of the same shape [N, width]."""
        change: Tensor = self.second(torch.relu(self.first(features)))
        return features + change


class Windows(ActorCritic):
    """A small layer over all windows of a board, then an ``ActorCritic``.

    A window is a square of at most ``LARGEST_WINDOW`` cells a side that lies on the board. Each is mapped to
    ``settings.filters`` numbers by the same weights, as by a convolution without padding. A linear map of the scalars
    is added to the numbers of each window.
    """

    trunk_gain = policy_gain = value_gain = WINDOWS_GAIN

    def __init__(self, settings: NetworkSettings, shape: NetworkShape) -> None:
        assert shape.planes is not None
        planes, height, width = shape.planes
        side = min(LARGEST_WINDOW, height, width)
        places = (height - side + 1) * (width - side + 1)
        super().__init__(settings, replace(shape, features=settings.filters * places, planes=None))
        self._features, self._planes = shape.features, shape.planes
        self.windows = empty_conv(planes, settings.filters, side, padding=0)
        self.scalars = empty_linear(shape.scalars, settings.filters) if shape.scalars else None

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return unmasked logits [N, A] and values [N] of floating-point observations [N, D]."""
        planes, scalars = self._parts(obs)
        sums = self.windows(planes)
        if self.scalars is not None:
            sums = sums + self.scalars(scalars)[:, :, None, None]
        return super().forward(torch.relu(sums.flatten(1)))

    def hidden_layers(self) -> list[DenseLayer]:
        """Return the layers before the blocks, with ReLU after each.

        The windows are one sparse matrix: on the processor's matrix units its zeros cost less than gathering each
        window's cells.
        """
        weight, bias = self.windows.weight.detach(), self.windows.bias
        assert bias is not None
        planes, scalars = self._parts(torch.eye(self._features, dtype=weight.dtype, device=weight.device))
        sums = functional.conv2d(planes, weight)
        places = sums[0, 0].numel()
        if self.scalars is not None:
            sums, bias = sums + (scalars @ self.scalars.weight.detach().t())[:, :, None, None], bias + self.scalars.bias
        columns = sums.flatten(1)  # one row of weights for each feature
        return [(columns.t().contiguous(), bias.detach().repeat_interleave(places)), *super().hidden_layers()]

    def _parts(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Split observations into planes [N, C, H, W] and scalars [N, S]."""
        size = prod(self._planes)
        return obs[:, :size].reshape(-1, *self._planes), obs[:, size:]
