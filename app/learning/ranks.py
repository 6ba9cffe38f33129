"""Ranks: processes that share a training's minibatches and sum up gradients, with the same bits on all."""

from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn

from flyball.app.core import FlyballError


class TooFewRows(FlyballError):
    """A minibatch with fewer rows than there are processes."""


class RankFailed(FlyballError):
    """A rank raised an error that is not one of Flyball's."""


class PeerLost(Exception):
    """Another rank ended. ``torchrun`` then starts all ranks again."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process's number among the processes of a training."""

    rank: int = 0
    size: int = 1

    def share(self, rows: int) -> slice:
        """Return this rank's rows of a minibatch.

        The ranks' shares are a partition; their sizes differ by at most one row. Raises ``TooFewRows``, because means
        over no rows are undefined.
        """
        if rows < self.size:
            raise TooFewRows(
                f"{self.size} processes cannot share a minibatch of {rows} rows.",
                hint="Train with fewer processes (deployment.processes_per_training; in flyball train: "
                "training.processes), or larger minibatches.",
            )
        return slice(rows * self.rank // self.size, rows * (self.rank + 1) // self.size)

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum of all ranks' tensors, in place. Raises ``PeerLost``."""
        if self.size > 1:
            try:
                distributed.all_reduce(tensor)
            except RuntimeError as error:  # gloo and NCCL raise no narrower class
                raise PeerLost(str(error)) from error
        return tensor

    def total_gradients(self, network: nn.Module) -> None:
        """Sum each parameter's gradient over all ranks. Raises ``PeerLost``.

        The sum replaces the gradient. A parameter that has no gradient on any rank keeps none, as in one process.
        """
        if self.size == 1:
            return
        parameters = list(network.parameters())
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        used = gradients[0].new_tensor([p.grad is not None for p in parameters])
        total = self.total(torch.cat([*(gradient.flatten() for gradient in gradients), used]))
        *sums, uses = torch.split(total, [*(p.numel() for p in parameters), len(parameters)])
        for parameter, gradient, summed, count in zip(parameters, gradients, sums, uses.tolist(), strict=True):
            parameter.grad = gradient.copy_(summed.view_as(gradient)) if count else None


ALONE = Ranks()
