"""Samples per second of the PPO update, against a loop in the style of CleanRL in the same run, on one thread.

The work is a seed-sized iteration: 20,800 rows of Hearts' shape, the default network, batches of 256.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.distributions import Categorical

from app.config import NetworkSettings, PpoSettings
from app.policy import init_policy, load_network
from app.training import Samples
from app.training.optimizer import VectorAdam
from app.training.ppo import update

ROWS, OBS_SIZE, ACTIONS, ROUNDS = 20_800, 270, 52, 5
SETTINGS = PpoSettings(batch_size=256, epochs=1, target_kl=10, max_kl=10)


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_samples() -> Samples:
    rng = np.random.default_rng(0)
    mask = torch.from_numpy(rng.random((ROWS, ACTIONS)) < 0.25)
    mask[:, 0] = True
    floats = torch.from_numpy(rng.normal(0, 0.3, (4, ROWS)).astype(np.float32))
    return Samples(
        obs=torch.from_numpy(rng.random((ROWS, OBS_SIZE), dtype=np.float32)),
        mask=mask,
        action=torch.zeros((ROWS, 1), dtype=torch.int64),
        temperature=torch.ones((ROWS, 1)),
        log_prob=-mask.sum(dim=1).log(),
        value=floats[0],
        advantage=floats[1],
        target=floats[2],
    )


def network():
    settings = NetworkSettings()
    return load_network(settings, OBS_SIZE, ACTIONS, init_policy(settings, OBS_SIZE, ACTIONS, seed=1))


def ours(samples: Samples) -> None:
    learner = network()
    optimizer = VectorAdam(learner, 1e-3, None)
    update(
        learner,
        optimizer,
        samples,
        SETTINGS,
        generator=torch.Generator().manual_seed(1),
        report=lambda epoch, metrics: None,
    )


def cleanrl_style(samples: Samples) -> None:
    """One epoch as CleanRL's ppo.py does it, with masked logits and with the value loss clipped."""
    learner = network()
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-3, eps=1e-5)
    indices, clipped = np.arange(ROWS), []
    np.random.default_rng(1).shuffle(indices)
    for start in range(0, ROWS, SETTINGS.batch_size):
        rows = indices[start : start + SETTINGS.batch_size]
        logits, values = learner(samples.obs[rows])
        policy = Categorical(logits=torch.where(samples.mask[rows], logits, torch.tensor(-1e8)))
        log_ratio = policy.log_prob(samples.action[rows, 0]) - samples.log_prob[rows]
        ratio = log_ratio.exp()
        with torch.no_grad():
            ((ratio - 1) - log_ratio).mean()
            clipped.append(((ratio - 1).abs() > 0.2).float().mean().item())
        advantage = samples.advantage[rows]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()
        old, target = samples.value[rows], samples.target[rows]
        near = old + (values - old).clamp(-0.2, 0.2)
        value_loss = torch.max((values - target) ** 2, (near - target) ** 2).mean()
        loss = policy_loss - 0.02 * policy.entropy().mean() + 0.5 * value_loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 0.5)
        optimizer.step()


def seconds(work: Callable[[Samples], None], samples: Samples) -> float:
    begun = time.perf_counter()
    work(samples)
    return time.perf_counter() - begun


@pytest.mark.benchmark
def test_the_update_is_faster_than_a_cleanrl_style_loop(capsys):
    samples = make_samples()
    for work in (ours, cleanrl_style):
        work(samples)  # the first run pays for memory and kernels
    pairs = [(seconds(ours, samples), seconds(cleanrl_style, samples)) for _ in range(ROUNDS)]
    ratio = statistics.median(theirs / own for own, theirs in pairs)
    own, theirs = (ROWS / statistics.median(times) for times in zip(*pairs, strict=True))
    with capsys.disabled():
        print(f"\nlearner: {own:,.0f} samples/s, CleanRL style {theirs:,.0f}, ratio {ratio:.2f}")  # noqa: T201
    assert ratio >= 1.1
