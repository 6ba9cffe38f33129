"""Policy files for other programs, and a player that needs only NumPy.

This module imports nothing of Flyball, so it can be copied into another program::

    policy = read_policy("policy.npz")
    logits, values = policy.forward(observations)                # [N, D] to [N, A] and [N]
    probabilities = policy.probabilities(observations, mask)     # [N, A], exactly 0 where the mask [N, A] is False

Schema version 1. A policy is a header and tensors of float32. Observations are divided by ``scale`` first: a number, or
a list with one for each of the D. An ``actor_critic_mlp`` has the layers::

    trunk.0.weight [H0, D]   trunk.0.bias [H0]   trunk.1.weight [H1, H0]   and so on, ReLU after each
    actor.weight   [A, H]    actor.bias   [A]    a logit for each action, legal or not
    critic.weight  [1, H]    critic.bias  [1]    the value, an expected outcome in [-1, 1]

    blocks.0.first, blocks.0.second    [H, H], only with residual blocks, after the trunk: ReLU between them; their
                                output is added to the block's input

``actor_critic_windows`` have, before ``trunk.0``, which reads F x X numbers::

    windows  [F, C, L, L]       convolution of the planes [C, H, W] without padding; X places, ReLU after the scalars
    scalars  [F, S]             only where there are scalars; their layer is added at each place

An ``actor_critic_tower`` reads the first features as planes [C, H, W], the others as S scalars. Every layer has a
weight and a bias; convolutions have odd sizes and keep H x W::

    stem     [K, C, 3, 3]       convolution of the planes; ReLU after adding the scalars' layer to each cell
    scalars  [K, S]             only where there are scalars
    blocks.0.first, blocks.0.second    [K, K, 3, 3], ReLU between them; their output is added to the block's input, ReLU
    blocks.0.squeeze [Q, K], blocks.0.excite [K, Q]    only with squeeze and excitation: the mean of each channel, ReLU
                                between the two layers; the sigmoid multiplies the channels of what is added
    policy_planes [P, K, 1, 1], actor [A, P x H x W]                ReLU between them
    value_planes  [V, K, 1, 1], value_hidden [U, V x H x W], critic [1, U]    ReLU between them

Where ``architecture`` has ``action_planes`` M, the actor of a tower is a convolution [M, P, 1, 1]. The tensor
``action_places`` [A], whole numbers, says where each action's logit lies in H x W x M.

The header holds ``schema``, ``schema_version``, ``content_hash``, ``game`` (the configuration that it plays), ``model``
(the hash of the checkpoint) with what ``LINEAGE`` names of its manifest, and ``architecture``: ``type``,
``activation``, ``observation_size`` D and ``actions`` A; of an mlp ``hidden`` [H0, H1 …], and ``residual``, its blocks,
if it has any; of windows the same with ``planes`` [C, H, W], ``filters`` F and ``side`` L; of a tower ``planes``,
``blocks``, ``channels`` K, ``squeeze_excite`` Q, or 0, ``heads`` [P, V, U], and ``action_planes`` M if it has such;
``scale`` where it is not 1. A ``.json`` file is one object, the header with ``tensors`` by name as nested lists. A
``.npz`` file has the tensors as arrays by name, and the header as the array ``header``, a string of JSON. Both hold the
same numbers and have the same hash.
"""

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

SCHEMA, SCHEMA_VERSION = "flyball.policy", 1
MLP, WINDOWS, TOWER = "actor_critic_mlp", "actor_critic_windows", "actor_critic_tower"
ACTIVATION = "relu"
FORMATS = (".npz", ".json")
LINEAGE = ("step", "parent", "optimizer", "backend", "base", "content", "encoding")

_SIZES: dict[str, dict[str, range | None]] = {
    MLP: {**dict.fromkeys(("observation_size", "actions")), "hidden": range(1, 1000)},
    WINDOWS: {
        **dict.fromkeys(("observation_size", "actions", "filters", "side")),
        "hidden": range(1, 1000),
        "planes": range(3, 4),
    },
    TOWER: {
        **dict.fromkeys(("observation_size", "actions", "blocks", "channels", "squeeze_excite")),
        "planes": range(3, 4),
        "heads": range(3, 4),
    },
}
"""The sizes of each type of architecture: the allowed lengths of a list, or None for a number."""

