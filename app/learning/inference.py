"""Fast inference for play: no gradients, outputs independent of the batch.

Libraries choose the order of sums by the size of the batch. So all networks run a constant number of rows at a time,
except dense layers: any number in float32, and in bfloat16 also larger numbers for which ``same_sums`` finds the same
order. A position's outputs then depend on no other position, as long as no layer mixes rows.
"""

from collections.abc import Mapping
from functools import cache, partial
from itertools import chain
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from flyball.app.config import CPU, Compute, NetworkSettings, Precision
from flyball.app.core import FlyballError, NetworkShape
from flyball.app.learning.dense import ActorCritic, DenseBlock, DenseLayer
from flyball.app.learning.devices import arithmetic, resolve, to_device
from flyball.app.learning.network import Parameters, load_network, masked_log_probs, scaled
from flyball.app.learning.products import Convolution, OneDnnLinear, linear, packed, padded, same_sums
from flyball.app.learning.tower import Block, Tower, at_places

ALIGNED = 32  # inputs are padded to a multiple; in bfloat16, another number takes up to twice as long
GPU_CHUNK = 1024  # rows of a pass; on a GPU, small passes take as long as large ones
CHUNK: Mapping[Precision, int] = {"auto": 64, "float32": 64, "bfloat16": 256}  # on a CPU; units idle in smaller passes
LARGER = (1024, 768, 512)  # rows of larger passes; on processors with AMX, a row takes half the time in them


class NoLegalAction(FlyballError):
    """A mask row without a legal action."""


