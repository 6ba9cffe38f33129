"""Train the tests' CartPole policy by the cross-entropy method.

Run it with ``python tests/support/train_cartpole.py``. It writes ``tests/support/policies/cartpole.safetensors``; the
same versions of NumPy and Gymnasium write the same file.
"""

from pathlib import Path

import numpy as np
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from policy_files import policy_bytes

from app.gym.players import PolicyManifest

PATH = Path(__file__).parent / "policies" / "cartpole.safetensors"
HIDDEN, OBSERVATION, ACTIONS = 8, 4, 2
SIZES = (HIDDEN * OBSERVATION, HIDDEN, ACTIONS * HIDDEN, ACTIONS)
POPULATION, TRIALS, ELITE, GENERATIONS, STEPS = 64, 4, 8, 25, 500


def unpacked(flat: np.ndarray) -> list[np.ndarray]:
    """Return weight, bias, weight, bias of each candidate [..., size]."""
    first, bias, second, last = np.split(flat, np.cumsum(SIZES)[:-1], axis=-1)
    lead = flat.shape[:-1]
    return [first.reshape(*lead, HIDDEN, OBSERVATION), bias, second.reshape(*lead, ACTIONS, HIDDEN), last]


def lengths(candidates: np.ndarray, seed: int) -> np.ndarray:
    """Return the mean steps for which each candidate holds the pole up.

    The candidates are [C, size]. An episode has at most ``STEPS`` steps.
    """
    first, bias, second, last = unpacked(np.repeat(candidates, TRIALS, axis=0))
    environments = CartPoleVectorEnv(num_envs=len(first), max_episode_steps=STEPS + 1)
    observations, _ = environments.reset(seed=seed)
    alive, steps = np.ones(len(first), dtype=bool), np.zeros(len(first))
    for _ in range(STEPS):
        hidden = np.tanh(np.einsum("nij,nj->ni", first, observations) + bias)
        logits = np.einsum("nij,nj->ni", second, hidden) + last
        observations, _, done, _, _ = environments.step(logits.argmax(axis=1))
        steps += alive
        alive &= ~done
    return steps.reshape(len(candidates), TRIALS).mean(axis=1)


def train(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mean, deviation = np.zeros(sum(SIZES)), np.ones(sum(SIZES))
    for generation in range(GENERATIONS):
        candidates = mean + deviation * rng.standard_normal((POPULATION, len(mean)))
        scores = lengths(candidates, seed + generation * POPULATION * TRIALS)
        elite = candidates[np.argsort(scores)[-ELITE:]]
        mean, deviation = elite.mean(axis=0), elite.std(axis=0) + 0.1
        print(f"generation {generation}: best {scores.max():.0f}, mean {scores.mean():.0f}")  # noqa: T201
    return mean


def main() -> None:
    first, bias, second, last = (torch.from_numpy(array).float() for array in unpacked(train()))
    tensors = {"trunk.0.weight": first, "trunk.0.bias": bias, "policy_head.weight": second, "policy_head.bias": last}
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_bytes(policy_bytes(tensors, PolicyManifest(environment="CartPole-v1", activation="tanh")))


if __name__ == "__main__":
    main()
