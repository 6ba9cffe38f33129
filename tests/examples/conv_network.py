"""A convolutional network of one's own, used by ``network.kind = "conv_network:build"``."""

import torch
from torch import nn


class ConvNetwork(nn.Module):
    def __init__(self, shape, channels=16):
        super().__init__()
        self.planes = shape.planes  # (C, H, W)
        planes, height, width = shape.planes
        self.body = nn.Sequential(
            nn.Conv2d(planes, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.policy = nn.Linear(channels * height * width, shape.actions)
        self.value = nn.Linear(channels * height * width, 1)

    def forward(self, obs: torch.Tensor):
        features = self.body(obs.view(-1, *self.planes))  # [N, D] to [N, C, H, W]
        return self.policy(features), torch.tanh(self.value(features)).squeeze(-1)


def build(shape, options):
    return ConvNetwork(shape, **options)
