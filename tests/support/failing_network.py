"""A custom network that fails in the second process of a training. Its options say how it fails."""

import os
import signal

import torch
from torch import nn

from flyball.app.core import NetworkShape


class Failing(nn.Module):
    def __init__(self, shape: NetworkShape, how: str) -> None:
        super().__init__()
        self.how = how
        self.heads = nn.Linear(shape.features, shape.actions + 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if os.environ.get("RANK") == "1" and torch.is_grad_enabled():  # not while it is built
            if self.how == "raise":
                raise ZeroDivisionError("no sense in rank 1")
            os.kill(os.getpid(), signal.SIGKILL)
        outputs = self.heads(obs)
        return outputs[:, :-1], outputs[:, -1]


def build(shape: NetworkShape, options: dict) -> nn.Module:
    return Failing(shape, options["how"])
