"""Images of experience under a game's symmetries."""

import dataclasses

import numpy as np
import pytest
import torch

from flyball.app.config import GAMES
from flyball.app.core import ConfigKey
from flyball.app.games import open_table
from flyball.app.learning.samples import Samples, oriented

ROWS = 64


def played(key: str) -> tuple[Samples, tuple]:
    """Return positions from random play, each with a legal action."""
    table = open_table(GAMES[ConfigKey(key)], ROWS)
    slots, rng = np.arange(ROWS), np.random.default_rng(0)
    table.reset(slots, list(range(ROWS)))
    for _ in range(4):
        _, mask = table.observe(slots)
        table.step(slots, (mask * rng.random(mask.shape)).argmax(axis=1).astype(np.int32))
    obs, mask = table.observe(slots)
    action = (mask * rng.random(mask.shape)).argmax(axis=1)
    numbers = torch.arange(ROWS, dtype=torch.float32)
    samples = Samples(
        obs=torch.from_numpy(obs),
        mask=torch.from_numpy(mask),
        action=torch.from_numpy(action[:, None]),
        temperature=torch.ones((ROWS, 1)),
        log_prob=-numbers,
        value=numbers,
        advantage=numbers,
        target=numbers,
    )
    return samples, table.spec.symmetries


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize("key", ["connect_four_2p", "tic_tac_toe_2p", "breakthrough6_2p", "hex7_2p"])
def test_each_sample_becomes_itself_or_one_of_its_images_whole(key):
    samples, symmetries = played(key)
    turned = oriented(samples, symmetries, generator())
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
    samples, symmetries = played("connect_four_2p")
    before = samples.obs.clone()
    turned = oriented(samples, symmetries, generator())
    assert turned.mask.gather(1, turned.action).all()
    assert torch.equal(samples.obs, before), "the samples given are not written to"
    for field in ("temperature", "log_prob", "value", "advantage", "target"):
        assert getattr(turned, field) is getattr(samples, field)


def test_draw_depends_on_the_generator_alone():
    samples, symmetries = played("tic_tac_toe_2p")
    once, again = (oriented(samples, symmetries, generator()) for _ in range(2))
    assert all(torch.equal(getattr(once, f.name), getattr(again, f.name)) for f in dataclasses.fields(Samples))
    samples, _ = played("connect_four_2p")
    assert oriented(samples, (), generator()) is samples
