"""Fast layers without gradients, by oneDNN.

oneDNN computes linear layers and convolutions, ReLU included. MKL would sum a row's products in an order that depends
on the number of rows or, with AVX2, on the row's place. oneDNN keeps one order in float32 from ``FEWEST`` rows on. In
bfloat16, which needs AVX-512, it keeps none in wide layers, but multiplies several times as fast on processors with
AMX. On processors other than Intel's it is also faster than MKL, which uses only AVX2 there. ``torch.compile`` replaces
layers by the same operations. The operations are private to PyTorch; where they are missing, PyTorch's public ones
compute the layers.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"


def _operation(name: str) -> Any:
    """Return an operation of oneDNN, or None where it is missing."""
    has_onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    operation: Any = torch.ops.mkldnn if has_onednn else None
    for part in name.split("."):
        operation = getattr(operation, part, None)
    return operation


_ONEDNN, _PACK = _operation("_linear_pointwise"), _operation("_reorder_linear_weight")
_CONVOLVE, _CONVOLVE_ONTO = _operation("_convolution_pointwise"), _operation("_convolution_pointwise_.binary")
_PACK_KERNEL = _operation("_reorder_convolution_weight")


def _is_fast(tensor: Tensor) -> bool:
    """Return whether oneDNN computes with tensors of this device and type."""
    return tensor.is_cpu and (tensor.dtype == torch.float32 or _AVX512)


FEWEST = 4  # rows; with fewer, both libraries sum in another order
STEP = 16  # rows are padded to multiples: oneDNN compiles for each number, which takes as long as multiplying


class OneDnnLinear(TorchFunctionMode):
    """Computes any network's linear layers by ``linear``. MKL's sums would also depend on a row's place."""

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
    shortcut: Tensor | None = None,
) -> Tensor:
    """Return a linear layer's output [N, M], without gradients.

    It is ``input`` [N, K] times transposed ``weight`` [M, K] plus ``bias`` [M]. Then comes ReLU, or ``shortcut`` [N, M]
    is added.
    """
    if _ONEDNN and _is_fast(input):
        product: Tensor = (
            _ONEDNN(input, weight, bias, "relu" if relu else "none", [], "")
            if shortcut is None
            else _ONEDNN.binary(input, shortcut, weight, bias, "add")
        )
        return product
    product = functional.linear(input, weight, bias)
    if shortcut is not None:
        product += shortcut
    return product.relu_() if relu else product


class Convolution:
    """A convolution [N, C, H, W] that keeps the board's size. Its weight is packed for a number of rows."""

    def __init__(self, weight: Tensor, bias: Tensor, rows: int, board: tuple[int, int]) -> None:
        self._padding, self._bias = [weight.shape[-1] // 2] * 2, bias
        self._weight = weight.contiguous(memory_format=torch.channels_last)
        self._fused = _is_fast(weight) and bool(_CONVOLVE and _CONVOLVE_ONTO and _PACK_KERNEL)
        if self._fused:
            size = rows, weight.shape[1], *board
            self._weight = _PACK_KERNEL(self._weight, self._padding, [1, 1], [1, 1], 1, size)

    def __call__(self, cells: Tensor, onto: Tensor | None = None, *, relu: bool = True) -> Tensor:
        """Return the convolution of ``cells``, added to ``onto``, which is overwritten, with ReLU unless it is off."""
        layer = self._weight, self._bias, self._padding, [1, 1], [1, 1], 1
        if self._fused:
            then = "relu" if relu else "none"
            product: Tensor = (
                _CONVOLVE(cells, *layer, then, [], "")
                if onto is None
                else _CONVOLVE_ONTO(onto, cells, *layer, "add", 1.0, then, [], "")
            )
            return product
        product = functional.conv2d(cells, self._weight, self._bias, padding=self._padding)
        if onto is not None:
            product += onto
        return product.relu_() if relu else product


def packed(weight: Tensor, rows: int) -> Tensor:
    """Return ``weight`` in the layout that is fastest for ``linear`` of about ``rows`` rows."""
    return _PACK(weight, rows) if _ONEDNN and _PACK and _is_fast(weight) else weight


def same_sums(outputs: int, inputs: int, rows: int, usual: int) -> bool:
    """Return whether a layer in bfloat16 adds up in the same order for ``rows`` rows as for ``usual`` rows at a time.

    The order depends on the layer's size, the processor and the number of threads. This compares one random batch.
    Without AVX-512 the products are too slow to be worth a comparison, and the result is False.
    """
    if not _AVX512:
        return False
    # The second half of each sum undoes the first, so that only rounding errors are left. They depend on the order, and
    # rounding to bfloat16 does not hide them, as it would in sums of ordinary size.
    drawn = torch.randn(max(rows, outputs), inputs // 2, generator=torch.Generator().manual_seed(0)).bfloat16()
    features, weight = (functional.pad(torch.cat((drawn, half), 1), (0, inputs % 2)) for half in (-drawn, drawn))
    layer = packed(weight[:outputs], usual), torch.zeros(outputs).bfloat16()
    with torch.inference_mode():
        at_once = linear(features[:rows], *layer)
        parts = torch.cat([linear(part, *layer) for part in torch.split(features[:rows], usual)])
        added = linear(features[:rows], *layer, shortcut=torch.zeros_like(parts))
    return torch.equal(at_once, parts) and torch.equal(added, parts)


def padded(features: Tensor) -> Tensor:
    """Return ``features`` [N, K] as float32, with rows of zeros added. ``linear`` needs the additional rows."""
    rows = len(features)
    padded_rows = max(rows, FEWEST)
    if _ONEDNN and features.is_cpu:  # a multiple of STEP, below it a power of two
        padded_rows = -(-rows // STEP) * STEP if rows > STEP else max(FEWEST, 1 << (rows - 1).bit_length())
    if padded_rows == rows:
        return features.float()
    more = torch.empty(padded_rows, features.shape[1], device=features.device)
    more[:rows], more[rows:] = features, 0
    return more
