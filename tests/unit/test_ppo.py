"""The PPO update: losses, limits and determinism."""

import dataclasses

import numpy as np
import pytest
import torch

from flyball.app.config import CPU, Compute, NetworkSettings, PpoSettings
from flyball.app.core import ConfigKey, NetworkShape
from flyball.app.learning.inference import Policy
from flyball.app.learning.learner import adam_to_bytes, improve, load_adam
from flyball.app.learning.network import (
    BadParameters,
    bytes_to_parameters,
    init_policy,
    load_network,
    parameters_to_bytes,
)
from flyball.app.learning.ppo import TrainingDiverged, clipped_value_loss, losses
from flyball.app.learning.samples import Samples
from flyball.app.store import Manifest, MemoryStore, get_checkpoint, put_checkpoint

NETWORK = NetworkSettings(hidden=(16,))
SIZE, ACTIONS = 6, 5
SHAPE = NetworkShape(SIZE, ACTIONS)
SETTINGS = PpoSettings(learning_rate=3e-3, batch_size=64, epochs=2, entropy_coef=0.01, target_kl=10, max_kl=10)


def base_checkpoint():
    store, about = MemoryStore(), {"config_key": ConfigKey("tic_tac_toe_2p"), "network": NETWORK}
    manifest = Manifest(**about, obs_size=SIZE, actions=ACTIONS, step=0, parent=None, optimizer=None)
    parameters = parameters_to_bytes(init_policy(NETWORK, SHAPE, seed=5))
    return get_checkpoint(store, put_checkpoint(store, manifest, parameters, None))


def base_network():
    return load_network(NETWORK, SHAPE, init_policy(NETWORK, SHAPE, seed=5))


