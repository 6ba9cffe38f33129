"""Checkpoints: a model's parameters and manifest, and its optimiser's state.

Parameters and manifest are in one blob, the optimiser's state is in another. The manifest lies in the header of the
parameters file. So the model's hash covers both, a checkpoint appears in the store in one step, and no index maps
models to manifests.
"""

from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator
from safetensors.numpy import load, save

from flyball.app.config import (
    DEFAULT_BACKEND,
    NETWORK_FIELDS,
    TOWER,
    WINDOWS,
    FrozenModel,
    ManifestPart,
    NetworkSettings,
    Scale,
    Width,
)
from flyball.app.core import ConfigKey, ModelHash, NetworkShape, UnusableFile, reading, writing
from flyball.app.job_specs import DistributionResult, DistributionSpec, job
from flyball.app.portable import FORMATS, LINEAGE, BadPolicyFile, PortablePolicy, read_policy, write_policy
from flyball.app.store.blobs import BlobStore, DamagedBlob, MissingBlob, key_of
from flyball.app.store.cache import CachedStore
from flyball.app.store.opening import open_store
from flyball.app.store.shard import MOST_ACTIONS, note_of, with_note

_HEADS = {"actor": "policy_head", "critic": "value_head"}
_PORTABLE_NAMES = {
    f"{theirs}.{part}": f"{ours}.{part}" for ours, theirs in _HEADS.items() for part in ("weight", "bias")
}
_OWN_NAMES = {portable: own for own, portable in _PORTABLE_NAMES.items()}
_PLACES = "action_places"  # whole numbers among the parameters, which portable policies have as floats

MOST_FEATURES = 1 << 31
"""Features of an observation, at most."""

NETWORK = "network"
"""Content of a model that is a network: its tensors are the network's parameters."""


class NoModel(DamagedBlob, code="no_model"):
    """A blob that is not a model."""


class UnusablePolicy(UnusableFile):
    """A file that holds no model, or whose suffix names no format."""


class Canary(FrozenModel):
    """Log-probabilities of fixed texts, by which a language model is recognised."""

    ids: tuple[tuple[int, ...], ...] = Field(min_length=1, description="tokens of each text")
    log_probs: tuple[tuple[float, ...], ...] = Field(description="of each token but a text's first, nats")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if [len(text) - 1 for text in self.ids] != [*map(len, self.log_probs)]:
            raise ValueError("a canary has a log-probability for each token but a text's first")
        return self


class LoraManifest(FrozenModel):
    """Shape of a low-rank adapter, and its answers to fixed texts."""

    rank: int = Field(ge=1)
    alpha: int = Field(ge=1, description="the adapter's product is scaled by alpha / rank")
    targets: tuple[str, ...] = Field(min_length=1, description="names of the adapted modules")
    canary: Canary


