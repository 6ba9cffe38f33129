"""Policies by name, and action codecs that turn outputs into actions.

Outputs are [N, K] for N environments.

A package adds a policy as an entry point of the group ``flyball.policies``: a callable that takes a ``PolicyRequest``
and returns an ``EnvironmentPolicy``. The built-in ``mlp`` reads a perceptron from a safetensors file with a manifest in
its header. The file's float32 tensors have the names of our own checkpoints::

    trunk.0.weight [H0, D]     trunk.0.bias [H0]
    trunk.1.weight [H1, H0]    trunk.1.bias [H1]    and so on
    policy_head.weight [K, H]  policy_head.bias [K]

D is the size of the flattened observation (a Discrete one is one-hot). The activation follows every layer but the
last. Other tensors, for instance of a value head, are ignored. The header's metadata has one entry ``note``, a
``PolicyManifest`` as a JSON object. With the safetensors library::

    note = '{"environment": "CartPole-v1", "activation": "tanh"}'
    save_file(tensors, "policy.safetensors", metadata={"note": note})

==========  =====================================  ==========================================================
codec       action space                           action
==========  =====================================  ==========================================================
``greedy``  Discrete, MultiDiscrete, MultiBinary   the largest logit of each choice, the first of equals
``sample``  the same                               drawn from the logits' softmax, fixed by the seed
``clip``    Box                                    the outputs, clipped to the bounds
``tanh``    Box with finite bounds                 tanh of the outputs, scaled to the bounds
``raw``     any                                    the outputs unchanged, for a policy that returns actions
==========  =====================================  ==========================================================

K is the number of actions (Discrete), the sum of ``nvec`` (MultiDiscrete), or the number of bits or components.
"""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from importlib.metadata import entry_points
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from flyball.app.config import FrozenModel, Precision
from flyball.app.core import FlyballError, reading
from flyball.app.learning.devices import arithmetic, to_device
from flyball.app.learning.network import BadParameters, bytes_to_parameters
from flyball.app.play.rng import draw_points, number_streams
from flyball.app.store import DamagedBlob, note_of

GROUP = "flyball.policies"
Outputs = NDArray[Any]
Points = NDArray[np.float64]
Decode = Callable[[Outputs, Points], Outputs]


class UnknownPolicy(FlyballError, code="unknown"):
    """No policy has this name."""


class BadPolicy(FlyballError, code="usage"):
    """A policy that cannot be read or does not fit the environment."""


class UnsuitedCodec(FlyballError, code="usage"):
    """An action codec that does not fit the action space or outputs."""


class EnvironmentPolicy(Protocol):
    """A policy that plays any number of environments at once."""

    action_codec: str  # default codec of the outputs; ``raw`` where they are already actions

    def outputs(self, observations: Any) -> Outputs:
        """Return one row of outputs for each observation of a Gymnasium batch."""


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """Arguments from which a policy is made."""

    source: str | None  # the value of ``--model``, usually a file
    count: int  # N, the environments that the policy plays at once
    observation_space: Any  # of one environment, a ``gymnasium.Space``
    action_space: Any  # likewise
    device: str  # where networks run, ``cpu``, ``cuda`` or ``cuda:1``
    seed: int  # of the policy's own random choices, if it makes any
    precision: Precision = "float32"  # of the networks' arithmetic


Factory = Callable[[PolicyRequest], EnvironmentPolicy]


def load_policy(name: str, request: PolicyRequest) -> EnvironmentPolicy:
    """Return the policy called ``name``: ``mlp``, ``random`` or an entry point.

    Raises ``UnknownPolicy``, ``BadPolicy`` or ``UnusableFile``.
    """
    if name in _OURS:
        return _OURS[name](request)
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        names = sorted({*_OURS, *points})
        near = get_close_matches(name, names, n=1)
        hint = (
            f"Did you mean {near[0]}?"
            if near
            else f"There are {', '.join(names)}; packages bring others, as entry points of {GROUP}."
        )
        raise UnknownPolicy(f"There is no policy {name!r}.", hint=hint)
    try:
        factory: Factory = points[name].load()
    except (ImportError, AttributeError) as error:
        raise BadPolicy(
            f"The policy {name} ({points[name].value}) cannot be loaded: {error}.", hint="Install what it needs."
        ) from error
    return factory(request)


