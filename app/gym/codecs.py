"""Action codecs: how the outputs of a policy [N, K] become the actions of an environment.

==========  =====================================  ==========================================================
codec       action space                           action
==========  =====================================  ==========================================================
``greedy``  Discrete, MultiDiscrete, MultiBinary   the largest logit of each choice, the first of several
``sample``  the same                               drawn by the logits; the same for the same seed
``clip``    Box                                    the outputs, brought within the bounds
``tanh``    Box with finite bounds                 tanh of the outputs, stretched over the bounds
``raw``     any                                    the outputs as they are: the policy returns actions
==========  =====================================  ==========================================================

K is the number of actions, the sum of the choices' numbers, the number of bits, or the number of components.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from app.core import FlyballError
from app.play.rollout import draw_points, number_streams

ACTION_CODECS = ("greedy", "sample", "clip", "tanh", "raw")
Outputs = NDArray[Any]
Points = NDArray[np.float64]
Decode = Callable[[Outputs, Points], Outputs]


class BadPolicy(FlyballError):
    """A policy that cannot be read, or that was made for other observations or actions."""


class UnsuitedCodec(FlyballError):
    """An action codec that cannot be used with an action space, or with what a policy returns."""


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
    """Arguments of a policy."""

    source: str | None  # what ``--model`` says, usually a file
    count: int  # N, how many environments it plays at once
    observation_space: Any  # of one environment, a ``gymnasium.Space``.
    action_space: Any  # likewise
    device: str  # where networks run, ``cpu`` or ``cuda``
    seed: int  # of the policy's own choices, if it makes any by chance


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


class CodedPolicy:
    """A policy and an action codec: chooses actions. Not to be shared by two evaluations: it counts its steps.

    Args:
        policy: gives the outputs.
        codec: one of ``ACTION_CODECS``.
        action_space: of one environment.
        seed: of ``sample``; environment i draws from a stream of its own.

    Raises ``UnsuitedCodec``.
    """

    def __init__(self, policy: EnvironmentPolicy, codec: str, action_space: Any, seed: int) -> None:
        self._policy = policy
        self._codec = codec
        self._space = action_space
        self._width = output_width(action_space) if codec != "raw" else None
        self._decode = _decoder(codec, action_space)
        self._seed = seed
        self._steps = 0

    def __call__(self, observations: Any) -> Outputs:
        """Return the actions [N, ...]. Raises ``UnsuitedCodec`` for outputs of another width."""
        outputs = self._policy.outputs(observations)
        if self._width is not None and outputs.shape[1:] != (self._width,):
            raise UnsuitedCodec(
                f"The policy returns outputs of shape {outputs.shape[1:]}; {self._codec} for {self._space} needs "
                f"({self._width},).",
                hint="Use a policy made for this environment, or --action-codec raw when it returns actions.",
            )
        count = np.arange(len(outputs))
        points = draw_points(number_streams(self._seed, count), np.full_like(count, self._steps))
        self._steps += 1
        return self._decode(outputs, points)


def default_codec(action_space: Any) -> str:
    """Return the codec for logits or means over an action space. Raises ``UnsuitedCodec``."""
    return "clip" if _kind(action_space) == "Box" else "greedy"


def output_width(action_space: Any) -> int:
    """Return K, how many outputs a policy has for an action space. Raises ``UnsuitedCodec``."""
    kind = _kind(action_space)
    if kind == "Discrete":
        return int(action_space.n)
    return int(action_space.nvec.sum() if kind == "MultiDiscrete" else np.prod(action_space.shape))


def _kind(space: Any) -> str:
    """Return the name of the space's class that codecs know."""
    known = {"Discrete", "MultiDiscrete", "MultiBinary", "Box"}
    name = next((kind.__name__ for kind in type(space).__mro__ if kind.__name__ in known), None)
    if name is None:
        raise UnsuitedCodec(
            f"No action codec knows the action space {space}.",
            hint="Bring a policy of your own that returns actions (entry point group flyball.policies).",
        )
    return name


def _decoder(codec: str, space: Any) -> Decode:
    if codec == "raw":
        return lambda outputs, _: outputs
    kind = _kind(space)
    discrete = kind != "Box"
    if codec not in ACTION_CODECS or discrete != (codec in {"greedy", "sample"}):
        fit = "greedy, sample or raw" if discrete else "clip, tanh or raw"
        raise UnsuitedCodec(f"The action codec {codec!r} does not suit {space}.", hint=f"Use {fit}.")
    if not discrete:
        return _box(codec, space)
    pick = _largest if codec == "greedy" else _drawn
    if kind == "Discrete":
        return lambda outputs, points: pick(outputs, points) + int(space.start)

    def decode(outputs: Outputs, points: Points) -> Outputs:
        """Pick once for each of several choices, each with points of its own."""
        if kind == "MultiDiscrete":
            parts = np.split(outputs, np.cumsum(space.nvec.ravel())[:-1], axis=1)
        else:
            parts = [np.stack([np.zeros(len(outputs)), column], axis=1) for column in outputs.T]  # off has the logit 0
        seeds = (points * 2.0**53).astype(np.uint64)
        picked = [pick(part, draw_points(seeds, np.full(len(seeds), index))) for index, part in enumerate(parts)]
        actions: Outputs = np.stack(picked, axis=1).reshape(-1, *space.shape)
        return actions + space.start if kind == "MultiDiscrete" else actions.astype(np.int8)

    return decode


def _box(codec: str, space: Any) -> Decode:
    low, high = space.low, space.high
    if codec == "clip":
        return lambda outputs, _: np.clip(outputs.reshape(-1, *space.shape), low, high).astype(space.dtype)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UnsuitedCodec(f"tanh needs finite bounds; those of {space} are not.", hint="Use clip or raw.")
    middle, half = (high + low) / 2, (high - low) / 2
    return lambda outputs, _: (middle + half * np.tanh(outputs.reshape(-1, *space.shape))).astype(space.dtype)


def _largest(logits: Outputs, _points: Points) -> Outputs:
    largest: Outputs = np.argmax(logits, axis=1)
    return largest


def _drawn(logits: Outputs, points: Points) -> Outputs:
    weights = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
    drawn: Outputs = np.count_nonzero(weights <= (points * weights[:, -1])[:, None], axis=1)
    return drawn
