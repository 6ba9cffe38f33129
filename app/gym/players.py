"""Policies by name: ours, and those that other packages bring.

A package brings one as an entry point of the group ``flyball.policies``: a callable that takes a ``PolicyRequest`` and
returns an ``EnvironmentPolicy``. Ours, ``mlp``, reads a perceptron from a safetensors file with a manifest in its
header. Its tensors, float32, have the names of our own checkpoints::

    trunk.0.weight [H0, D]     trunk.0.bias [H0]
    trunk.1.weight [H1, H0]    trunk.1.bias [H1]    and so on
    policy_head.weight [K, H]  policy_head.bias [K]

D is the size of the flattened observation (a Discrete one is one-hot), K that of the outputs (``app.gym.codecs``). The
activation stands between layers, not after the last. Further tensors, for instance of a value head, are ignored. The
header's metadata has one entry ``note``, a JSON object: ``PolicyManifest``. With the safetensors library::

    note = '{"environment": "CartPole-v1", "activation": "tanh"}'
    save_file(tensors, "policy.safetensors", metadata={"note": note})
"""

from collections.abc import Callable
from difflib import get_close_matches
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from torch import Tensor

from app.config import Settings
from app.core import FlyballError, reading
from app.gym.codecs import BadPolicy, EnvironmentPolicy, PolicyRequest, RandomActions, default_codec
from app.learning.network import BadParameters, Parameters, bytes_to_parameters, parameters_to_bytes
from app.store import DamagedBlob, note_of, with_note

_HEAD = "policy_head"


class PolicyManifest(Settings):
    """Content of the file."""

    version: Literal[1] = 1
    environment: str = Field(description="the id it was made for")
    activation: Literal["relu", "tanh"]
    action_codec: str | None = Field(default=None, description="how its outputs become actions; None: as is usual")


class Perceptron:
    """Plays what it was read from; see the module's text.

    Raises ``BadPolicy``.
    """

    def __init__(self, data: bytes, request: PolicyRequest) -> None:
        try:
            manifest, parameters = PolicyManifest.model_validate_json(note_of(data)), bytes_to_parameters(data)
        except (DamagedBlob, BadParameters, ValidationError) as error:
            raise BadPolicy(
                f"{request.source} is no policy for environments.",
                hint="What is read: a perceptron as safetensors, as app/gym/players.py describes it.",
            ) from error
        names = [f"trunk.{index}" for index in range(len(parameters))]
        names = [name for name in names if f"{name}.weight" in parameters] + [_HEAD]
        self._layers = [_layer(parameters, name, request.device) for name in names]
        self._activation = torch.tanh if manifest.activation == "tanh" else torch.relu
        self._space = request.observation_space
        self._device = request.device
        self.action_codec = manifest.action_codec or default_codec(request.action_space)
        size, wanted = observation_size(self._space), self._layers[0][0].shape[1]
        if size != wanted:
            raise BadPolicy(
                f"The policy was made for {manifest.environment} and takes {wanted} features; these observations have "
                f"{size}.",
                hint="Evaluate it in the environment that it was made for.",
            )

    def outputs(self, observations: Any) -> NDArray[Any]:
        """See ``EnvironmentPolicy.outputs``."""
        features = torch.from_numpy(_flattened(observations, self._space)).to(self._device)
        with torch.inference_mode():
            for weight, bias in self._layers[:-1]:
                features = self._activation(torch.nn.functional.linear(features, weight, bias))
            return torch.nn.functional.linear(features, *self._layers[-1]).cpu().numpy()


def policy_bytes(parameters: Parameters, manifest: PolicyManifest) -> bytes:
    """Return the file for a perceptron: always the same bytes for the same content."""
    return with_note(parameters_to_bytes(parameters), manifest.model_dump_json())


def observation_size(space: Any) -> int:
    """Return D for an observation space. Raises ``BadPolicy`` where observations are no single array."""
    if hasattr(space, "n") and space.shape == ():
        return int(space.n)
    if space.shape is None or not space.shape or not np.issubdtype(space.dtype, np.number):
        raise BadPolicy(
            f"A perceptron cannot see observations of {space}.",
            hint="Bring a policy of your own (entry point group flyball.policies).",
        )
    return int(np.prod(space.shape))


def _flattened(observations: NDArray[Any], space: Any) -> NDArray[np.float32]:
    if space.shape == ():
        hot = np.zeros((len(observations), int(space.n)), dtype=np.float32)
        hot[np.arange(len(observations)), observations - int(space.start)] = 1
        return hot
    return np.ascontiguousarray(observations.reshape(len(observations), -1), dtype=np.float32)


def _layer(parameters: Parameters, name: str, device: str) -> tuple[Tensor, Tensor]:
    try:
        return parameters[f"{name}.weight"].float().to(device), parameters[f"{name}.bias"].float().to(device)
    except KeyError as error:
        raise BadPolicy(
            f"The policy has no tensor {error}.", hint="The format is described in app/gym/players.py."
        ) from error


GROUP = "flyball.policies"
Factory = Callable[[PolicyRequest], EnvironmentPolicy]


class UnknownPolicy(FlyballError):
    """No policy has this name."""


def load_policy(name: str, request: PolicyRequest) -> EnvironmentPolicy:
    """Return the policy called ``name``: ``mlp`` reads a file, ``random`` nothing, others are entry points.

    Raises ``UnknownPolicy``, ``BadPolicy`` or ``UnusableFile``.
    """
    if name in _OURS:
        return _OURS[name](request)
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        names = sorted({*_OURS, *found})
        near = get_close_matches(name, names, n=1)
        hint = (
            f"Did you mean {near[0]}?"
            if near
            else f"There are {', '.join(names)}; packages bring others, as entry points of {GROUP}."
        )
        raise UnknownPolicy(f"There is no policy {name!r}.", hint=hint)
    try:
        factory: Factory = found[name].load()
    except (ImportError, AttributeError) as error:
        raise BadPolicy(
            f"The policy {name} ({found[name].value}) cannot be loaded: {error}.", hint="Install what it needs."
        ) from error
    return factory(request)


def fingerprint(source: str | None) -> str | None:
    """Return the SHA-256 of the file that ``--model`` names, None when it names none."""
    if source is None or not Path(source).is_file():
        return None
    return sha256(Path(source).read_bytes()).hexdigest()


def _mlp(request: PolicyRequest) -> EnvironmentPolicy:
    path = Path(request.source or "")
    with reading(path):
        data = path.read_bytes()
    return Perceptron(data, request)


_OURS: dict[str, Factory] = {"mlp": _mlp, "random": RandomActions}
