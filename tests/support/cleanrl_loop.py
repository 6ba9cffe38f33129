"""One epoch of PPO as in CleanRL's ppo.py. Logits are masked, and the value loss is clipped."""

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from flyball.app.config import PpoSettings
from flyball.app.learning.samples import Samples


def cleanrl_epoch(learner: nn.Module, samples: Samples, settings: PpoSettings) -> None:
    """Train ``learner`` in place, with a new optimiser. The samples are on its device."""
    optimizer = torch.optim.Adam(learner.parameters(), lr=settings.learning_rate, eps=1e-5)
    indices, clipped = np.arange(len(samples)), []
    np.random.default_rng(1).shuffle(indices)
    for start in range(0, len(samples), settings.batch_size):
        rows = indices[start : start + settings.batch_size]
        logits, values = learner(samples.obs[rows])
        policy = Categorical(logits=torch.where(samples.mask[rows], logits, -1e8))
        log_ratio = policy.log_prob(samples.action[rows, 0]) - samples.log_prob[rows]
        ratio = log_ratio.exp()
        with torch.no_grad():
            ((ratio - 1) - log_ratio).mean()
            clipped.append(((ratio - 1).abs() > settings.clip_epsilon).float().mean().item())
        advantage = samples.advantage[rows]
        low, high = 1 - settings.clip_epsilon, 1 + settings.clip_epsilon
        policy_loss = torch.max(-advantage * ratio, -advantage * ratio.clamp(low, high)).mean()
        old, target = samples.value[rows], samples.target[rows]
        near = old + (values - old).clamp(-settings.clip_epsilon, settings.clip_epsilon)
        value_loss = torch.max((values - target) ** 2, (near - target) ** 2).mean()
        loss = policy_loss - settings.entropy_coef * policy.entropy().mean() + settings.value_coef * value_loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learner.parameters(), settings.max_grad_norm)
        optimizer.step()
