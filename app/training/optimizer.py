"""Adam, and its state as bytes."""

from torch import Tensor
from torch.optim import Adam

from app.policy import ActorCritic, BadParameters, bytes_to_parameters, parameters_to_bytes

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
_EPSILON = 1e-5  # as in the reference implementation of PPO; PyTorch's 1e-8 lets tiny gradients make large steps


def make_optimizer(network: ActorCritic, learning_rate: float, state: bytes | None) -> Adam:
    """Return Adam over the network's parameters, going on from ``state`` if given. Raises ``BadParameters``."""
    optimizer = Adam(network.parameters(), lr=learning_rate, eps=_EPSILON, fused=True)
    if state is not None:
        moments = bytes_to_parameters(state)
        for name, parameter in network.named_parameters():
            optimizer.state[parameter] = _moments_of(name, parameter, moments)
    return optimizer


def optimizer_bytes(optimizer: Adam, network: ActorCritic) -> bytes:
    """Return Adam's state as a safetensors file; tensors are named ``exp_avg.<parameter>`` and so on."""
    state = optimizer.state
    return parameters_to_bytes(
        {f"{moment}.{name}": state[p][moment] for name, p in network.named_parameters() for moment in _MOMENTS}
    )


def _moments_of(name: str, parameter: Tensor, moments: dict[str, Tensor]) -> dict[str, Tensor]:
    own = {moment: moments.get(f"{moment}.{name}") for moment in _MOMENTS}
    found = {moment: tensor.to(parameter.device) for moment, tensor in own.items() if tensor is not None}
    if len(found) != len(_MOMENTS) or found["exp_avg"].shape != parameter.shape:
        raise BadParameters(
            f"The optimiser's state has no moments for {name} of shape {tuple(parameter.shape)}.",
            hint="Train from an earlier checkpoint, or from the same parameters without an optimiser.",
        )
    return found
