"""Policies for environments, written as ``flyball.app.gym.players`` reads them."""

from torch import Tensor

from flyball.app.gym.players import PolicyManifest
from flyball.app.learning.network import parameters_to_bytes
from flyball.app.store import with_note


def policy_bytes(parameters: dict[str, Tensor], manifest: PolicyManifest) -> bytes:
    """Return a perceptron's file; the same content gives the same bytes."""
    return with_note(parameters_to_bytes(parameters), manifest.model_dump_json())
