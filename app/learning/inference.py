"""Fast inference for play: no gradients, an mlp's heads in one multiplication, outputs independent of the batch.

Towers and users' networks run ``CHUNK`` rows at a time, always as many, because libraries choose the order of sums by
the size of the batch. A position's outputs then depend on no other position, as long as no layer mixes rows.

Where the CPU has AVX-512, oneDNN computes the linear layers. MKL would sum a row's products there in an
order that depends on the number of rows; oneDNN keeps one order from ``FEWEST`` rows on. On processors other than
Intel's it is also faster, because MKL uses only AVX2 there. ``torch.compile`` replaces linear layers by the same oneDNN
operation. The operation is private to PyTorch; where it is missing, MKL computes the layers.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from app.config import CPU, Compute, NetworkSettings
from app.core import FlyballError, NetworkShape
from app.learning.devices import arithmetic, resolve, to_device
from app.learning.network import ActorCritic, Parameters, load_network, masked_log_probs

_AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
_ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if _AVX512 else None

FEWEST = 4  # rows; with fewer, both libraries sum in another order
STEP = 64  # rows; padded to multiples, because oneDNN compiles for each number, as slowly as it multiplies
CHUNK = {"cpu": 64, "cuda": 1024}  # rows of a pass by kind of device; on a GPU, small passes take as long as large ones


class NoLegalAction(FlyballError):
    """A mask row without a legal action."""


class Policy:
    """A thread-safe snapshot of a network for play; it copies the parameters.

    The network runs as ``compute`` says; inputs and outputs are arrays in main memory. Raises ``MissingDevice``,
    ``BadParameters`` when the tensors do not fit the settings, or as ``load_network`` does.
    """

    def __init__(
        self, settings: NetworkSettings, shape: NetworkShape, parameters: Parameters, compute: Compute = CPU
    ) -> None:
        self.shape, self.actions = shape, shape.actions
        self._device, self._precision = resolve(compute.device), compute.precision
        network = load_network(settings, shape, parameters).to(self._device)
        if compute.precision == "bfloat16":  # rounded once, because autocast would round them in each pass
            for parameter in network.parameters():
                parameter.data = parameter.data.bfloat16()
        self._network = _Mlp(network, shape) if isinstance(network, ActorCritic) else _Chunks(network, shape.actions)

    def forward(
        self, obs: NDArray[np.generic], mask: NDArray[np.bool_], temperature: float = 1.0
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return log-probabilities [N, A] and values [N], both float32.

        Observations [N, D] are float32 or uint8. Illegal actions get about -1e9, whose probability is exactly 0. Raises
        ``NoLegalAction`` when a row of the mask [N, A] is empty.
        """
        if not mask.any(axis=1).all():
            raise NoLegalAction(
                f"Row {int(np.argmin(mask.any(axis=1)))} of the legal mask is empty.",
                hint="Ask only for seats that are to move in games that are not over.",
            )
        with torch.inference_mode():
            output = self._forward(obs)
            logits = output[:, : self.actions]
            if temperature != 1.0:
                logits = logits / temperature
            log_probs = masked_log_probs(logits, self._tensor(mask))
            return log_probs.cpu().numpy(), output[:, self.actions].cpu().numpy()

    def outputs(self, obs: NDArray[np.generic]) -> NDArray[np.float32]:
        """Return the raw outputs [N, A + 1]: a logit for each action, legal or not, then the value."""
        with torch.inference_mode():
            outputs: NDArray[np.float32] = self._forward(obs).cpu().numpy()
            return outputs

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """Return each layer's weights by name: of an mlp [inputs, outputs], of other networks as they are."""
        return {name: weight.detach().float().cpu().numpy() for name, weight in self._network.weights().items()}

    def _forward(self, obs: NDArray[np.generic]) -> Tensor:
        with arithmetic(self._device, self._precision):
            return self._network.outputs(self._tensor(obs)).float()

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        # Read-only arrays, as in shards read from disk, are copied, because PyTorch warns of tensors that share them.
        return to_device(torch.from_numpy(array if array.flags.writeable else array.copy()), self._device)


