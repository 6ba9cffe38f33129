"""Parameters as bytes, the same bytes on every machine, so that their SHA-256 can name the model."""

from collections.abc import Mapping

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from app.core import FlyballError

Parameters = dict[str, Tensor]


class BadParameters(FlyballError):
    """Bytes that are no parameters, or parameters of another network."""


def parameters_to_bytes(state: Mapping[str, Tensor], note: str | None = None) -> bytes:
    """Return the tensors in the safetensors format, byte for byte the same for the same arguments.

    Args:
        state: tensors by name, in any order, on any device.
        note: text kept in the file's header, for instance a manifest.
    """
    tensors = {name: state[name].detach().cpu().contiguous() for name in sorted(state)}
    # One entry only: the format does not order the metadata, so two would make the bytes a matter of chance.
    return safetensors.torch.save(tensors, None if note is None else {"note": note})


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