def fingerprint(source: str | None) -> str | None:
    """Return the SHA-256 of a policy's file. Return None when ``source`` is not a file."""
    if source is None or not Path(source).is_file():
        return None
    return sha256(Path(source).read_bytes()).hexdigest()


class RandomActions:
    """Random samples of the action space, as a baseline."""

    def __init__(self, request: PolicyRequest) -> None:
        self.action_codec = "raw"
        self._count = request.count
        self._space = request.action_space
        self._space.seed(request.seed % (1 << 32))

    def outputs(self, observations: Any) -> Outputs:  # noqa: ARG002 - random actions ignore them
        """See ``EnvironmentPolicy.outputs``."""
        return np.stack([np.asarray(self._space.sample()) for _ in range(self._count)])


class PolicyManifest(FrozenModel):
    """Manifest in the header of a policy file."""

    version: Literal[1] = 1
    environment: str = Field(description="the id it was made for")
    activation: Literal["relu", "tanh"]
    action_codec: str | None = Field(default=None, description="how its outputs become actions; None: as is usual")


class Perceptron:
    """A perceptron from a safetensors file (format: see the module). Raises ``BadPolicy`` or ``UnusableFile``."""

    def __init__(self, request: PolicyRequest) -> None:
        path = Path(request.source or "")
        with reading(path):
            data = path.read_bytes()
        try:
            manifest, parameters = PolicyManifest.model_validate_json(note_of(data)), bytes_to_parameters(data)
        except (DamagedBlob, BadParameters, ValidationError) as error:
            raise BadPolicy(
                f"{request.source} is no policy for environments.",
                hint="What is read: a perceptron as safetensors, as app/gym/players.py describes it.",
            ) from error
        names = [f"trunk.{index}" for index in range(len(parameters))]
        names = [name for name in names if f"{name}.weight" in parameters] + ["policy_head"]
        try:
            layers = [(parameters[f"{name}.weight"], parameters[f"{name}.bias"]) for name in names]
        except KeyError as error:
            raise BadPolicy(
                f"The policy has no tensor {error}.", hint="The format is described in app/gym/players.py."
            ) from error
        shapes = [(tuple(weight.shape), tuple(bias.shape)) for weight, bias in layers]
        widths = [shapes[0][0][-1] if shapes[0][0] else 0, *(bias[0] if bias else 0 for _, bias in shapes)]
        if shapes != [((wide, narrow)[::-1], (narrow,)) for wide, narrow in pairwise(widths)]:
            raise BadPolicy(
                f"The policy's layers do not follow each other: weights and biases are {shapes}.",
                hint="The format is described in app/gym/players.py.",
            )
        self._layers = [(weight.float().to(request.device), bias.float().to(request.device)) for weight, bias in layers]
        self._activation = torch.tanh if manifest.activation == "tanh" else torch.relu
        self._space = request.observation_space
        self._device, self._precision = torch.device(request.device), request.precision
        self.action_codec = manifest.action_codec or default_codec(request.action_space)
        size, expected = _observation_size(self._space), self._layers[0][0].shape[1]
        if size != expected:
            raise BadPolicy(
                f"The policy was made for {manifest.environment} and takes {expected} features; these observations "
                f"have {size}.",
                hint="Evaluate it in the environment that it was made for.",
            )

    def outputs(self, observations: Any) -> Outputs:
        """See ``EnvironmentPolicy.outputs``."""
        features = to_device(torch.from_numpy(_flatten(observations, self._space)), self._device)
        with torch.inference_mode(), arithmetic(self._device, self._precision):
            for weight, bias in self._layers[:-1]:
                features = self._activation(torch.nn.functional.linear(features, weight, bias))
            return torch.nn.functional.linear(features, *self._layers[-1]).float().cpu().numpy()


_OURS: dict[str, Factory] = {"mlp": Perceptron, "random": RandomActions}


def _observation_size(space: Any) -> int:
    """Return D, the flattened size of Discrete or numeric observations. Raises ``BadPolicy`` for others."""
    if hasattr(space, "n") and space.shape == ():
        return int(space.n)
    if not space.shape or not np.issubdtype(space.dtype, np.number):
        raise BadPolicy(
            f"A perceptron cannot see observations of {space}.",
            hint="Bring a policy of your own (entry point group flyball.policies).",
        )
    return int(np.prod(space.shape))


