"""Linear layers by the faster of the two libraries that PyTorch has for the CPU.

By itself PyTorch calls MKL, which keeps to AVX2 on processors that are not Intel's. oneDNN uses AVX-512 wherever there
is any: twice as fast on Zen 5. The operation is the one that ``torch.compile`` puts in the place of linear layers.
"""

import torch
from torch import Tensor
from torch.nn import functional

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
