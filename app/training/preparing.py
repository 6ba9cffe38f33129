"""From shards to what an update reads."""

from collections.abc import Sequence

import torch

from app.config import PpoSettings
from app.core import derive_seed
from app.games import Symmetry
from app.policy import Policy
from app.store import Shard
from app.training.samples import Samples, make_samples
from app.training.symmetry import oriented


def prepare(
    shards: Sequence[Shard],
    settings: PpoSettings,
    symmetries: Sequence[Symmetry],
    policy: Policy,
    seed: int,
    *,
    normalise: bool = True,
) -> Samples:
    """Return the shards' rows with their advantages, seen in the game's mirrors where the settings say so.

    ``policy`` is the one that played them. Raises ``UnfinishedEpisode``.
    """
    samples = make_samples(shards, settings.gamma, settings.gae_lambda, normalise=normalise)
    if not settings.symmetries:
        return samples
    return oriented(samples, symmetries, policy, torch.Generator().manual_seed(derive_seed(seed, "symmetries")))
