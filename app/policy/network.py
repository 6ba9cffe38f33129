"""The actor-critic network: one shared trunk, a policy head and a value head."""

from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor, nn

from app.config import NetworkSettings
from app.policy.layers import linear

MASKED_LOGIT = -1e9
"""Stands for minus infinity: its probability underflows to exactly 0 and its gradient is 0, not NaN."""

TRUNK_GAIN, POLICY_GAIN, VALUE_GAIN = sqrt(2.0), 0.01, 1.0
"""Orthogonal gains: a first policy close to uniform, a critic of unit scale."""


class ActorCritic(nn.Module):
    """A ReLU trunk of ``settings.hidden`` layers under two linear heads.

    Args:
        settings: widths of the hidden layers.
        obs_size: number of features of an observation.
        actions: number of actions of the game, legal or not.

    The weights are not initialised: see :func:`initialise` and ``load_state_dict``.
    """

    def __init__(self, settings: NetworkSettings, obs_size: int, actions: int) -> None:
        super().__init__()
        widths = (obs_size, *settings.hidden)
        self.trunk = nn.ModuleList(_linear(wide, narrow) for wide, narrow in pairwise(widths))
        self.policy_head = _linear(widths[-1], actions)
        self.value_head = _linear(widths[-1], 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [N, A], unmasked, and values [N] of float observations [N, D]."""
        return self.heads(self.features(obs)[-1])

    def features(self, obs: Tensor) -> list[Tensor]:
        """Return what goes into each layer, float observations [N, D] first, and what comes out of the trunk, last."""
        features = [obs]
        for layer in self.trunk:
            features.append(_through(layer, features[-1]).relu_())
        return features

    def heads(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [N, A] and values [N] of what comes out of the trunk."""
        return _through(self.policy_head, features), _through(self.value_head, features).squeeze(-1)


def initialise(network: ActorCritic, generator: torch.Generator) -> None:
    """Draw orthogonal weights from ``generator`` and set the biases to 0."""
    for layer in network.trunk:
        _orthogonal(layer, TRUNK_GAIN, generator)
    _orthogonal(network.policy_head, POLICY_GAIN, generator)
    _orthogonal(network.value_head, VALUE_GAIN, generator)


def masked_log_probs(logits: Tensor, mask: Tensor) -> Tensor:
    """Return log-probabilities [N, A] over the legal actions; illegal ones get about ``MASKED_LOGIT``."""
    return torch.log_softmax(logits.masked_fill(~mask, MASKED_LOGIT), dim=-1)


def _through(layer: nn.Module, inputs: Tensor) -> Tensor:
    assert isinstance(layer, nn.Linear)
    return linear(inputs, layer.weight, layer.bias)


def _linear(inputs: int, outputs: int) -> nn.Linear:
    # Made without storage first: PyTorch's default initialisation would draw from the global generator.
    return nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")


def _orthogonal(layer: nn.Module, gain: float, generator: torch.Generator) -> None:
    assert isinstance(layer, nn.Linear)
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
