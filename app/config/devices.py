"""Device and precision of networks."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from flyball.app.config.base import FrozenModel

JobKind = Literal["selfplay", "training", "evaluation"]
"""A kind of job that runs networks."""

AUTO = "auto"
DEVICE_NAMES = "cpu, cuda, cuda:1 or auto"
DEVICE_PATTERN = re.compile(r"auto|cpu|cuda(?::(\d+))?")
"""The name of a device; the group is a GPU's number."""

GPU_GAMES = 4096
"""Games that a process plays at once on a GPU, at least: a pass takes as long there for few positions as for many."""


def _checked(device: str) -> str:
    if DEVICE_PATTERN.fullmatch(device) is None:
        raise ValueError(f"{device!r} is not a device: write {DEVICE_NAMES}")
    return device


Device = Annotated[
    str, AfterValidator(_checked), Field(description="cpu, cuda, cuda:1, or auto: cuda where there is one, else cpu")
]
Precision = Annotated[
    Literal["auto", "float32", "bfloat16"],
    Field(
        description="of networks' arithmetic; auto: bfloat16 for backend search where the device has units for it, "
        "float32 otherwise; parameters, losses and metrics are always float32"
    ),
]


ProcessesPerTraining = Annotated[
    int,
    Field(ge=1, description="processes that share each minibatch of a training; on cuda, each has a GPU of its own"),
]


class TextServers(FrozenModel):
    """OpenAI-compatible servers that generate text.

    ``folder`` is the folder from which they load adapters.
    """

    addresses: tuple[str, ...] = Field(min_length=1)
    folder: str


class Compute(FrozenModel):
    """Device and precision of a job's networks.

    These settings also say where the job finds servers and the user's files. They are a part of the job's spec.
    """

    device: Device = "cpu"
    precision: Precision = "float32"
    processes: ProcessesPerTraining = 1
    settings_folder: str = Field(".", description="of flyball.toml; the user's commands run there")
    text_servers: TextServers | None = Field(
        None, description="generate the text of backend language; unset: the job itself does"
    )


CPU = Compute()


class DeviceSettings(FrozenModel):
    """Device of each kind of job.

    In ``flyball.toml``, one name stands for all kinds.
    """

    selfplay: Device = "cpu"
    training: Device = "cpu"
    evaluation: Device = "cpu"


class PrecisionSettings(FrozenModel):
    """Precision of each kind of job.

    In ``flyball.toml``, one name stands for all kinds.
    """

    selfplay: Precision = "auto"
    training: Precision = "auto"
    evaluation: Precision = "auto"
