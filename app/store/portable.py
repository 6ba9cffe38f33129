"""Models as files that somebody names: checkpoints, and portable policies, which stand for the same checkpoint."""

from pathlib import Path

import numpy as np
from pydantic import ValidationError
from safetensors.numpy import load, save

from app.config import NetworkSettings
from app.core import ModelHash, UnusableFile, reading, writing
from app.portable import FORMATS, BadPolicyFile, PortablePolicy, read_policy, write_policy
from app.store.blobs import key_of
from app.store.checkpoints import Checkpoint, Manifest, NoModel, manifest_of
from app.store.shard import with_note

_HEADS = {"actor": "policy_head", "critic": "value_head"}
_NAMES = {f"{ours}.{part}": f"{theirs}.{part}" for ours, theirs in _HEADS.items() for part in ("weight", "bias")}
_THEIRS = {theirs: ours for ours, theirs in _NAMES.items()}


class UnusablePolicy(UnusableFile):
    """A file that holds no model, or has the name of none."""


def export_checkpoint(checkpoint: Checkpoint, path: Path) -> PortablePolicy:
    """Write a model as ``.npz`` or ``.json`` and return what was written; see ``app.portable``.

    Raises ``UnusablePolicy`` for another suffix, or ``UnusableFile``.
    """
    manifest = checkpoint.manifest
    tensors = {_THEIRS.get(name, name): tensor for name, tensor in load(checkpoint.parameters).items()}
    lineage = manifest.model_dump(mode="json", include={"step", "parent", "optimizer"})
    try:
        policy = PortablePolicy(manifest.config_key, checkpoint.model, tensors, lineage)
        with writing(path):
            write_policy(path, policy)
    except BadPolicyFile as error:
        raise UnusablePolicy(f"{error}.", hint="Name the file POLICY.npz or POLICY.json.") from error
    return policy


def read_model(path: Path) -> bytes:
    """Return the parameters file of the model in a file: a checkpoint, or a policy that was exported from one.

    Raises ``UnusablePolicy``, or ``UnusableFile`` where it cannot be read.
    """
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
    """Return the checkpoint's parameters file that a policy was exported from, byte for byte.

    Raises ``UnusablePolicy``, or ``UnusableFile`` where it cannot be read.
    """
    try:
        with reading(path):
            policy = read_policy(path)
    except BadPolicyFile as error:
        raise UnusablePolicy(f"{error}.", hint="flyball export writes such files.") from error
    tensors = {_NAMES.get(name, name): np.ascontiguousarray(tensor) for name, tensor in policy.tensors.items()}
    try:
        manifest = Manifest(
            config_key=policy.game,  # type: ignore[arg-type]  # checked by the model
            network=NetworkSettings(hidden=policy.hidden),
            obs_size=policy.observation_size,
            actions=policy.actions,
            **policy.lineage,
        )
    except (TypeError, ValidationError) as error:
        raise UnusablePolicy(
            f"{path} is of no checkpoint of ours ({error}).", hint="Export the policy again."
        ) from error
    data = with_note(save(tensors), manifest.model_dump_json())
    if key_of(data) != policy.model:
        raise UnusablePolicy(
            f"{path} says that it is model {policy.model}, and its content is another.", hint="Export the policy again."
        )
    return data
