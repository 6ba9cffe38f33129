"""Parameters as bytes, the same bytes on every machine, so that their SHA-256 can name the model."""

from collections.abc import Mapping

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from app.core import FlyballError

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
