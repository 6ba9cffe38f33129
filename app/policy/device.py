"""Where networks run."""

import re

import torch

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
