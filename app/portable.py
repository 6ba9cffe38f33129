"""Policy files for other programs, and a player of them that needs only NumPy.

This module imports nothing of Flyball, so it can be copied into another program::

    policy = read_policy("policy.npz")
    logits, values = policy.forward(observations)                # [N, D] to [N, A] and [N]
    probabilities = policy.probabilities(observations, mask)     # [N, A], exactly 0 where the mask [N, A] is False

Schema version 1. A policy is a header and tensors of float32::

    trunk.0.weight [H0, D]   trunk.0.bias [H0]   trunk.1.weight [H1, H0]   and so on, ReLU after each
    actor.weight   [A, H]    actor.bias   [A]    a logit for each action, legal or not
    critic.weight  [1, H]    critic.bias  [1]    the value, an expected outcome in [-1, 1]

The header holds ``schema``, ``schema_version``, ``content_hash``, ``game`` (the configuration that it plays), ``model``
(the hash of the checkpoint) with its ``step``, ``parent`` and ``optimizer``, and ``architecture``: ``type``,
``activation``, ``observation_size`` D, ``hidden`` [H0, H1 …], ``actions`` A. A ``.json`` file is one object, the header
with ``tensors`` by name as nested lists. A ``.npz`` file has the tensors as arrays by name, and the header as the array
``header``, a string of JSON. Both hold the same numbers and have the same hash.
"""

import hashlib
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

SCHEMA, SCHEMA_VERSION = "flyball.policy", 1
TYPE, ACTIVATION = "actor_critic_mlp", "relu"
FORMATS = (".npz", ".json")

_HEADER, _TENSORS = "header", "tensors"
_DIGITS = 9  # significant decimal digits that identify one float32

Floats = NDArray[np.float32]


class BadPolicyFile(ValueError):
    """A file that is not a policy, or a policy that was changed after its export."""


@dataclass(frozen=True, slots=True, eq=False)
class PortablePolicy:
    """An actor-critic network and its header; ``lineage`` holds ``step``, ``parent`` and ``optimizer``.

    Raises ``BadPolicyFile`` if the tensors do not form one network.
    """

    game: str
    model: str
    tensors: Mapping[str, Floats]
    lineage: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for layer in ("trunk.0", *self._layers, "actor"):
            if np.ndim(self.tensors.get(f"{layer}.weight", ())) != 2:
                raise BadPolicyFile(f"there is no matrix {layer}.weight")
        _check_tensors(self.tensors, self.architecture)

    @property
    def observation_size(self) -> int:
        """D, the features of an observation."""
        return int(self.tensors["trunk.0.weight"].shape[1])

    @property
    def actions(self) -> int:
        """A, the actions of the game."""
        return int(self.tensors["actor.weight"].shape[0])

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the trunk's layers."""
        return tuple(self.tensors[f"{layer}.weight"].shape[0] for layer in self._layers)

    @property
    def architecture(self) -> dict[str, Any]:
        """The header's ``architecture``."""
        return {
            "type": TYPE,
            "activation": ACTIVATION,
            "observation_size": self.observation_size,
            "hidden": list(self.hidden),
            "actions": self.actions,
        }

    @property
    def header(self) -> dict[str, Any]:
        """The header, without ``content_hash``."""
        named = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "game": self.game, "model": self.model}
        return {**named, **self.lineage, "architecture": self.architecture}

    @property
    def content_hash(self) -> str:
        """SHA-256 of header and tensors, the same for each format."""
        return _hashed(self.header, self.tensors)

    @property
    def _layers(self) -> list[str]:
        count = sum(name.startswith("trunk.") and name.endswith(".weight") for name in self.tensors)
        return [f"trunk.{number}" for number in range(count)]

    def forward(self, observations: ArrayLike) -> tuple[Floats, Floats]:
        """Return unmasked logits [N, A] and values [N] for observations [N, D]. Raises ``ValueError``."""
        features = np.asarray(observations, dtype=np.float32)
        if features.ndim != 2 or features.shape[1] != self.observation_size:
            raise ValueError(f"observations are {features.shape}, not [N, {self.observation_size}]")
        for layer in self._layers:
            features = np.maximum(self._linear(layer, features), 0)
        return self._linear("actor", features), self._linear("critic", features)[:, 0]

    def probabilities(self, observations: ArrayLike, mask: ArrayLike) -> Floats:
        """Return action probabilities [N, A], 0 where ``mask`` [N, A] is False. Raises ``ValueError``."""
        logits, _ = self.forward(observations)
        legal = np.asarray(mask, dtype=np.bool_)
        if legal.shape != logits.shape or not legal.any(axis=1).all():
            raise ValueError(f"a mask is {logits.shape} with a legal action in each row, not {legal.shape}")
        shifted = np.where(legal, logits, -np.inf)
        weights = np.exp(shifted - shifted.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)

    def _linear(self, name: str, features: Floats) -> Floats:
        return features @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]


def write_policy(path: str | os.PathLike[str], policy: PortablePolicy) -> None:
    """Write a policy as ``.npz`` or ``.json``, by the path's suffix. The same policy gives the same bytes.

    Raises ``BadPolicyFile`` for another suffix, or ``OSError``.
    """
    header = {**policy.header, "content_hash": policy.content_hash}
    tensors = dict(sorted(policy.tensors.items()))
    if _suffix(path) == ".npz":
        buffer = BytesIO()
        arrays: dict[str, Any] = {_HEADER: np.array(json.dumps(header)), **tensors}
        np.savez(buffer, **arrays)
        data = buffer.getvalue()
    else:
        decimals = {name: _decimals(tensor) for name, tensor in tensors.items()}
        data = json.dumps({**header, _TENSORS: decimals}, separators=(",", ":")).encode()
    Path(path).write_bytes(data)