def on_policy(rows: int = 300, temperature: float = 1.0, seed: int = 0) -> Samples:
    """Return samples drawn from the base network itself. Their advantages are pure noise."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(rows, SIZE)).astype(np.float32)
    mask = rng.random((rows, ACTIONS)) < 0.6
    mask[np.arange(rows), rng.integers(0, ACTIONS, rows)] = True
    policy = Policy(NETWORK, SHAPE, init_policy(NETWORK, SHAPE, seed=5))
    log_probs, value = policy.forward(obs, mask, temperature)
    action = (log_probs + rng.gumbel(size=log_probs.shape)).argmax(axis=1)
    advantage = rng.normal(size=rows).astype(np.float32)
    return Samples(
        obs=torch.from_numpy(obs),
        mask=torch.from_numpy(mask),
        action=torch.from_numpy(action[:, None]),
        temperature=torch.full((rows, 1), temperature),
        log_prob=torch.from_numpy(log_probs[np.arange(rows), action]),
        value=torch.from_numpy(value.copy()),
        advantage=torch.from_numpy(advantage),
        target=torch.from_numpy(value + advantage),
    )


def learn(samples: Samples, settings: PpoSettings = SETTINGS, *, seed: int = 1, base=None, compute=CPU):
    epochs = []
    how = {"seed": seed, "compute": compute, "report": lambda number, metrics: epochs.append((number, metrics))}
    return improve(base or base_checkpoint(), samples, settings, **how), epochs


def test_value_loss_takes_the_larger_error_of_each_sample():
    """The maximum is taken for each sample, not between the means."""
    values, old, target = torch.tensor([1.0, 1.0]), torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0])
    elementwise = ((1 - 0.2) ** 2 + 1.0**2) / 2
    max_of_means = max((0 + 1) / 2, (0.8**2 + 0.2**2) / 2)
    assert elementwise != pytest.approx(max_of_means)
    assert clipped_value_loss(values, old, target, 0.2).item() == pytest.approx(elementwise)


def test_losses_agree_with_their_definitions():
    samples = on_policy(40)
    rng = np.random.default_rng(1)
    samples = dataclasses.replace(samples, log_prob=samples.log_prob + torch.from_numpy(rng.normal(0, 0.3, 40)).float())
    loss, metrics = losses(*base_network()(samples.obs), samples, SETTINGS)
    logits, values = base_network()(samples.obs)
    policy, value, entropy, kl, clipped = [], [], [], [], []
    for i in range(40):
        legal = np.flatnonzero(samples.mask[i].numpy())
        weights = np.exp(logits[i].detach().double().numpy()[legal])
        p = dict(zip(legal.tolist(), (weights / weights.sum()).tolist(), strict=True))
        ratio = p[samples.action[i].item()] / np.exp(samples.log_prob[i].item())
        a, v, old, goal = (t[i].item() for t in (samples.advantage, values, samples.value, samples.target))
        policy.append(-min(ratio * a, float(np.clip(ratio, 0.8, 1.2)) * a))
        value.append(max((v - goal) ** 2, (old + np.clip(v - old, -0.2, 0.2) - goal) ** 2))
        entropy.append(-sum(q * np.log(q) for q in p.values()))
        kl.append(ratio - 1 - np.log(ratio))
        clipped.append(not 0.8 <= ratio <= 1.2)
    expected = [np.mean(x) for x in (policy, value, entropy, kl, clipped)]
    assert 0 < expected[-1] < 1
    assert metrics.tolist() == pytest.approx(expected, abs=1e-5)
    total = expected[0] + SETTINGS.value_coef * expected[1] - SETTINGS.entropy_coef * expected[2]
    assert loss.item() == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.25])
def test_policy_before_the_first_step_is_the_one_that_played(temperature):
    """Ratios are 1 only if the update applies mask and temperature."""
    played = on_policy(temperature=temperature)
    _, metrics = losses(*base_network()(played.obs), played, SETTINGS)
    _, _, _, kl, clipped = metrics.tolist()
    assert kl == pytest.approx(0, abs=1e-6)
    assert clipped == 0


def test_illegal_actions_get_no_gradient_and_bad_legal_ones_do():
    samples = on_policy(1)
    samples = dataclasses.replace(samples, advantage=torch.tensor([-1.0]))
    network = base_network()
    loss, _ = losses(*network(samples.obs), samples, SETTINGS)
    loss.backward()
    gradient, legal = network.policy_head.bias.grad, samples.mask[0]
    assert legal.sum() > 1
    assert not gradient[~legal].any()
    assert gradient[legal].abs().min() > 0
    assert gradient[samples.action[0, 0]] > 0, "descending makes the bad action less likely"


def test_update_repeats_by_seed_and_clips_gradients():
    (first, _), (again, _), (other, _) = (learn(on_policy(), seed=seed) for seed in (1, 1, 2))
    assert (first.parameters, first.optimizer) == (again.parameters, again.optimizer)
    assert first.parameters != other.parameters
    far = dataclasses.replace(on_policy(), target=torch.full((300,), 1e4))
    settings = SETTINGS.replace(epochs=1, batch_size=300, max_grad_norm=0.5)
    result, _ = learn(far, settings)
    state = bytes_to_parameters(result.optimizer)
    moments = torch.cat([state[name].flatten() for name in state if name.startswith("exp_avg.")])
    assert moments.norm().item() == pytest.approx(0.1 * 0.5, rel=1e-3)  # (1 - beta1) x the clipped norm


def test_it_learns_which_action_pays():
    """A bandit: action 2 pays, wherever it is legal; the others cost."""
    samples = on_policy(2000)
    paid = (samples.action[:, 0] == 2).float() * 2 - 1
    samples = dataclasses.replace(samples, advantage=paid, target=paid)
    settings = SETTINGS.replace(epochs=20)
    _, before = losses(*base_network()(samples.obs), samples, settings)
    result, epochs = learn(samples, settings)
    policy = Policy(NETWORK, SHAPE, bytes_to_parameters(result.parameters))
    log_probs, _ = policy.forward(samples.obs.numpy(), samples.mask.numpy())
    legal = samples.mask[:, 2].numpy()
    assert np.exp(log_probs[legal, 2]).mean() > 0.6
    assert epochs[-1][1].value_loss < before[1].item()


def test_state_of_the_optimiser_is_carried_on_if_it_fits():
    base = base_checkpoint()
    result, _ = learn(on_policy(), base=base)
    network = base_network()
    assert adam_to_bytes(network, load_adam(network, 1e-3, result.optimizer)) == result.optimizer
    carried, _ = learn(on_policy(), base=dataclasses.replace(base, optimizer=result.optimizer))
    assert carried.parameters != result.parameters
    result, _ = learn(on_policy())
    other = NetworkSettings(hidden=(17,))
    network = load_network(other, SHAPE, init_policy(other, SHAPE, seed=1))
    with pytest.raises(BadParameters, match="no moments"):
        load_adam(network, 1e-3, result.optimizer)


def test_epochs_are_reported_and_end_above_the_target_kl():
    _, calm = learn(on_policy())
    assert [number for number, _ in calm] == [1, 2]
    bold = SETTINGS.replace(epochs=8, learning_rate=0.05, target_kl=0.02)
    result, epochs = learn(on_policy(), bold)
    assert len(epochs) < 8
    assert epochs[-1][1].approx_kl > 0.02
    assert all(metrics.approx_kl <= 0.02 for _, metrics in epochs[:-1])
    assert result.metrics == epochs[-1][1]


@pytest.mark.parametrize(
    ("complaint", "change", "field", "value"),
    [
        ("not a number", {}, "advantage", float("nan")),
        ("not a number", {}, "target", float("inf")),
        ("moved further", {"max_kl": 1e-9}, None, None),
        ("entropy", {"min_entropy": 3.0}, None, None),
    ],
)
def test_divergence_is_refused_with_metrics(complaint, change, field, value):
    samples = on_policy()
    if field:
        samples = dataclasses.replace(samples, **{field: torch.full((300,), value)})
    with pytest.raises(TrainingDiverged, match=complaint) as refused:
        learn(samples, SETTINGS.replace(**change))
    assert refused.value.hint
    assert refused.value.metrics.entropy > 0 or refused.value.metrics.entropy != refused.value.metrics.entropy


@pytest.mark.parametrize("rows", [1, 63, 65, 1000])
def test_any_number_of_rows_is_divided_into_batches(rows):
    result, epochs = learn(on_policy(rows))
    assert len(epochs) == 2
    assert result.parameters != base_checkpoint().parameters


@pytest.mark.gpu
def test_a_gpu_learns_the_same_up_to_rounding():
    (here, _), (there, _) = learn(on_policy()), learn(on_policy(), compute=Compute(device="cuda"))
    assert dataclasses.astuple(here.metrics) == pytest.approx(dataclasses.astuple(there.metrics), abs=1e-3)
