"""Checkpoints: a model's parameters and manifest in one blob, its optimiser's state in another.

The manifest lies in the header of the parameters file, so the model's hash vouches for both, a checkpoint
appears in the store all at once, and nothing has to map a model to its manifest.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from app.config import NetworkSettings, Settings
from app.core import ConfigKey, ModelHash
from app.store.blobs import BlobStore, DamagedBlob, MissingBlob
from app.store.shard import note_of, with_note


class NoModel(DamagedBlob):
    """A blob that is something else than a model."""


class Manifest(Settings):
    """Metadata of a model: configuration, network, step and parent."""

    version: Literal[1] = 1
    config_key: ConfigKey
    network: NetworkSettings
    obs_size: int = Field(ge=1)
    actions: int = Field(ge=1)
    step: int = Field(ge=0, description="trainings since the first parameters were drawn")
    parent: ModelHash | None
    optimizer: str | None = Field(description="key of the optimiser's state")

    @model_validator(mode="after")
    def _has_a_parent_unless_first(self) -> Self:
        if (self.parent is None) != (self.step == 0):
            raise ValueError("a model has a parent exactly when its step is above 0")
        return self

    def successor(self, model: ModelHash) -> Self:
        """Return the manifest of what a training of ``model``, whose manifest this is, comes to."""
        return self.replace(step=self.step + 1, parent=model)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A stored model. ``parameters`` and ``optimizer`` are safetensors files."""

    model: ModelHash
    manifest: Manifest
    parameters: bytes
    optimizer: bytes | None


def put_checkpoint(store: BlobStore, manifest: Manifest, parameters: bytes, optimizer: bytes | None) -> ModelHash:
    """Store a model and return its hash, the SHA-256 of its parameters file with the manifest in the header.

    Args:
        store: where to.
        manifest: its ``optimizer`` is filled in here.
        parameters: a safetensors file (``app.learning.parameters_to_bytes``).
        optimizer: the optimiser's state as a safetensors file, or None before the first training.

    A process killed on the way leaves at most an unused blob of optimiser state.
    """
    key = None if optimizer is None else store.put(optimizer)
    complete = manifest.replace(optimizer=key)
    return ModelHash(store.put(with_note(parameters, complete.model_dump_json())))


def get_checkpoint(store: BlobStore, model: ModelHash, *, optimizer: bool = False) -> Checkpoint:
    """Return a model, verified; with ``optimizer``, what is needed to go on training it as well.

    Raises ``MissingBlob``, ``DamagedBlob`` when any bit of it has changed, or ``NoModel``.
    """
    parameters = store.get(model)
    manifest = manifest_of(model, parameters)
    state = store.get(manifest.optimizer) if optimizer and manifest.optimizer else None
    return Checkpoint(model=model, manifest=manifest, parameters=parameters, optimizer=state)


def delete_checkpoint(store: BlobStore, model: ModelHash) -> None:
    """Delete a model and its optimiser's state, if they are there; of a damaged model, only the model."""
    with suppress(MissingBlob, DamagedBlob):
        manifest = manifest_of(model, store.get(model))
        if manifest.optimizer:
            store.delete(manifest.optimizer)
    store.delete(model)


def manifest_of(model: ModelHash, parameters: bytes) -> Manifest:
    """Return the manifest in a parameters file, that of ``model``. Raises ``NoModel``."""
    try:
        return Manifest.model_validate_json(note_of(parameters))
    except (ValidationError, DamagedBlob) as error:
        raise NoModel(
            f"Blob {model} is intact but is no model.",
            hint="Is it a shard, or a model of another version of this program?",
        ) from error
