"""The PPO update against a CleanRL-style loop and Stable-Baselines3.

All run on one thread, in one run. The work is an epoch over 20,800 rows of the shape of Hearts in batches of 256. Rates
are by processor time, so that a busy machine does not decide. Run with
``pytest tests/benchmarks/bench_learner.py -m benchmark -s``.
"""

from collections.abc import Callable

import gymnasium
import numpy as np
import pytest
import torch
from cleanrl_loop import cleanrl_epoch
from taking_turns import median_rates

from flyball.app.config import NetworkSettings, PpoSettings
from flyball.app.core import NetworkShape
from flyball.app.learning.dense import ActorCritic
from flyball.app.learning.learner import load_adam
from flyball.app.learning.network import init_policy, load_network
from flyball.app.learning.ppo import losses, update
from flyball.app.learning.samples import Samples

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]
ROWS, OBS_SIZE, ACTIONS, ROUNDS = 20_800, 270, 52, 5
SHAPE = NetworkShape(OBS_SIZE, ACTIONS)
NETWORK = NetworkSettings()
SETTINGS = PpoSettings(batch_size=256, epochs=1, entropy_coef=0.02, target_kl=10, max_kl=10)


@pytest.fixture(scope="module")
def samples() -> Samples:
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
        advantage=floats[1] / floats[1].std(),
        target=floats[2],
    )


def network() -> ActorCritic:
    return load_network(NETWORK, SHAPE, init_policy(NETWORK, SHAPE, seed=1))


def ours(samples: Samples) -> ActorCritic:
    learner = network()
    optimizer = load_adam(learner, SETTINGS.learning_rate, None)
    generator = torch.Generator().manual_seed(1)
    update(learner, optimizer, samples, SETTINGS, generator=generator, report=lambda epoch, metrics: None)
    return learner


def cleanrl_style(samples: Samples) -> ActorCritic:
    learner = network()
    cleanrl_epoch(learner, samples, SETTINGS)
    return learner


def compare(own: Callable[[], object], peer: Callable[[], object]) -> tuple[float, float]:
    """Return the median rates of two works, in rows a second."""

    def rows(work: Callable[[], object]) -> int:
        work()
        return ROWS

    first, second = median_rates(lambda _: rows(own), lambda _: rows(peer), rounds=ROUNDS)
    return first, second


def test_the_update_is_faster_than_a_cleanrl_style_loop(samples):
    own, peer = compare(lambda: ours(samples), lambda: cleanrl_style(samples))
    print(f"\nlearner: {own:,.0f} samples/s, CleanRL style {peer:,.0f}, {own / peer:.2f} times")  # noqa: T201
    assert own / peer >= 1.2


def test_and_it_learns_the_same(samples):
    """Train for one epoch, which leaves the same loss. Only the order of the rows differs."""
    before, own, peer = (
        losses(*learner(samples.obs), samples, SETTINGS)[0].item()
        for learner in (network(), ours(samples), cleanrl_style(samples))
    )
    print(f"\nloss before {before:.4f}, after an epoch {own:.4f}, CleanRL style {peer:.4f}")  # noqa: T201
    assert before - own == pytest.approx(before - peer, rel=0.1)


class Rows(gymnasium.Env):
    """An environment as Stable-Baselines3 requires it.

    It is never stepped: the rows are put into the buffer of Stable-Baselines3.
    """

    observation_space = gymnasium.spaces.Box(0, 1, (OBS_SIZE,))
    action_space = gymnasium.spaces.Discrete(ACTIONS)


def test_the_update_is_faster_than_maskable_ppo(samples):
    """Use MaskablePPO of Stable-Baselines3's contributions, with the same widths."""
    sb3 = pytest.importorskip("sb3_contrib")
    from stable_baselines3.common.logger import configure

    model = sb3.MaskablePPO(
        "MlpPolicy",
        Rows(),
        n_steps=ROWS,
        batch_size=SETTINGS.batch_size,
        n_epochs=1,
        clip_range_vf=0.2,
        normalize_advantage=False,
        device="cpu",
        policy_kwargs={"net_arch": list(NETWORK.hidden), "activation_fn": torch.nn.ReLU},
    )
    model.set_logger(configure(None, []))
    buffer = model.rollout_buffer
    columns = {
        "observations": samples.obs,
        "actions": samples.action.float(),
        "values": samples.value,
        "log_probs": samples.log_prob,
        "advantages": samples.advantage,
        "returns": samples.target,
        "action_masks": samples.mask.float(),
    }

    def theirs() -> None:
        buffer.reset()
        for name, column in columns.items():
            setattr(buffer, name, column.numpy().reshape(ROWS, 1, -1) if column.ndim > 1 else column.numpy()[:, None])
        buffer.full = True
        model.train()

    own, peer = compare(lambda: ours(samples), theirs)
    print(f"\nlearner: {own:,.0f} samples/s, MaskablePPO {peer:,.0f}, {own / peer:.2f} times")  # noqa: T201
    assert own / peer >= 1.5
