"""The actor-critic network: one shared trunk, a policy head and a value head."""

import re
from collections.abc import Mapping
from itertools import pairwise
from math import sqrt

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional

from app.config import NetworkSettings
from app.core import FlyballError

_DEVICE = re.compile(r"cpu|cuda(?::(\d+))?")


class UnknownDevice(FlyballError):
    """Unknown device name."""


def missing_device(device: str) -> str | None:
    """Return why networks cannot run on ``device`` here, None when they can. Raises ``UnknownDevice``."""
    match = _DEVICE.fullmatch(device)
    if match is None:
        raise UnknownDevice(f"There is no device {device!r}.", hint="Write cpu, cuda or cuda:1.")
    if device == "cpu":
        return None
    if not torch.cuda.is_available():
        return f"{device} was asked for and PyTorch finds no CUDA device"
    count = torch.cuda.device_count()
    return f"{device} was asked for and there are {count}" if int(match[1] or 0) >= count else None


def use_one_thread() -> None:
    """Let this process compute with one thread: small batches gain nothing from more, and sums keep their order."""
    torch.set_num_threads(1)


# Linear layers by the faster of the two libraries that PyTorch has for the CPU.
#
# By itself PyTorch calls MKL, which keeps to AVX2 on processors that are not Intel's. oneDNN uses AVX-512 wherever
# there is any: twice as fast on Zen 5. The operation is the one that ``torch.compile`` puts in the place of linear
# layers.

_AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
_ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if _AVX512 else None

FEWEST = 4
"""Rows. With fewer either library adds up in another order, and what a network says of one position would depend on how
many others it is asked of at the same time. And a call of MKL's costs less."""

STEP = 64
"""Rows. oneDNN compiles for every number of them that it meets, which takes as long as the multiplication."""


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``inputs`` [N, K] times the transposed ``weight`` [M, K], plus ``bias`` [M]: [N, M], all float32."""
    if _ONEDNN and inputs.is_cpu and len(inputs) >= FEWEST and not torch.is_grad_enabled():
        product: Tensor = _ONEDNN(inputs, weight, bias, "none", [], "")
        return product
    return functional.linear(inputs, weight, bias)


def padded(features: Tensor) -> Tensor:
    """Return ``features`` [N, K] as float32, with as many rows of zeros after them as make them quick and exact."""
    rows = len(features)
    wanted = _rows(rows) if _ONEDNN and features.is_cpu else max(rows, FEWEST)
    if wanted == rows:
        return features.float()
    more = torch.empty(wanted, features.shape[1], device=features.device)
    more[:rows], more[rows:] = features, 0
    return more


def _rows(rows: int) -> int:
    """Round up to a power of two, above ``STEP`` to its multiples."""
    return -(-rows // STEP) * STEP if rows > STEP // 2 else max(FEWEST, 1 << (rows - 1).bit_length())


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


Parameters = dict[str, Tensor]


class BadParameters(FlyballError):
    """Bytes that are no parameters, or parameters of another network."""


def parameters_to_bytes(state: Mapping[str, Tensor]) -> bytes:
    """Return tensors, named in any order and on any device, in the safetensors format: always the same bytes."""
    return safetensors.torch.save({name: _own(state[name]) for name in sorted(state)})


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


def _own(tensor: Tensor) -> Tensor:
    """Return a copy that shares its memory with no other tensor, as the format demands."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
