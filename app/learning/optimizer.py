"""Adam over a network's parameters as one vector, and its state as bytes."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.optim.adam import adam

from app.learning.network import ActorCritic, BadParameters, bytes_to_parameters, parameters_to_bytes

_MOMENTS = ("exp_avg", "exp_avg_sq")
_BETAS = (0.9, 0.999)
_EPSILON = 1e-5  # as in the reference implementation of PPO; PyTorch's 1e-8 lets tiny gradients make large steps


class VectorAdam:
    """Adam, with the gradient clipped to a norm.

    The network's parameters and their gradients become views of one vector each: small networks spend as long on
    walking through their tensors as on the arithmetic.

    Args:
        network: whose parameters move.
        learning_rate: of Adam.
        state: to go on from, as ``to_bytes`` returned it.

    Raises ``BadParameters`` when the state is of another network.
    """

    def __init__(self, network: ActorCritic, learning_rate: float, state: bytes | None) -> None:
        self._named = dict(network.named_parameters())
        self._learning_rate = learning_rate
        self._vector = torch.cat([p.detach().flatten() for p in self._named.values()])
        self._gradient = torch.zeros_like(self._vector)
        self._steps = torch.zeros((), device=self._vector.device)
        self._moments = {moment: torch.zeros_like(self._vector) for moment in _MOMENTS}
        if state is not None:
            self._read(bytes_to_parameters(state))
        for name, part in self._parts(self._vector):
            self._named[name].data = part
        for name, part in self._parts(self._gradient):
            self._named[name].grad = part

    def zero_grad(self) -> None:
        """Forget the gradient, for autograd to sum up a new one."""
        self._gradient.zero_()

    def step(self, max_norm: float) -> Tensor:
        """Take one step down the gradient; return its norm [] before it was clipped to ``max_norm``."""
        norm: Tensor = torch.linalg.vector_norm(self._gradient)
        self._gradient.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))
        adam(
            [self._vector],
            [self._gradient],
            [self._moments["exp_avg"]],
            [self._moments["exp_avg_sq"]],
            [],
            [self._steps],
            fused=True,
            amsgrad=False,
            beta1=_BETAS[0],
            beta2=_BETAS[1],
            lr=self._learning_rate,
            weight_decay=0.0,
            eps=_EPSILON,
            maximize=False,
        )
        return norm

    def to_bytes(self) -> bytes:
        """Return Adam's state as a safetensors file; tensors are named ``exp_avg.<parameter>`` and so on."""
        tensors = {f"step.{name}": self._steps for name in self._named}
        for moment, vector in self._moments.items():
            tensors |= {f"{moment}.{name}": part for name, part in self._parts(vector)}
        return parameters_to_bytes(tensors)

    def _parts(self, vector: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield the part of each parameter, in its shape."""
        start = 0
        for name, parameter in self._named.items():
            stop = start + parameter.numel()
            yield name, vector[start:stop].view(parameter.shape)
            start = stop

    def _read(self, tensors: dict[str, Tensor]) -> None:
        for moment, vector in self._moments.items():
            for name, part in self._parts(vector):
                found = tensors.get(f"{moment}.{name}")
                if found is None or found.shape != part.shape or f"step.{name}" not in tensors:
                    raise BadParameters(
                        f"The optimiser's state has no moments for {name} of shape {tuple(part.shape)}.",
                        hint="Train from an earlier checkpoint, or from the same parameters without an optimiser.",
                    )
                part.copy_(found)
                self._steps.copy_(tensors[f"step.{name}"])