class _Mlp:
    """An mlp's layers as tensors, its heads joined."""

    def __init__(self, network: ActorCritic, shape: NetworkShape) -> None:
        self._actions, self._scale = shape.actions, shape.scale
        self._trunk = [_copied(layer) for layer in network.trunk]
        heads = [_copied(network.policy_head), _copied(network.value_head)]
        self._heads = torch.cat([w for w, _ in heads]), torch.cat([b for _, b in heads])

    def outputs(self, obs: Tensor) -> Tensor:
        """Return the outputs [N, A + 1] of observations [N, D]."""
        features = padded(obs)
        if self._scale != 1:
            features = features / self._scale
        for weight, bias in self._trunk:
            features = linear(features, weight, bias).relu_()
        return linear(features, *self._heads)[: len(obs)]

    def weights(self) -> dict[str, Tensor]:
        """See ``Policy.weights``."""
        matrices = {f"trunk.{number}": weight for number, (weight, _) in enumerate(self._trunk)}
        heads = self._heads[0]
        matrices |= {"policy_head": heads[: self._actions], "value_head": heads[self._actions :]}
        return {name: weight.t() for name, weight in matrices.items()}


class _Chunks:
    """Any network, run on a constant number of rows."""

    def __init__(self, network: nn.Module, actions: int) -> None:
        self._network, self._actions = network, actions

    def outputs(self, obs: Tensor) -> Tensor:
        """Return the outputs [N, A + 1] of observations [N, D]."""
        rows, chunk = len(obs), CHUNK[obs.device.type]
        outputs = torch.empty(rows, self._actions + 1, device=obs.device)
        for begin in range(0, rows, chunk):
            part = obs[begin : begin + chunk]
            if len(part) < chunk:
                part = torch.cat((part, part.new_zeros(chunk - len(part), obs.shape[1])))
            with _OneDnnLinear():
                logits, values = self._network(part)
            outputs[begin : begin + chunk, :-1] = logits[: rows - begin]
            outputs[begin : begin + chunk, -1] = values[: rows - begin]
        return outputs

    def weights(self) -> dict[str, Tensor]:
        """See ``Policy.weights``."""
        return {name: tensor for name, tensor in self._network.named_parameters() if tensor.ndim > 1}


class _OneDnnLinear(TorchFunctionMode):
    """Computes any network's linear layers by ``linear``: MKL's sums also depend on a row's place."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if func is functional.linear and (args[0] if args else named["input"]).dtype == torch.float32:
            return linear(*args, **named)
        return func(*args, **named)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002 - PyTorch's own name
    """Return ``input`` [N, K] times transposed ``weight`` [M, K] plus ``bias`` [M], without gradients."""
    if _ONEDNN and input.is_cpu and weight.dtype == torch.float32:
        product: Tensor = _ONEDNN(input, weight, bias, "none", [], "")
        return product
    return functional.linear(input, weight, bias)


def padded(features: Tensor) -> Tensor:
    """Return ``features`` [N, K] as float32, padded with the rows of zeros that ``linear`` needs."""
    rows = len(features)
    wanted = max(rows, FEWEST)
    if _ONEDNN and features.is_cpu:  # a multiple of STEP, below it a power of two
        wanted = -(-rows // STEP) * STEP if rows > STEP // 2 else max(FEWEST, 1 << (rows - 1).bit_length())
    if wanted == rows:
        return features.float()
    more = torch.empty(wanted, features.shape[1], device=features.device)
    more[:rows], more[rows:] = features, 0
    return more


def _copied(layer: torch.nn.Module) -> tuple[Tensor, Tensor]:
    assert isinstance(layer, torch.nn.Linear)
    return layer.weight.detach().clone(), layer.bias.detach().clone()
