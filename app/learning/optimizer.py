"""Adam, and its state as bytes."""

import torch
from torch import Tensor
from torch.optim import Adam

from app.learning.network import ActorCritic, BadParameters, bytes_to_parameters, parameters_to_bytes

_STATE = ("step", "exp_avg", "exp_avg_sq")
_EPSILON = 1e-5  # as in the reference implementation of PPO; PyTorch's 1e-8 lets tiny gradients make large steps


def load_adam(network: ActorCritic, learning_rate: float, state: bytes | None) -> Adam:
    """Return Adam over a network's parameters, with the ``state`` that ``adam_to_bytes`` returned, if any.

    Raises ``BadParameters`` when the state is of another network.
    """
    optimizer = Adam(network.parameters(), lr=learning_rate, eps=_EPSILON, fused=True)
    tensors = {} if state is None else bytes_to_parameters(state)
    for name, parameter in network.named_parameters() if state is not None else ():
        found = {key: tensors.get(f"{key}.{name}") for key in _STATE}
        moments = [found[key] for key in _STATE[1:]]
        if found["step"] is None or any(moment is None or moment.shape != parameter.shape for moment in moments):
            raise BadParameters(
                f"The optimiser's state has no moments for {name} of shape {tuple(parameter.shape)}.",
                hint="Train from an earlier checkpoint, or from the same parameters without an optimiser.",
            )
        optimizer.state[parameter] = {key: t.to(parameter.device) for key, t in found.items() if t is not None}
    return optimizer


def adam_to_bytes(network: ActorCritic, optimizer: Adam) -> bytes:
    """Return Adam's state as a safetensors file; tensors are named ``exp_avg.<parameter>`` and so on."""
    named = network.named_parameters()
    return parameters_to_bytes({f"{key}.{name}": optimizer.state[p][key] for name, p in named for key in _STATE})


def descend(network: ActorCritic, optimizer: Adam, loss: Tensor, max_norm: float) -> Tensor:
    """Take a step down the loss's gradient; return its norm [] before it was clipped to ``max_norm``."""
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    norm = torch.nn.utils.clip_grad_norm_(network.parameters(), max_norm)
    optimizer.step()
    return norm
