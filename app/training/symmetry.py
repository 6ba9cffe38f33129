"""Experience seen in a mirror: a game's symmetries turn each position into others that are worth the same."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.games import Symmetry
from app.training.samples import Samples


def oriented(samples: Samples, symmetries: Sequence[Symmetry], generator: torch.Generator) -> Samples:
    """Return each sample as it is or as one of its images, drawn evenly; copies.

    The log-probability stays that of the action as it was played, since the original drew it: PPO's ratio is then the
    importance weight of the image, and its clip lets the policy approach an image until it treats it like the original.
    So the KL divergence of an update includes the policy's asymmetry. The policy's own log-probability of the image
    would hide that, and makes policies collapse (ADR-022).
    """
    if not symmetries:
        return samples
    drawn = torch.randint(len(symmetries) + 1, (len(samples),), generator=generator)
    obs, mask, action = samples.obs.clone(), samples.mask.clone(), samples.action.clone()
    for number, symmetry in enumerate(symmetries):
        rows = (drawn == number).nonzero().squeeze(1)
        obs[rows] = obs[rows][:, _index(symmetry.observation)]
        mask[rows] = mask[rows][:, _index(symmetry.action)]
        action[rows] = _index(symmetry.image)[action[rows]]
    return replace(samples, obs=obs, mask=mask, action=action)


def _index(permutation: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(permutation))