_HEADER, _TENSORS, _PLACES = "header", "tensors", "action_places"
_DIGITS = 9  # significant decimal digits that identify one float32

Floats = NDArray[np.float32]


class BadPolicyFile(ValueError):
    """A file that is no policy, or was changed after its export."""


@dataclass(frozen=True, slots=True, eq=False)
class PortablePolicy:
    """An actor-critic network and its header.

    ``lineage`` holds the values that ``LINEAGE`` names. Raises ``BadPolicyFile`` if the tensors do not form one
    network.
    """

    game: str
    model: str
    tensors: Mapping[str, Floats]
    lineage: Mapping[str, Any] = field(default_factory=dict)
    planes: tuple[int, int, int] | None = None  # [C, H, W] of windows or a tower; None: an mlp
    scale: float | tuple[float, ...] = 1.0  # one number, or one a feature

    def __post_init__(self) -> None:
        layers = {
            MLP: {"trunk.0": 2},
            WINDOWS: {"windows": 4, "trunk.0": 2},
            TOWER: {"stem": 4, "policy_planes": 4, "value_planes": 4, "value_hidden": 2},
        }[self._type]
        actor = 4 if _PLACES in self.tensors else 2
        for layer, dimensions in {**layers, **dict.fromkeys(self._layers, 2), "actor": actor}.items():
            if np.ndim(self.tensors.get(f"{layer}.weight", ())) != dimensions:
                raise BadPolicyFile(f"there is no tensor {layer}.weight of {dimensions} dimensions")
        _check_tensors(self.tensors, self.architecture)

    @property
    def observation_size(self) -> int:
        """D, the features of an observation."""
        if self.planes is None:
            return int(self.tensors["trunk.0.weight"].shape[1])
        return prod(self.planes) + (
            int(self.tensors["scalars.weight"].shape[1]) if "scalars.weight" in self.tensors else 0
        )

    @property
    def actions(self) -> int:
        """A, the actions of the game."""
        return int(self.tensors.get(_PLACES, self.tensors["actor.weight"]).shape[0])

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of an mlp's or windows' layers; empty for a tower."""
        return tuple(self.tensors[f"{layer}.weight"].shape[0] for layer in self._layers)

    @property
    def architecture(self) -> dict[str, Any]:
        """The header's ``architecture``."""
        shapes = {name: tensor.shape for name, tensor in self.tensors.items()}
        common: dict[str, Any] = {
            "type": self._type,
            "activation": ACTIVATION,
            "observation_size": self.observation_size,
            "actions": self.actions,
            **({} if self.scale == 1 else {"scale": np.asarray(self.scale).tolist()}),
            **({} if self.planes is None else {"planes": list(self.planes)}),
        }
        blocks = sum(name.startswith("blocks.") and name.endswith(".first.weight") for name in shapes)
        if self._type != TOWER:
            filters, _, side, _ = shapes.get("windows.weight", (0, 0, 0, 0))
            sizes = {"filters": filters, "side": side} if self._type == WINDOWS else {}
            residual = {"residual": blocks} if blocks else {}
            return {**common, "hidden": list(self.hidden), **residual, **sizes}
        return {
            **common,
            "blocks": blocks,
            "channels": shapes["stem.weight"][0],
            "squeeze_excite": shapes.get("blocks.0.squeeze.weight", (0,))[0],
            "heads": [shapes[f"{name}.weight"][0] for name in ("policy_planes", "value_planes", "value_hidden")],
            **({"action_planes": shapes["actor.weight"][0]} if _PLACES in shapes else {}),
        }

    @property
    def header(self) -> dict[str, Any]:
        """The header, without ``content_hash``."""
        named = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "game": self.game, "model": self.model}
        return {**named, **self.lineage, "architecture": self.architecture}

    @property
    def content_hash(self) -> str:
        """SHA-256 of header and tensors, the same for each format."""
        return _content_hash(self.header, self.tensors)

    @property
    def _type(self) -> str:
        if self.planes is None:
            return MLP
        return WINDOWS if "windows.weight" in self.tensors else TOWER

    @property
    def _layers(self) -> list[str]:
        count = sum(name.startswith("trunk.") and name.endswith(".weight") for name in self.tensors)
        return [f"trunk.{number}" for number in range(count)]

    def forward(self, observations: ArrayLike) -> tuple[Floats, Floats]:
        """Return unmasked logits [N, A] and values [N] for observations [N, D]. Raises ``ValueError``."""
        features = np.asarray(observations, dtype=np.float32)
        if features.ndim != 2 or features.shape[1] != self.observation_size:
            raise ValueError(f"observations are {features.shape}, not [N, {self.observation_size}]")
        if self.scale != 1:
            features = np.asarray(features / np.asarray(self.scale, dtype=np.float32), dtype=np.float32)
        if self.planes is not None:
            cells = self._cells(features, self.planes)
            if self._type == TOWER:
                return self._tower(cells)
            features = cells.transpose(0, 3, 1, 2).reshape(len(cells), -1)
        for layer in self._layers:
            features = np.maximum(self._linear(layer, features), 0)
        for number in range(self.architecture.get("residual", 0)):
            inner = np.maximum(self._linear(f"blocks.{number}.first", features), 0)
            features = features + self._linear(f"blocks.{number}.second", inner)
        return self._linear("actor", features), self._linear("critic", features)[:, 0]

    def _cells(self, features: Floats, planes: tuple[int, int, int]) -> Floats:
        """Return the first layer's output [N, H, W, channels] for planes and scalars."""
        first, padded = ("stem", True) if self._type == TOWER else ("windows", False)
        grid = features[:, : prod(planes)].reshape(len(features), *planes).transpose(0, 2, 3, 1)
        cells = self._conv(first, grid, padded)
        if "scalars.weight" in self.tensors:
            cells = cells + self._linear("scalars", features[:, prod(planes) :])[:, None, None, :]
        return np.maximum(cells, 0)

    def _tower(self, cells: Floats) -> tuple[Floats, Floats]:
        """Return a tower's logits [N, A] and values [N]. ``cells`` is its first layer's output [N, H, W, channels]."""
        for number in range(self.architecture["blocks"]):
            change = self._conv(f"blocks.{number}.second", np.maximum(self._conv(f"blocks.{number}.first", cells), 0))
            if f"blocks.{number}.squeeze.weight" in self.tensors:
                squeezed = np.maximum(self._linear(f"blocks.{number}.squeeze", change.mean(axis=(1, 2))), 0)
                weights = 1 / (1 + np.exp(-self._linear(f"blocks.{number}.excite", squeezed)))
                change = np.asarray(change * weights[:, None, None, :], dtype=np.float32)
            cells = np.maximum(cells + change, 0)
        policy, value = (np.maximum(self._conv(f"{head}_planes", cells), 0) for head in ("policy", "value"))
        hidden = np.maximum(self._linear("value_hidden", _flat(value)), 0)
        if _PLACES in self.tensors:
            logits = self._conv("actor", policy).reshape(len(cells), -1)[:, self.tensors[_PLACES].astype(np.int64)]
        else:
            logits = self._linear("actor", _flat(policy))
        return logits, self._linear("critic", hidden)[:, 0]

    def _conv(self, name: str, cells: Floats, padded: bool = True) -> Floats:  # noqa: FBT001, FBT002 - as in PyTorch
        """Return a convolution of cells [N, H, W, C] as [N, H, W, K]; without padding, the board shrinks."""
        weight = self.tensors[f"{name}.weight"]
        outputs, _, size, _ = weight.shape
        edge = size // 2 if padded else 0
        grid = np.pad(cells, ((0, 0), (edge, edge), (edge, edge), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(grid, (size, size), axis=(1, 2))
        columns = windows.reshape(*windows.shape[:3], -1)  # [N, H, W, C x size x size]
        return columns @ weight.reshape(outputs, -1).T + self.tensors[f"{name}.bias"]

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


def _flat(cells: Floats) -> Floats:
    """Flatten a head's planes [N, H, W, planes]. Returns [N, planes x H x W]."""
    return cells.transpose(0, 3, 1, 2).reshape(len(cells), -1)


def write_policy(path: str | os.PathLike[str], policy: PortablePolicy) -> None:
    """Write a policy's bytes as ``.npz`` or ``.json``, by suffix. Raises ``BadPolicyFile`` or ``OSError``."""
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
        return _checked_policy(header, tensors)
    except BadPolicyFile as error:
        raise BadPolicyFile(f"{path}: {error}") from error


def _suffix(path: str | os.PathLike[str]) -> str:
    suffix = Path(path).suffix
    if suffix not in FORMATS:
        raise BadPolicyFile(f"{path} ends neither with .npz nor with .json: name it after its format")
    return suffix


def _content_hash(header: Mapping[str, Any], tensors: Mapping[str, Floats]) -> str:
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
        tensors = _arrays(data)
        header = json.loads(str(tensors.pop(_HEADER)))
    except KeyError:
        raise BadPolicyFile(f"it has no array {_HEADER!r}, so it is another program's .npz") from None
    except (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise BadPolicyFile("it is no .npz file of a policy: export the policy again") from error
    return header, tensors


def _arrays(data: bytes) -> dict[str, Any]:
    """Return the arrays of an .npz file, which holds them uncompressed."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        if sum(member.file_size for member in archive.infolist()) > len(data):
            raise ValueError("more bytes are declared than there are")
        return {name.removesuffix(".npy"): _read_npy(archive.read(name)) for name in archive.namelist()}


def _read_npy(data: bytes) -> Any:
    """Return an array, unless it lacks numbers that it declares."""
    file = BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("another version of the format")
    try:
        shape, _, kind = np.lib.format.read_array_header_1_0(file)
    except (MemoryError, RecursionError):  # of Python's parser
        raise ValueError("a header is nested too deep") from None
    if prod(shape) * kind.itemsize != len(data) - file.tell():
        raise ValueError(f"{len(data) - file.tell()} bytes are no array of {shape}")
    return np.lib.format.read_array(BytesIO(data), allow_pickle=False)


def _read_json(data: bytes) -> tuple[Any, dict[str, Any]]:
    try:
        header = json.loads(data)
        tensors = header.pop(_TENSORS)
        return header, {name: np.array(values, dtype=np.float64) for name, values in tensors.items()}
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise BadPolicyFile(f"it is not JSON ({error}): export the policy again") from error
    except (AttributeError, KeyError, TypeError):
        raise BadPolicyFile(f"it has no object {_TENSORS!r}, so it is not a policy") from None
    except ValueError as error:
        raise BadPolicyFile(f"{_TENSORS} hold something else than rectangles of numbers ({error})") from error


def _checked_policy(header: Any, tensors: Mapping[str, Any]) -> PortablePolicy:
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise BadPolicyFile(f"its schema is not {SCHEMA!r}, so it is not a policy")
    if header.get("schema_version") != SCHEMA_VERSION:
        raise BadPolicyFile(
            f"schema_version is {header.get('schema_version')!r}, and {SCHEMA_VERSION} is what can be read here: "
            f"export the policy again, or use the version of Flyball that wrote it"
        )
    _check_header(header)
    if max(header["architecture"].get(count, 0) for count in ("blocks", "residual")) > len(tensors):
        raise BadPolicyFile("there are more blocks than tensors")
    _check_tensors(tensors, header["architecture"])
    floats = {name: np.asarray(tensor, dtype=np.float32) for name, tensor in tensors.items()}
    lineage = {name: header[name] for name in LINEAGE if name in header}
    planes, scale = header["architecture"].get("planes"), header["architecture"].get("scale", 1.0)
    scale = tuple(scale) if isinstance(scale, list) else scale
    policy = PortablePolicy(header["game"], header["model"], floats, lineage, planes and tuple(planes), scale)
    written = {name: value for name, value in header.items() if name != "content_hash"}
    if _content_hash(written, floats) != header["content_hash"]:
        raise BadPolicyFile("content_hash is not that of the content, which was changed: export the policy again")
    return policy


def _check_header(header: Mapping[str, Any]) -> None:
    kinds: dict[str, type] = {"content_hash": str, "game": str, "model": str, "architecture": dict}
    for name, kind in kinds.items():
        if not isinstance(header.get(name), kind):
            raise BadPolicyFile(f"{name} is {header.get(name)!r}, not a {kind.__name__}")
    _check_architecture(header["architecture"])


def _check_architecture(architecture: Mapping[str, Any]) -> None:
    text = f"architecture is {architecture!r}"
    if architecture.get("type") not in list(_SIZES) or architecture.get("activation") != ACTIVATION:
        types = " or ".join(_SIZES)
        raise BadPolicyFile(f"{text}; what can be played here is {types} with {ACTIVATION}")
    for name, count in _SIZES[architecture["type"]].items():
        value = architecture.get(name)
        several = value if isinstance(value, list) else []
        sizes, least = several if count else [value], 0 if name == "squeeze_excite" else 1
        if (count and len(several) not in count) or not all(type(size) is int and size >= least for size in sizes):
            raise BadPolicyFile(f"{text}: {name} has to consist of numbers above 0")
    counts = [architecture.get(name, 0) for name in ("residual", "action_planes")]
    if not all(type(count) is int and count >= 0 for count in counts):
        raise BadPolicyFile(f"{text}: residual is a number of blocks, action_planes one of planes")
    scale = architecture.get("scale", 1.0)
    divisors, expected = (scale, architecture["observation_size"]) if isinstance(scale, list) else ([scale], 1)
    if len(divisors) != expected or not all(isinstance(x, int | float) and 0 < x < float("inf") for x in divisors):
        raise BadPolicyFile(f"{text}: scale is a number above 0, or one a feature")
    if architecture["type"] != MLP and architecture["observation_size"] < prod(architecture["planes"]):
        raise BadPolicyFile(f"{text}: planes have more cells than observation_size")
    if architecture["type"] == WINDOWS and architecture["side"] > min(architecture["planes"][1:]):
        raise BadPolicyFile(f"{text}: side is larger than the planes")


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
    if (places := tensors.get(_PLACES)) is not None:
        count = architecture["action_planes"] * prod(architecture["planes"][1:])
        if not ((places >= 0) & (places < count) & (places == np.floor(places))).all():
            raise BadPolicyFile(f"tensor {_PLACES} holds something else than whole numbers below {count}")


def _shapes(architecture: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    layers = {MLP: _mlp_layers, WINDOWS: _windows_layers, TOWER: _tower_layers}[architecture["type"]]
    for layer, shape in layers(architecture):
        yield f"{layer}.weight", shape
        yield f"{layer}.bias", shape[:1]
    if architecture.get("action_planes"):
        yield _PLACES, (architecture["actions"],)


def _mlp_layers(architecture: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    widths = [architecture["observation_size"], *architecture["hidden"]]
    for layer, (wide, narrow) in enumerate(pairwise(widths)):
        yield f"trunk.{layer}", (narrow, wide)
    for number in range(architecture.get("residual", 0)):
        yield f"blocks.{number}.first", (widths[-1], widths[-1])
        yield f"blocks.{number}.second", (widths[-1], widths[-1])
    yield "actor", (architecture["actions"], widths[-1])
    yield "critic", (1, widths[-1])


def _windows_layers(architecture: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    (planes, height, width), filters, side = (architecture[name] for name in ("planes", "filters", "side"))
    places = (height - side + 1) * (width - side + 1)
    scalars = architecture["observation_size"] - planes * height * width
    yield "windows", (filters, planes, side, side)
    if scalars:
        yield "scalars", (filters, scalars)
    yield from _mlp_layers({**architecture, "observation_size": filters * places})


def _tower_layers(architecture: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    (planes, height, width), channels = architecture["planes"], architecture["channels"]
    policy, value, hidden = architecture["heads"]
    scalars, squeezed = architecture["observation_size"] - planes * height * width, architecture["squeeze_excite"]
    yield "stem", (channels, planes, 3, 3)
    if scalars:
        yield "scalars", (channels, scalars)
    for number in range(architecture["blocks"]):
        yield f"blocks.{number}.first", (channels, channels, 3, 3)
        yield f"blocks.{number}.second", (channels, channels, 3, 3)
        if squeezed:
            yield f"blocks.{number}.squeeze", (squeezed, channels)
            yield f"blocks.{number}.excite", (channels, squeezed)
    yield "policy_planes", (policy, channels, 1, 1)
    kinds = architecture.get("action_planes")
    yield "actor", (kinds, policy, 1, 1) if kinds else (architecture["actions"], policy * height * width)
    yield "value_planes", (value, channels, 1, 1)
    yield "value_hidden", (hidden, value * height * width)
    yield "critic", (1, hidden)
