"""Images of experience under a game's symmetries."""

import dataclasses

import numpy as np
import pytest
import torch

from app.config import GAMES, NetworkSettings
from app.core import ConfigKey
from app.games import open_table
from app.policy import Policy, init_policy
from app.training import Samples
from app.training.symmetry import oriented

ROWS = 64
KEY = "connect_four_2p"


def policy_of(key: str) -> Policy:
    """Return a network that has a strong opinion of every position, another one of its image."""
    spec, network = open_table(GAMES[ConfigKey(key)], 0).spec, NetworkSettings(hidden=(16,))
    parameters = init_policy(network, spec.observation_size, spec.actions, seed=4)
    parameters["policy_head.weight"] *= 300
    return Policy(network, spec.observation_size, spec.actions, parameters)


def played(key: str, temperature: float = 1.0) -> tuple[Samples, tuple]:
    """Real positions, some moves into the game, each with a legal action that the policy has taken."""
    table = open_table(GAMES[ConfigKey(key)], ROWS)
    slots, rng = np.arange(ROWS), np.random.default_rng(0)
    table.reset(slots, list(range(ROWS)))
    for _ in range(4):
        _, mask = table.observe(slots)
        table.step(slots, (mask * rng.random(mask.shape)).argmax(axis=1).astype(np.int32))
    obs, mask = table.observe(slots)
    action = (mask * rng.random(mask.shape)).argmax(axis=1)
    log_probs, values = policy_of(key).forward(obs, mask, temperature)
    numbers = torch.arange(ROWS, dtype=torch.float32)
    samples = Samples(
        obs=torch.from_numpy(obs),
        mask=torch.from_numpy(mask),
        action=torch.from_numpy(action[:, None]),
        temperature=torch.full((ROWS, 1), temperature),
        log_prob=torch.from_numpy(log_probs[slots, action]),
        value=torch.from_numpy(values.copy()),
        advantage=numbers,
        target=numbers,
    )
    return samples, table.spec.symmetries


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize("key", ["connect_four_2p", "tic_tac_toe_2p", "breakthrough6_2p", "hex7_2p"])
def test_each_sample_becomes_itself_or_one_of_its_images_whole(key):
    samples, symmetries = played(key)
    turned = oriented(samples, symmetries, policy_of(key), generator())
    seen = set()
    for row in range(ROWS):
        images = {"itself": (samples.obs[row], samples.mask[row], samples.action[row, 0])}
        for symmetry in symmetries:
            features, actions = symmetry.observation.copy(), symmetry.action.copy()
            image = int(symmetry.image[samples.action[row, 0]])
            images[symmetry.name] = (samples.obs[row][features], samples.mask[row][actions], image)
        ours = (turned.obs[row], turned.mask[row], turned.action[row, 0])
        found = {
            name
            for name, (obs, mask, action) in images.items()
            if torch.equal(obs, ours[0]) and torch.equal(mask, ours[1]) and action == ours[2]
        }
        assert found
        seen |= found
    assert seen == {"itself", *(symmetry.name for symmetry in symmetries)}


def test_actions_stay_legal_and_everything_else_stays_as_it_was():
    samples, symmetries = played(KEY)
    before = samples.obs.clone()
    turned = oriented(samples, symmetries, policy_of(KEY), generator())
    assert turned.mask.gather(1, turned.action).all()
    assert torch.equal(samples.obs, before), "the samples given are not written to"
    for field in ("temperature", "target"):
        assert getattr(turned, field) is getattr(samples, field)


@pytest.mark.parametrize("temperature", [1.0, 1.5])
def test_oriented_images_have_the_policys_own_log_probs(temperature: float) -> None:
    """Before anything is learned PPO's ratio is 1 for images too, so that none is clipped and the KL is 0."""
    samples, symmetries = played(KEY, temperature)
    policy = policy_of(KEY)
    turned = oriented(samples, symmetries, policy, generator())
    log_probs, values = policy.forward(turned.obs.numpy(), turned.mask.numpy(), temperature)
    torch.testing.assert_close(turned.log_prob, torch.from_numpy(log_probs).gather(1, turned.action).squeeze(1))
    torch.testing.assert_close(turned.value, torch.from_numpy(values))
    assert (turned.log_prob - samples.log_prob).abs().max() > 0.5, "this policy treats images otherwise"


def test_oriented_images_are_weighted_by_how_they_were_drawn() -> None:
    """So that the expected gradient is the policy's own, though the original drew the action; heavy weights are cut."""
    samples, symmetries = played(KEY)
    turned = oriented(samples, symmetries, policy_of(KEY), generator())
    weights = (turned.log_prob - samples.log_prob).exp()
    torch.testing.assert_close(turned.advantage, samples.advantage * weights.clamp(max=2.0))
    assert weights.max() > 2.0


def test_the_draw_depends_on_the_generator_alone():
    samples, symmetries = played(KEY)
    once, again = (oriented(samples, symmetries, policy_of(KEY), generator()) for _ in range(2))
    assert all(torch.equal(getattr(once, f.name), getattr(again, f.name)) for f in dataclasses.fields(Samples))


def test_a_game_without_symmetries_is_left_alone():
    samples, _ = played(KEY)
    assert oriented(samples, (), policy_of(KEY), generator()) is samples
