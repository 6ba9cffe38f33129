"""Policies for foreign environments: the protocol, and the random one."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from app.core import FlyballError


class BadPolicy(FlyballError):
    """A policy that cannot be read, or that was made for other observations or actions."""


class EnvironmentPolicy(Protocol):
    """Plays any number of environments at once."""

    @property
    def action_codec(self) -> str:
        """How its outputs become actions unless something else is asked for; ``raw`` where they are actions."""
        ...

    def outputs(self, observations: Any) -> NDArray[Any]:
        """Return one row of outputs for each of N observations, as Gymnasium's vector environments batch them."""
        ...


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """Arguments of a policy.

    Attributes:
        source: what ``--model`` says, usually a file.
        count: N, how many environments it plays at once.
        observation_space: of one environment, a ``gymnasium.Space``.
        action_space: likewise.
        device: where networks run, ``cpu`` or ``cuda``.
        seed: of the policy's own choices, if it makes any by chance.
    """

    source: str | None
    count: int
    observation_space: Any
    action_space: Any
    device: str
    seed: int


class RandomActions:
    """Takes what the action space samples: a floor to compare with."""

    action_codec = "raw"

    def __init__(self, request: PolicyRequest) -> None:
        self._count = request.count
        self._space = request.action_space
        self._space.seed(request.seed % (1 << 32))

    def outputs(self, observations: Any) -> NDArray[Any]:  # noqa: ARG002 - it looks at nothing
        """See ``EnvironmentPolicy.outputs``."""
        return np.stack([np.asarray(self._space.sample()) for _ in range(self._count)])
