"""The policy network: initialisation, bytes and inference."""

import numpy as np
import pytest
import torch

from app.config import NetworkSettings
from app.core import NetworkShape
from app.learning.dense import ActorCritic
from app.learning.inference import NoLegalAction, Policy
from app.learning.network import BadParameters, bytes_to_parameters, init_policy

SMALL = NetworkSettings(hidden=(16, 8))
SHAPE = NetworkShape(6, 5)


def small_policy(seed: int = 1) -> Policy:
    return Policy(SMALL, SHAPE, init_policy(SMALL, SHAPE, seed))


def random_batch(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    mask = rng.random((rows, 5)) < 0.5
    mask[:, 2] = True
    return rng.random((rows, 6), dtype=np.float32), mask


def test_initial_weights_are_orthogonal_and_nearly_uniform():
    state = init_policy(NetworkSettings(hidden=(32, 32)), NetworkShape(32, 4), seed=3)
    for name, gain in (("trunk.0", 2**0.5), ("trunk.1", 2**0.5), ("policy_head", 0.01), ("value_head", 1.0)):
        weight = state[f"{name}.weight"]
        expected = gain**2 * torch.eye(len(weight))
        assert torch.allclose(weight @ weight.T, expected, atol=1e-5), name
        assert not state[f"{name}.bias"].any()
    network = ActorCritic(NetworkSettings(), NetworkShape(270, 52))
    assert sum(tensor.numel() for tensor in network.parameters()) == 109_109
    obs, mask = random_batch(50)
    log_probs, _ = small_policy().forward(obs, mask)
    uniform = -np.log(mask.sum(axis=1))
    assert np.abs(log_probs - uniform[:, None])[mask].max() < 0.1


@pytest.mark.parametrize("temperature", [0.25, 1.0, 4.0])
def test_illegal_actions_have_probability_exactly_zero(temperature):
    obs, mask = random_batch(100)
    log_probs, _ = small_policy().forward(obs, mask, temperature)
    assert np.isfinite(log_probs).all()
    assert (np.exp(log_probs)[~mask] == 0).all()
    assert np.allclose(np.exp(log_probs).sum(axis=1), 1, atol=1e-5)


def test_temperature_divides_the_logits():
    obs, mask = random_batch(20)
    mask[:] = True
    policy = small_policy()
    plain, _ = policy.forward(obs, mask)
    cold, _ = policy.forward(obs, mask, temperature=0.01)
    steep = plain.astype(np.float64) * 100
    expected = steep - np.log(np.exp(steep - steep.max(1, keepdims=True)).sum(1, keepdims=True)) - steep.max(1)[:, None]
    assert np.allclose(cold, expected, atol=1e-3)


def test_a_row_without_a_legal_action_is_refused():
    obs, mask = random_batch(4)
    mask[3] = False
    with pytest.raises(NoLegalAction, match="Row 3"):
        small_policy().forward(obs, mask)


def test_policy_is_a_snapshot_that_takes_bytes():
    state = init_policy(SMALL, SHAPE, seed=1)
    policy = Policy(SMALL, SHAPE, state)
    obs, mask = random_batch(3)
    before = policy.forward(obs, mask)
    for tensor in state.values():
        tensor.add_(1.0)
    assert np.array_equal(before[0], policy.forward(obs, mask)[0])
    obs = np.random.default_rng(0).integers(0, 2, (7, 6), dtype=np.uint8)
    mask = np.ones((7, 5), dtype=bool)
    expected = small_policy().forward(obs.astype(np.float32), mask)
    obs.flags.writeable = mask.flags.writeable = False
    for given, wanted in zip(small_policy().forward(obs, mask), expected, strict=True):
        assert np.array_equal(given, wanted)


def test_other_bytes_and_other_shapes_are_refused_with_a_hint():
    with pytest.raises(BadParameters) as refused:
        bytes_to_parameters(b"not a model")
    assert refused.value.hint
    with pytest.raises(BadParameters, match="do not fit"):
        Policy(SMALL, NetworkShape(7, 5), init_policy(SMALL, SHAPE, seed=1))