def _flatten(observations: NDArray[Any], space: Any) -> NDArray[np.float32]:
    if space.shape == ():
        hot = np.zeros((len(observations), int(space.n)), dtype=np.float32)
        hot[np.arange(len(observations)), observations - int(space.start)] = 1
        return hot
    return np.ascontiguousarray(observations.reshape(len(observations), -1), dtype=np.float32)


def coded_actor(policy: EnvironmentPolicy, codec: str, space: Any, seed: int) -> Callable[[Any], Outputs]:
    """Return an actor that plays a policy through an action codec.

    The actor is for a single evaluation.

    Under ``sample``, each environment draws from its own random stream. Raises ``UnsuitedCodec``; so does the actor
    when the policy's outputs are not K wide.
    """
    width = output_width(space) if codec != "raw" else None
    decode = _decoder(codec, space)
    steps = count()

    def act(observations: Any) -> Outputs:
        outputs = policy.outputs(observations)
        if width is not None and outputs.shape[1:] != (width,):
            raise UnsuitedCodec(
                f"The policy returns outputs of shape {outputs.shape[1:]}; {codec} for {space} needs ({width},).",
                hint="Use a policy made for this environment, or --action-codec raw when it returns actions.",
            )
        streams = number_streams(seed, np.arange(len(outputs)))
        return decode(outputs, draw_points(streams, np.full(len(outputs), next(steps))))

    return act


def default_codec(action_space: Any) -> str:
    """Return the codec for logits or means over an action space. Raises ``UnsuitedCodec``."""
    return "clip" if _kind(action_space) == "Box" else "greedy"


def output_width(action_space: Any) -> int:
    """Return K, the outputs that an action space needs. Raises ``UnsuitedCodec``."""
    kind = _kind(action_space)
    if kind == "Discrete":
        return int(action_space.n)
    return int(action_space.nvec.sum() if kind == "MultiDiscrete" else np.prod(action_space.shape))


def _kind(space: Any) -> str:
    """Return the Gymnasium class that a space's class is or derives from, by name. Raises ``UnsuitedCodec``."""
    codecs = {"Discrete", "MultiDiscrete", "MultiBinary", "Box"}
    name = next((kind.__name__ for kind in type(space).__mro__ if kind.__name__ in codecs), None)
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
    suited, fit = (("clip", "tanh"), "clip, tanh or raw") if kind == "Box" else (tuple(_PICKS), "greedy, sample or raw")
    if codec not in suited:
        raise UnsuitedCodec(f"The action codec {codec!r} does not suit {space}.", hint=f"Use {fit}.")
    if kind == "Box":
        return _box(codec, space)
    pick = _PICKS[codec]
    if kind == "Discrete":
        return lambda outputs, points: pick(outputs, points) + int(space.start)

    def decode(outputs: Outputs, points: Points) -> Outputs:
        """Pick each of several choices, with its own random points."""
        if kind == "MultiDiscrete":
            parts = np.split(outputs, np.cumsum(space.nvec.ravel())[:-1], axis=1)
        else:
            parts = [np.stack([np.zeros(len(outputs)), column], axis=1) for column in outputs.T]  # off has logit 0
        seeds = (points * 2.0**53).astype(np.uint64)
        picked = [pick(part, draw_points(seeds, np.full(len(seeds), index))) for index, part in enumerate(parts)]
        actions: Outputs = np.stack(picked, axis=1).reshape(-1, *space.shape)
        return actions + space.start if kind == "MultiDiscrete" else actions.astype(np.int8)

    return decode


def _largest(logits: Outputs, _points: Points) -> Outputs:
    largest: Outputs = np.argmax(logits, axis=1)
    return largest


def _draw(logits: Outputs, points: Points) -> Outputs:
    weights = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
    drawn: Outputs = np.count_nonzero(weights <= (points * weights[:, -1])[:, None], axis=1)
    return drawn


_PICKS: dict[str, Decode] = {"greedy": _largest, "sample": _draw}


def _box(codec: str, space: Any) -> Decode:
    low, high = space.low, space.high
    if codec == "clip":
        return lambda outputs, _: np.clip(outputs.reshape(-1, *space.shape), low, high).astype(space.dtype)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UnsuitedCodec(f"tanh needs finite bounds; those of {space} are not.", hint="Use clip or raw.")
    middle, half = (high + low) / 2, (high - low) / 2
    return lambda outputs, _: (middle + half * np.tanh(outputs.reshape(-1, *space.shape))).astype(space.dtype)