class Manifest(ManifestPart):
    """Metadata of a model: configuration, network, step, parent and backend."""

    later: ClassVar[frozenset[str]] = frozenset(
        {"backend", "base", "content", "planes", "scale", "action_planes", "encoding", "lora"}
    )

    version: Literal[1] = 1
    config_key: ConfigKey
    network: NetworkSettings = Field(description="of the configuration; unused where content is another")
    obs_size: int = Field(ge=1, le=MOST_FEATURES)
    actions: int = Field(ge=1, le=MOST_ACTIONS)
    step: int = Field(ge=0, description="trainings since the first parameters were drawn")
    parent: ModelHash | None
    optimizer: str | None = Field(description="key of the optimiser's state")
    backend: str = Field(DEFAULT_BACKEND, description="that made the model, as its configuration names it")
    base: str | None = Field(None, description="hash or name of a base model that this one adapts")
    content: str = Field(NETWORK, description="what the tensors are; other backends have words of their own")
    planes: tuple[Width, Width, Width] | None = Field(
        None, description="shape of the planes that the network sees, if any"
    )
    scale: Scale = Field(1.0, description="divisor of the features inside the network, or one a feature")
    action_planes: int = Field(0, ge=0, description="planes of actions that the network computes, if any")
    encoding: str = Field("", description="name of the observations that it sees, if its game has several")
    lora: LoraManifest | None = Field(None, description="of an adapter of a language model")

    @model_validator(mode="after")
    def _has_a_parent_unless_first(self) -> Self:
        if (self.parent is None) != (self.step == 0):
            raise ValueError("a model has a parent exactly when its step is above 0")
        return self

    @model_validator(mode="after")
    def _has_all_features(self) -> Self:
        if self.planes is not None and prod(self.planes) > self.obs_size:
            raise ValueError(f"planes have more cells than the {self.obs_size} features")
        if isinstance(self.scale, tuple) and len(self.scale) != self.obs_size:
            raise ValueError(f"scale has {len(self.scale)} numbers for {self.obs_size} features")
        return self

    @property
    def shape(self) -> NetworkShape:
        """Sizes of the network's inputs and outputs."""
        sizes = self.obs_size, self.actions, self.planes, self.scale, self.action_planes
        return NetworkShape(*sizes, encoding=self.encoding)

    @property
    def note(self) -> str:
        """The manifest as JSON, for the header of a parameters file."""
        return self.model_dump_json(exclude=self.left_out)

    def successor(self, model: ModelHash) -> Self:
        """Return the manifest of the next model, trained from ``model``. This manifest is that of ``model``."""
        return self.replace(step=self.step + 1, parent=model)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A stored model. ``parameters`` and ``optimizer`` are safetensors files."""

    model: ModelHash
    manifest: Manifest
    parameters: bytes
    optimizer: bytes | None


def put_checkpoint(store: BlobStore, manifest: Manifest, parameters: bytes, optimizer: bytes | None) -> ModelHash:
    """Store a model and return its hash.

    The hash is the SHA-256 of the parameters file including the manifest.

    Args:
        store: where the blobs are put.
        manifest: the model's manifest; ``optimizer`` is filled in here.
        parameters: a safetensors file (``flyball.app.learning.parameters_to_bytes``).
        optimizer: the optimiser's state as a safetensors file, or None before the first training.

    A process killed meanwhile leaves at most an unused blob of optimiser state.
    """
    key = None if optimizer is None else store.put(optimizer)
    complete = manifest.replace(optimizer=key)
    return ModelHash(store.put(with_note(parameters, complete.note)))


def get_checkpoint(store: BlobStore, model: ModelHash, *, optimizer: bool = False) -> Checkpoint:
    """Return a verified model.

    With ``optimizer``, the checkpoint also has the state that further training needs.

    Raises ``MissingBlob``, ``DamagedBlob`` when any bit of it has changed, or ``NoModel``.
    """
    parameters = store.get(model)
    manifest = manifest_of(model, parameters)
    state = store.get(manifest.optimizer) if optimizer and manifest.optimizer else None
    return Checkpoint(model=model, manifest=manifest, parameters=parameters, optimizer=state)


def delete_checkpoint(store: BlobStore, model: ModelHash) -> None:
    """Delete a model and its optimiser's state, if stored. The optimiser's state of a damaged model stays."""
    with suppress(MissingBlob, DamagedBlob):
        manifest = manifest_of(model, store.get(model))
        if manifest.optimizer:
            store.delete(manifest.optimizer)
    store.delete(model)


def manifest_of(model: ModelHash, parameters: bytes) -> Manifest:
    """Return the manifest in the parameters file of ``model``. Raises ``NoModel``."""
    try:
        return Manifest.model_validate_json(note_of(parameters))
    except (ValidationError, DamagedBlob) as error:
        raise NoModel(
            f"Blob {model} is intact but is no model.",
            hint="Is it a shard, or a model of another version of this program?",
        ) from error


def export_checkpoint(checkpoint: Checkpoint, path: Path) -> PortablePolicy:
    """Write a model as a portable policy and return the policy.

    The suffix ``.npz`` or ``.json`` names the format; see ``flyball.app.portable``.

    Raises ``UnusablePolicy`` for another suffix or a model that is no network, or ``UnusableFile``.
    """
    manifest = checkpoint.manifest
    if manifest.content != NETWORK:
        raise UnusablePolicy(
            f"Model {checkpoint.model} of backend {manifest.backend} is a {manifest.content}, and only a network can "
            "be exported.",
            hint="Read its tensors out of the store: it is a safetensors file.",
        )
    kind = manifest.network.kind
    if kind not in NETWORK_FIELDS:
        raise UnusablePolicy(
            f"Model {checkpoint.model} is a network of its own kind, {kind}, which NumPy alone cannot play.",
            hint="Export it with torch.export or with code of your own; its tensors are in the store, as safetensors.",
        )
    parameters = load(checkpoint.parameters)
    tensors = {_PORTABLE_NAMES.get(name, name): tensor.astype(np.float32) for name, tensor in parameters.items()}
    lineage = manifest.model_dump(mode="json", include=set(LINEAGE), exclude=manifest.left_out)
    try:
        policy = PortablePolicy(
            manifest.config_key, checkpoint.model, tensors, lineage, manifest.planes, manifest.scale
        )
        with writing(path):
            write_policy(path, policy)
    except BadPolicyFile as error:
        raise UnusablePolicy(f"{error}.", hint="Name the file POLICY.npz or POLICY.json.") from error
    return policy


def read_model(path: Path) -> bytes:
    """Return a checkpoint's or exported policy's parameters file. Raises ``UnusablePolicy`` or ``UnusableFile``."""
    if path.suffix in FORMATS:
        return imported_checkpoint(path)
    with reading(path):
        data = path.read_bytes()
    try:
        manifest_of(ModelHash(key_of(data)), data)
    except NoModel as error:
        raise UnusablePolicy(
            f"{path} is no model.",
            hint="What is read: a checkpoint out of a store, and what flyball export writes, .npz or .json.",
        ) from error
    return data


def imported_checkpoint(path: Path) -> bytes:
    """Rebuild the parameters file from which a policy was exported.

    The rebuilt file is equal byte for byte.

    Raises ``UnusablePolicy``, or ``UnusableFile`` when it cannot be read.
    """
    try:
        with reading(path):
            policy = read_policy(path)
    except BadPolicyFile as error:
        raise UnusablePolicy(f"{error}.", hint="flyball export writes such files.") from error
    tensors = {_OWN_NAMES.get(name, name): np.ascontiguousarray(tensor) for name, tensor in policy.tensors.items()}
    if _PLACES in tensors:
        tensors[_PLACES] = tensors[_PLACES].astype(np.int32)
    try:
        manifest = Manifest(
            config_key=policy.game,  # type: ignore[arg-type]  # checked by the model
            network=_network_of(policy),
            obs_size=policy.observation_size,
            actions=policy.actions,
            planes=policy.planes,
            scale=policy.scale,
            action_planes=policy.architecture.get("action_planes", 0),
            **policy.lineage,
        )
    except (TypeError, ValidationError) as error:
        raise UnusablePolicy(
            f"{path} is of no checkpoint of ours ({error}).", hint="Export the policy again."
        ) from error
    data = with_note(save(tensors), manifest.note)
    if key_of(data) != policy.model:
        raise UnusablePolicy(
            f"{path} says that it is model {policy.model}, and its content is another.", hint="Export the policy again."
        )
    return data


def _network_of(policy: PortablePolicy) -> NetworkSettings:
    """Return the settings of an exported network."""
    architecture = policy.architecture
    if policy.planes is None:
        return NetworkSettings(hidden=policy.hidden, residual=architecture.get("residual", 0))
    if "filters" in architecture:
        residual = architecture.get("residual", 0)
        return NetworkSettings(kind=WINDOWS, filters=architecture["filters"], hidden=policy.hidden, residual=residual)
    squeezed = bool(architecture["squeeze_excite"])
    sizes = {name: architecture[name] for name in ("blocks", "channels")}
    head = {"policy_head": "planes"} if "action_planes" in architecture else {}
    return NetworkSettings.model_validate({"kind": TOWER, **sizes, "squeeze_excite": squeezed, **head})


@job
def distribute(spec: DistributionSpec, report: object) -> DistributionResult:  # noqa: ARG001 - every job's signature
    """Verify a model, then delete the models to discard (a job).

    The optimiser's state is verified, too. Raises ``MissingBlob`` or ``DamagedBlob``; then nothing is deleted.
    """
    store = open_store(spec.store)
    if isinstance(store, CachedStore):
        store.cache.pin(spec.needed)
        if spec.model is not None:
            store.cache.remove(spec.model)  # the store's own copy is verified, because other nodes read it
    if spec.model is not None:
        get_checkpoint(store, spec.model, optimizer=True)
    for model in spec.discard:
        delete_checkpoint(store, model)
    return DistributionResult(model=spec.model)