class Policy:
    """A thread-safe snapshot of a network for play; it copies the parameters.

    The network runs as ``compute`` says, in float32 if it says ``auto``; inputs and outputs are arrays in main memory.
    Raises ``MissingDevice``, ``BadParameters`` when the tensors do not fit the settings, or as ``load_network`` does.
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
        chunk = CHUNK[compute.precision] if self._device.type == "cpu" else GPU_CHUNK
        if isinstance(network, ActorCritic):
            self._run: _Dense | _Tower | _Module = _Dense(network, shape, chunk)
        elif isinstance(network, Tower):
            self._run = _Tower(network, shape, chunk)
        else:
            self._run = _Module(network, shape.features, chunk, compute.precision)

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
        """Return the raw outputs [N, A + 1]: the logits of all actions, legal or not, then the value."""
        with torch.inference_mode():
            outputs: NDArray[np.float32] = self._forward(obs).cpu().numpy()
            return outputs

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """Return each layer's weights by name: for an mlp [inputs, outputs], otherwise in the layers' own layout."""
        weights = {name: tensor.detach() for name, tensor in self._network.named_parameters() if tensor.ndim > 1}
        if type(self._network) is ActorCritic:
            weights = {name.removesuffix(".weight"): weight.t() for name, weight in weights.items()}
        return {name: weight.float().cpu().numpy() for name, weight in weights.items()}

    def _forward(self, obs: NDArray[np.generic]) -> Tensor:
        """Return the outputs [N, A + 1], float32, of observations [N, D]."""
        rows, run = self._tensor(obs), self._run
        if run.any_rows:
            return run(padded(rows))[: len(rows)]
        count, begin = len(rows), 0
        outputs = torch.empty(count, self.actions + 1, device=self._device)
        while begin < count:
            left = -(-(count - begin) // run.passes[-1]) * run.passes[-1]
            size = next(size for size in run.passes if size <= left)
            part = rows[begin : begin + size]
            full = torch.zeros(size, run.inputs, dtype=run.dtype, device=self._device)
            full[: len(part), : part.shape[1]] = part
            outputs[begin : begin + size] = run(full)[: len(part)]
            begin += size
        return outputs

    def _tensor(self, array: NDArray[np.generic]) -> Tensor:
        # Read-only arrays, as in shards read from disk, are copied, because PyTorch warns if a tensor shares them.
        return to_device(torch.from_numpy(array if array.flags.writeable else array.copy()), self._device)


class _Dense:
    """A network of dense layers as tensors; both heads are computed as one layer."""

    def __init__(self, network: ActorCritic, shape: NetworkShape, rows: int) -> None:
        self._scale = shape.scale
        hidden = network.hidden_layers()
        self.inputs, self.dtype = shape.features, hidden[0][0].dtype
        self.any_rows = self.dtype == torch.float32
        if not self.any_rows:
            self.inputs += -self.inputs % ALIGNED
            first, bias = hidden[0]
            hidden[0] = functional.pad(first, (0, self.inputs - shape.features)), bias
        blocks = [block for block in network.blocks if isinstance(block, DenseBlock)]
        heads = [(head.weight.detach(), head.bias.detach()) for head in (network.policy_head, network.value_head)]

        def fast(weight: Tensor, bias: Tensor) -> DenseLayer:
            return packed(weight, rows), bias

        self._hidden = [fast(*layer) for layer in hidden]
        self._blocks = [
            [fast(layer.weight.detach(), layer.bias.detach()) for layer in (block.first, block.second)]
            for block in blocks
        ]
        self._heads = fast(torch.cat([weight for weight, _ in heads]), torch.cat([bias for _, bias in heads]))
        self._rows, layers = rows, (*hidden, *chain.from_iterable(self._blocks), self._heads)
        self._sizes = frozenset((weight.shape[0], weight.shape[1]) for weight, _ in layers)

    @property
    def passes(self) -> tuple[int, ...]:
        """Numbers of rows of a pass that give the same outputs, the largest first."""
        return (self._rows,) if self.any_rows else _passes(self._sizes, self._rows, torch.get_num_threads())

    def __call__(self, obs: Tensor) -> Tensor:
        """Return the outputs [N, A + 1] of observations [N, ``inputs``]."""
        features = scaled(obs, self._scale)
        for layer in self._hidden:
            features = linear(features, *layer, relu=True)
        for first, second in self._blocks:
            features = linear(linear(features, *first, relu=True), *second, shortcut=features)
        return linear(features, *self._heads)


@cache
def _passes(sizes: frozenset[tuple[int, int]], rows: int, threads: int) -> tuple[int, ...]:  # noqa: ARG001
    """Return the numbers of rows, the largest first, for which layers of ``sizes`` sum as for ``rows``.

    Sizes are [outputs, inputs]. Libraries divide sums among ``threads``, so each number of threads has its own result.
    """
    larger = [more for more in LARGER if more > rows]
    return (*(more for more in larger if all(same_sums(*size, more, rows) for size in sizes)), rows)


class _Tower:
    """A tower with fused layers: ReLU and shortcut within each convolution, one for both heads' planes."""

    any_rows = False

    def __init__(self, network: Tower, shape: NetworkShape, rows: int) -> None:
        assert shape.planes is not None
        self._scale, self._planes, self._network, self.passes = shape.scale, shape.planes, network, (rows,)
        self.inputs, self.dtype = shape.features, network.stem.weight.dtype
        convolution = partial(_convolution, rows=rows, board=shape.planes[1:])
        self._stem, blocks = convolution(network.stem), [block for block in network.blocks if isinstance(block, Block)]
        self._blocks = [(block, convolution(block.first), convolution(block.second)) for block in blocks]
        self._heads = convolution(network.policy_planes, network.value_planes)
        self._policy_planes, policy = network.policy_planes.out_channels, network.policy_head
        self._policy = convolution(policy) if isinstance(policy, nn.Conv2d) else policy

    def __call__(self, obs: Tensor) -> Tensor:
        """Return the outputs [N, A + 1] of observations [N, D]."""
        obs = scaled(obs, self._scale)
        network, size = self._network, prod(self._planes)
        planes = obs[:, :size].reshape(-1, *self._planes).contiguous(memory_format=torch.channels_last)
        if network.scalars is None:
            cells = self._stem(planes)
        else:
            added = _linear(network.scalars, obs[:, size:])[:, :, None, None]
            cells = (self._stem(planes, relu=False) + added).relu_()
        for block, first, second in self._blocks:
            inner = first(cells)
            if block.squeeze is None or block.excite is None:
                cells = second(inner, onto=cells)
            else:
                change = second(inner, relu=False)
                squeezed = _linear(block.squeeze, change.mean(dim=(2, 3)), relu=True)
                weights = _linear(block.excite, squeezed).sigmoid_()[:, :, None, None]
                cells = torch.addcmul(cells, change, weights).relu_()
        heads = self._heads(cells)
        policy, value = heads[:, : self._policy_planes], heads[:, self._policy_planes :].flatten(1)
        if isinstance(self._policy, nn.Linear):
            logits = _linear(self._policy, policy.flatten(1))
        else:
            assert network.action_places is not None
            logits = at_places(self._policy(policy, relu=False), network.action_places)
        hidden = _linear(network.value_hidden, value, relu=True)
        return torch.cat((logits, _linear(network.value_head, hidden)), dim=1)


def _linear(layer: nn.Linear, features: Tensor, *, relu: bool = False) -> Tensor:
    return linear(features, layer.weight, layer.bias, relu=relu)


def _convolution(*layers: nn.Conv2d, rows: int, board: tuple[int, int]) -> Convolution:
    """Return one convolution that computes the channels of all layers."""
    biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
    return Convolution(torch.cat([layer.weight.detach() for layer in layers]), torch.cat(biases), rows, board)


class _Module:
    """Any network, as PyTorch runs it."""

    any_rows = False

    def __init__(self, network: nn.Module, inputs: int, rows: int, precision: Precision) -> None:
        self._network, self._precision, self.passes = network, precision, (rows,)
        self.inputs, self.dtype = inputs, next(network.parameters()).dtype

    def __call__(self, obs: Tensor) -> Tensor:
        """Return the outputs [N, A + 1] of observations [N, D]."""
        with arithmetic(obs.device, self._precision), OneDnnLinear():
            logits, values = self._network(obs)
        return torch.cat((logits.float(), values.float()[:, None]), dim=1)
