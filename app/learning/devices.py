"""Devices of networks: look-up by name, transfers, arithmetic precision.

On a CUDA device the same seed gives the same games and weights again, on the same kind of device with the same
libraries. ``resolve`` sees to it: convolutions and multiplications by TF32 are off, algorithms are deterministic. Sums
depend on the size of a batch there, so the games of a job depend on how many it plays at once; on a CPU they do not.
"""

import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, TypeVar

import structlog
import torch
from torch import Tensor

from flyball.app.config import SEARCH_BACKEND, Compute, Precision
from flyball.app.config.devices import AUTO, DEVICE_NAMES, DEVICE_PATTERN, GPU_GAMES
from flyball.app.core import FlyballError
from flyball.app.engine import JsonObject, Report

_WORKSPACE = ":4096:8"  # two values make cuBLAS deterministic; this is the faster one


C = TypeVar("C", bound=Compute)


class UnknownDevice(FlyballError, code="usage"):
    """Unknown device name."""


class MissingDevice(FlyballError, code="usage"):
    """A device that PyTorch does not find on this machine."""


def missing_device(device: str, processes: int = 1) -> str | None:
    """Return why ``device`` is unavailable here, or None if it is available.

    Each of several processes needs a GPU of its own: the named one and those after it. Raises ``UnknownDevice``.
    """
    match = DEVICE_PATTERN.fullmatch(device)
    if match is None:
        raise UnknownDevice(f"There is no device {device!r}.", hint=f"Write {DEVICE_NAMES}.")
    if device == "cpu" or (device == AUTO and not torch.cuda.is_available()):
        return None
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(match[1] or 0) + processes <= count:
        return None
    request = f"{device} was asked for" if processes == 1 else f"{device} was asked for by {processes} processes"
    return f"{request} and PyTorch finds {count or 'no'} CUDA device{'s' if count > 1 else ''}"


def missing(spec: JsonObject, report: Report) -> JsonObject:  # noqa: ARG001  # a job, with nothing to report
    """Return ``{"reasons": …}``: why devices are unavailable (a job).

    The spec's ``devices`` are pairs of a device and a number of processes. Each has a reason, None if it is available.
    This is a job, so that processes without PyTorch, which takes a second to import, can ask.
    """
    return {"reasons": [missing_device(device, processes) for device, processes in spec["devices"]]}


def require(device: str, processes: int = 1) -> None:
    """Raise ``MissingDevice`` if ``device`` is unavailable here, or ``UnknownDevice``. See ``missing_device``."""
    if reason := missing_device(device, processes):
        raise MissingDevice(
            f"The device is missing: {reason}.",
            hint="Set it to cpu or auto, with no more processes than GPUs, or install the driver and PyTorch's build "
            "for CUDA.",
        )


@cache
def resolve(device: str) -> torch.device:
    """Return the device called ``device``.

    ``auto`` is cuda where PyTorch finds one, otherwise cpu. The first call logs what a device resolves to. Raises
    ``MissingDevice`` or ``UnknownDevice``.
    """
    require(device)
    resolved = torch.device(_automatic() if device == AUTO else device)
    if resolved.type == "cuda":
        _be_deterministic()
    if device != "cpu":
        name = torch.cuda.get_device_name(resolved) if resolved.type == "cuda" else None
        structlog.get_logger("devices").info("device of networks", asked=device, found=str(resolved), name=name)
    return resolved


def _automatic() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _be_deterministic() -> None:
    """Make the process's CUDA arithmetic repeatable; other operations only warn, as users' networks may need them."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", _WORKSPACE)  # read by cuBLAS at its first multiplication
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    torch.use_deterministic_algorithms(mode=True, warn_only=True)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return ``tensor`` on ``device``. Copies to a GPU come from pinned memory and do not block the processor."""
    if device.type == "cuda" and not tensor.is_cuda:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def decided(compute: C, backend: str) -> C:
    """Return ``compute`` with the precision that ``auto`` means.

    It depends on the backend and the device. With the search backend it is bfloat16 where the device has units for it,
    because searches correct what rounding does to a network. Otherwise it is float32, because PPO would compare the
    probabilities of two precisions. Raises as ``resolve``.
    """
    if compute.precision != AUTO:
        return compute
    reduced = backend == SEARCH_BACKEND and _has_bfloat16_units(resolve(compute.device))
    return compute.replace(precision="bfloat16" if reduced else "float32")


def _has_bfloat16_units(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # older versions of PyTorch lack it
    return any(capabilities.get(unit, False) for unit in ("amx_bf16", "avx512_bf16"))


def arithmetic(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Return the context in which networks run: PyTorch's autocast for bfloat16, otherwise one without effect."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


def games_at_once(device: str, on_cpu: int) -> int:
    """Return how many games a process plays at once on ``device``. Raises as ``resolve``."""
    return max(on_cpu, GPU_GAMES) if resolve(device).type == "cuda" else on_cpu