def read_policy(path: str | os.PathLike[str]) -> PortablePolicy:
    """Read and check a policy. Raises ``BadPolicyFile``, or ``OSError``."""
    suffix, data = _suffix(path), Path(path).read_bytes()
    try:
        header, tensors = _read_npz(data) if suffix == ".npz" else _read_json(data)
        return _checked(header, tensors)
    except BadPolicyFile as error:
        raise BadPolicyFile(f"{path}: {error}") from error


def _suffix(path: str | os.PathLike[str]) -> str:
    suffix = Path(path).suffix
    if suffix not in FORMATS:
        raise BadPolicyFile(f"{path} ends neither with .npz nor with .json: name it after its format")
    return suffix


def _hashed(header: Mapping[str, Any], tensors: Mapping[str, Floats]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.shape}\n".encode())
        digest.update(np.ascontiguousarray(tensor, dtype="<f4").tobytes())
    return digest.hexdigest()


def _decimals(tensor: Floats) -> Any:
    if tensor.ndim > 1:
        return [_decimals(row) for row in tensor]
    return [float(f"{value:.{_DIGITS}g}") for value in tensor.tolist()]


def _read_npz(data: bytes) -> tuple[Any, dict[str, Any]]:
    try:
        with np.load(BytesIO(data), allow_pickle=False) as arrays:
            tensors = {name: arrays[name] for name in arrays.files}
        header = json.loads(str(tensors.pop(_HEADER)))
    except KeyError:
        raise BadPolicyFile(f"it has no array {_HEADER!r}, so it is another program's .npz") from None
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise BadPolicyFile("it is no .npz file of a policy: export the policy again") from error
    return header, tensors


def _read_json(data: bytes) -> tuple[Any, dict[str, Any]]:
    try:
        header = json.loads(data)
        tensors = header.pop(_TENSORS)
        return header, {name: np.array(values, dtype=np.float64) for name, values in tensors.items()}
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadPolicyFile(f"it is no JSON ({error}): export the policy again") from error
    except (AttributeError, KeyError, TypeError):
        raise BadPolicyFile(f"it has no object {_TENSORS!r}, so it is no policy") from None
    except ValueError as error:
        raise BadPolicyFile(f"{_TENSORS} hold something else than rectangles of numbers ({error})") from error


def _checked(header: Any, tensors: Mapping[str, Any]) -> PortablePolicy:
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise BadPolicyFile(f"its schema is not {SCHEMA!r}, so it is no policy")
    if header.get("schema_version") != SCHEMA_VERSION:
        raise BadPolicyFile(
            f"schema_version is {header.get('schema_version')!r}, and {SCHEMA_VERSION} is what can be read here: "
            f"export the policy again, or use the version of Flyball that wrote it"
        )
    _check_header(header)
    _check_tensors(tensors, header["architecture"])
    floats = {name: np.asarray(tensor, dtype=np.float32) for name, tensor in tensors.items()}
    lineage = {name: header[name] for name in ("step", "parent", "optimizer") if name in header}
    policy = PortablePolicy(header["game"], header["model"], floats, lineage)
    written = {name: value for name, value in header.items() if name != "content_hash"}
    if _hashed(written, floats) != header["content_hash"]:
        raise BadPolicyFile("content_hash is not that of the content, which was changed: export the policy again")
    return policy


def _check_header(header: Mapping[str, Any]) -> None:
    kinds: dict[str, type] = {"content_hash": str, "game": str, "model": str, "architecture": dict}
    for name, kind in kinds.items():
        if not isinstance(header.get(name), kind):
            raise BadPolicyFile(f"{name} is {header.get(name)!r}, not a {kind.__name__}")
    found = header["architecture"]
    if (found.get("type"), found.get("activation")) != (TYPE, ACTIVATION):
        raise BadPolicyFile(f"architecture is {found!r}; what can be played here is {TYPE} with {ACTIVATION}")
    hidden = found.get("hidden")
    sizes = found.get("observation_size"), found.get("actions"), *(hidden if isinstance(hidden, list) else [None])
    if not hidden or not all(type(size) is int and size > 0 for size in sizes):
        raise BadPolicyFile(f"architecture is {found!r}: observation_size, hidden and actions are numbers above 0")


def _check_tensors(tensors: Mapping[str, Any], architecture: Mapping[str, Any]) -> None:
    expected = dict(_shapes(architecture))
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in tensors:
            raise BadPolicyFile(f"there is no tensor {name}, which the architecture asks for")
        if name not in expected:
            raise BadPolicyFile(f"there is a tensor {name}, which the architecture does not know")
        tensor = tensors[name]
        if tensor.shape != expected[name]:
            raise BadPolicyFile(f"tensor {name} is {tensor.shape}, the architecture says {expected[name]}")
        if tensor.dtype not in (np.float32, np.float64) or not np.isfinite(tensor).all():
            raise BadPolicyFile(f"tensor {name} holds something else than finite numbers of float32")


def _shapes(architecture: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    widths = [architecture["observation_size"], *architecture["hidden"]]
    for layer, (wide, narrow) in enumerate(pairwise(widths)):
        yield f"trunk.{layer}.weight", (narrow, wide)
        yield f"trunk.{layer}.bias", (narrow,)
    for head, size in (("actor", architecture["actions"]), ("critic", 1)):
        yield f"{head}.weight", (size, widths[-1])
        yield f"{head}.bias", (size,)
