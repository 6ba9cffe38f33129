"""Fast inference for play: no gradients, heads joined, outputs independent of the batch.

Libraries choose the order of sums by the size of the batch. So all networks run a constant number of rows at a time,
except dense layers in float32. A position's outputs then depend on no other position, as long as no layer mixes rows.

Where the CPU has AVX-512, oneDNN computes the linear layers. MKL would sum a row's products there in an
order that depends on the number of rows; oneDNN keeps one order from ``FEWEST`` rows on in float32, none in bfloat16,
which it multiplies several times as fast on processors with AMX. On processors other than
Intel's it is also faster, because MKL uses only AVX2 there. ``torch.compile`` replaces linear layers by the same oneDNN
operation. The operation is private to PyTorch; where it is missing, MKL computes the layers.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from app.config import CPU, Compute, NetworkSettings, Precision
from app.core import FlyballError, NetworkShape
from app.learning.dense import ActorCritic
from app.learning.devices import arithmetic, resolve, to_device
from app.learning.network import Parameters, load_network, masked_log_probs

_AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
_ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if _AVX512 else None
_PACK = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None) if _ONEDNN else None

FEWEST = 4  # rows; with fewer, both libraries sum in another order
STEP = 64  # rows; padded to multiples, because oneDNN compiles for each number, as slowly as it multiplies
ALIGNED = 32  # inputs; in bfloat16, another number takes up to twice as long
GPU_CHUNK = 1024  # rows of a pass; on a GPU, small passes take as long as large ones
CHUNK: Mapping[Precision, int] = {"float32": 64, "bfloat16": 256}  # on a CPU; matrix units are idle in smaller passes


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
        self._network = network
        self._chunk = CHUNK[compute.precision] if self._device.type == "cpu" else GPU_CHUNK
        self._run = (
            _Dense(network, shape, self._chunk)
            if isinstance(network, ActorCritic)
            else _Module(network, shape.features, compute.precision)
        )

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
        weights = {name: tensor.detach() for name, tensor in self._network.named_parameters() if tensor.ndim > 1}
        if type(self._network) is ActorCritic:
            weights = {name.removesuffix(".weight"): weight.t() for name, weight in weights.items()}
        return {name: weight.float().cpu().numpy() for name, weight in weights.items()}

    def _forward(self, obs: NDArray[np.generic]) -> Tensor:
        """Return the outputs [N, A + 1], float32, of observations [N, D]."""
        rows, chunk, run = self._tensor(obs), self._chunk, self._run
        if run.any_rows:
            return run(padded(rows))[: len(rows)]
        outputs = torch.empty(len(rows), self.actions + 1, device=self._device)
        for begin in range(0, len(rows), chunk):
            part = rows[begin : begin + chunk]
            full = torch.zeros(chunk, run.inputs, dtype=run.dtype, device=self._device)
            full[: len(part), : part.shape[1]] = part
            outputs[begin : begin + chunk] = run(full)[: len(part)]
        return outputs

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        # Read-only arrays, as in shards read from disk, are copied, because PyTorch warns of tensors that share them.
        return to_device(torch.from_numpy(array if array.flags.writeable else array.copy()), self._device)


class _Dense:
    """A network of dense layers as tensors, its heads joined."""

    def __init__(self, network: ActorCritic, shape: NetworkShape, rows: int) -> None:
        self._scale = shape.scale
        layers = network.hidden_layers()
        heads = [(head.weight.detach(), head.bias.detach()) for head in (network.policy_head, network.value_head)]
        layers.append((torch.cat([weight for weight, _ in heads]), torch.cat([bias for _, bias in heads])))
        self.inputs, self.dtype = shape.features, layers[0][0].dtype
        self.any_rows = self.dtype == torch.float32
        if not self.any_rows:
            self.inputs += -self.inputs % ALIGNED
            first, bias = layers[0]
            layers[0] = functional.pad(first, (0, self.inputs - shape.features)), bias
            layers = [(packed(weight, rows), bias) for weight, bias in layers]
        self._layers = layers

    def __call__(self, obs: Tensor) -> Tensor:
        """Return the outputs [N, A + 1] of observations [N, ``inputs``]."""
        features = obs / self._scale if self._scale != 1 else obs
        for weight, bias in self._layers[:-1]:
            features = linear(features, weight, bias, relu=True)
        return linear(features, *self._layers[-1])


class _Module:
    """Any network, as PyTorch runs it."""

    any_rows = False

    def __init__(self, network: nn.Module, inputs: int, precision: Precision) -> None:
        self._network, self._precision = network, precision
        self.inputs, self.dtype = inputs, next(network.parameters()).dtype

    def __call__(self, obs: Tensor) -> Tensor:
        """Return the outputs [N, A + 1] of observations [N, D]."""
        with arithmetic(obs.device, self._precision), _OneDnnLinear():
            logits, values = self._network(obs)
        return torch.cat((logits.float(), values.float()[:, None]), dim=1)


class _OneDnnLinear(TorchFunctionMode):
    """Computes any network's linear layers by ``linear``: MKL's sums also depend on a row's place."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if func is functional.linear and (args[0] if args else named["input"]).dtype == torch.float32:
            return linear(*args, **named)
        return func(*args, **named)


def linear(
    input: Tensor,  # noqa: A002 - PyTorch's own name
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    relu: bool = False,
) -> Tensor:
    """Return ``input`` [N, K] times transposed ``weight`` [M, K] plus ``bias`` [M], perhaps ReLU, without gradients."""
    if _ONEDNN and input.is_cpu:
        product: Tensor = _ONEDNN(input, weight, bias, "relu" if relu else "none", [], "")
        return product
    product = functional.linear(input, weight, bias)
    return product.relu_() if relu else product


def packed(weight: Tensor, rows: int) -> Tensor:
    """Return ``weight`` as ``linear`` reads it fastest for inputs of ``rows`` rows."""
    return _PACK(weight, rows) if _PACK and weight.is_cpu else weight


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
