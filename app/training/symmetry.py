"""Experience seen in a mirror: a game's symmetries turn each position into others that are worth the same."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.games import Symmetry
from app.policy import Policy, masked_log_probs
from app.training.samples import Samples

MOST_WEIGHT = 2.0
"""Bounds the variance of an image's weight: a policy that sees mirrors alike has weights near 1."""


def oriented(samples: Samples, symmetries: Sequence[Symmetry], policy: Policy, generator: torch.Generator) -> Samples:
    """Return the samples, each as it is or as one of its images, drawn evenly; nothing that was given is changed.

    An image has the log-probability p and the value that ``policy``, which played, gives to the image itself, so that
    PPO's ratio starts from 1: with the original's log-probability q, images would be clipped for how the network sees
    mirrors, and the KL divergence would count it as a change. But its action was drawn by q. So its advantage is
    weighted by p / q, as where the proximal policy is not the one that played (Hilton et al. 2022). Without the
    weight, actions that are rare under p are pushed down as often as q draws them, and the policy collapses.
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
    images = (drawn < len(symmetries)).nonzero().squeeze(1)
    outputs = torch.from_numpy(policy.outputs(obs[images].numpy()))
    logits, values = outputs[:, : policy.actions] / samples.temperature[images], outputs[:, policy.actions]
    own = masked_log_probs(logits, mask[images]).gather(1, action[images]).squeeze(1)
    weight = (own - samples.log_prob[images]).exp().clamp(max=MOST_WEIGHT)
    log_prob, value, advantage = samples.log_prob.clone(), samples.value.clone(), samples.advantage.clone()
    log_prob[images], value[images] = own, values
    advantage[images] *= weight
    return replace(samples, obs=obs, mask=mask, action=action, log_prob=log_prob, value=value, advantage=advantage)


def _index(permutation: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(permutation))
