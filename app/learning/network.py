"""The actor-critic network: a shared trunk and two heads; its devices and serialisation."""

import re
from collections.abc import Mapping
from itertools import pairwise
from math import sqrt

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from app.config import NetworkSettings
from app.core import FlyballError

MASKED_LOGIT = -1e9  # as minus infinity: its probability underflows to exactly 0 and its gradient is 0, not NaN
TRUNK_GAIN, POLICY_GAIN, VALUE_GAIN = sqrt(2.0), 0.01, 1.0  # for a near-uniform first policy and a critic of unit scale

Parameters = dict[str, Tensor]


class UnknownDevice(FlyballError):
    """Unknown device name."""


class BadParameters(FlyballError):
    """Bytes that are not parameters, or parameters of another network."""


class ActorCritic(nn.Module):
    """A ReLU trunk of ``settings.hidden`` layers under two linear heads.

    The weights are not initialised: see ``init_policy`` and ``load_network``.
    """

    def __init__(self, settings: NetworkSettings, obs_size: int, actions: int) -> None:
        super().__init__()
        widths = (obs_size, *settings.hidden)
        self.trunk = nn.ModuleList(_linear(wide, narrow) for wide, narrow in pairwise(widths))
        self.policy_head = _linear(widths[-1], actions)
        self.value_head = _linear(widths[-1], 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [N, A], unmasked, and values [N] of float observations [N, D]."""
        features = obs
        for layer in self.trunk:
            features = torch.relu(layer(features))
        return self.policy_head(features), self.value_head(features).squeeze(-1)


def _linear(inputs: int, outputs: int) -> nn.Linear:
    # Made without storage first: PyTorch's default initialisation would draw from the global generator.
    return nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")


def init_policy(settings: NetworkSettings, obs_size: int, actions: int, seed: int) -> Parameters:
    """Draw a network's first parameters from a seed: orthogonal weights and zero biases."""
    network, generator = ActorCritic(settings, obs_size, actions), torch.Generator().manual_seed(seed)
    gains = [(layer, TRUNK_GAIN) for layer in network.trunk]
    for layer, gain in (*gains, (network.policy_head, POLICY_GAIN), (network.value_head, VALUE_GAIN)):
        assert isinstance(layer, nn.Linear)
        nn.init.orthogonal_(layer.weight, gain, generator=generator)
        nn.init.zeros_(layer.bias)
    return {name: tensor.detach() for name, tensor in network.state_dict().items()}


def load_network(settings: NetworkSettings, obs_size: int, actions: int, parameters: Parameters) -> ActorCritic:
    """Build a network that holds a copy of ``parameters``. Raises ``BadParameters`` when they do not fit."""
    network = ActorCritic(settings, obs_size, actions)
    try:
        network.load_state_dict(parameters)
    except RuntimeError as error:
        raise BadParameters(
            f"The parameters do not fit a network of {obs_size}, {settings.hidden} and {actions} actions.",
            hint="Load a model with the settings in its own manifest; a changed network starts afresh.",
        ) from error
    return network


def masked_log_probs(logits: Tensor, mask: Tensor) -> Tensor:
    """Return log-probabilities [N, A] over the legal actions; illegal ones get about ``MASKED_LOGIT``."""
    return torch.log_softmax(logits.masked_fill(~mask, MASKED_LOGIT), dim=-1)


def parameters_to_bytes(state: Mapping[str, Tensor]) -> bytes:
    """Return tensors as a safetensors file; their order and device do not change its bytes."""
    # Each tensor is copied, because the format forbids tensors that share memory.
    copies = {name: state[name].detach().cpu().clone(memory_format=torch.contiguous_format) for name in sorted(state)}
    return safetensors.torch.save(copies)


def bytes_to_parameters(data: bytes) -> Parameters:
    """Return the tensors by name. Raises ``BadParameters`` for anything but a safetensors file.

    Damage inside a tensor is not noticed here: compare the hash first (``app.store`` does).
    """
    try:
        return safetensors.torch.load(data)
    except (SafetensorError, ValueError) as error:
        raise BadParameters(
            f"These {len(data)} bytes are no safetensors file ({error}).",
            hint="Restore the file from another node or an earlier checkpoint.",
        ) from error


def missing_device(device: str) -> str | None:
    """Return why ``device`` is unavailable here, None if it is available. Raises ``UnknownDevice``."""
    match = re.fullmatch(r"cpu|cuda(?::(\d+))?", device)
    if match is None:
        raise UnknownDevice(f"There is no device {device!r}.", hint="Write cpu, cuda or cuda:1.")
    if device == "cpu":
        return None
    if not torch.cuda.is_available():
        return f"{device} was asked for and PyTorch finds no CUDA device"
    count = torch.cuda.device_count()
    return f"{device} was asked for and there are {count}" if int(match[1] or 0) >= count else None


def use_one_thread() -> None:
    """Limit PyTorch to one thread: small batches gain nothing from more, and sums keep their order."""
    torch.set_num_threads(1)
