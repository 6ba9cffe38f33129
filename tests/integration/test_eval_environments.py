"""``flyball eval --env``: output, refusals, and policies of other packages. Figures agree with Stable-Baselines3."""

import json
import os
import sys
from functools import partial
from pathlib import Path
from subprocess import run

import gymnasium
import numpy as np
import pytest
import torch
from commands import Flyball, invoke, refused, succeeded
from policy_files import policy_bytes

from flyball.app.gym.evaluation import evaluate_episodes, open_environments
from flyball.app.gym.players import PolicyManifest, PolicyRequest, coded_actor, load_policy

CARTPOLE = Path(__file__).parents[1] / "support" / "policies" / "cartpole.safetensors"


@pytest.fixture
def flyball(tmp_path: Path) -> Flyball:
    return partial(invoke, "eval", run=tmp_path)


def linear(path: Path, weights: list[list[float]], environment: str = "CartPole-v1", codec: str | None = None) -> Path:
    """Write a policy of one layer."""
    weight = torch.tensor(weights)
    tensors = {"policy_head.weight": weight, "policy_head.bias": torch.zeros(len(weight))}
    path.write_bytes(
        policy_bytes(tensors, PolicyManifest(environment=environment, activation="relu", action_codec=codec))
    )
    return path


@pytest.fixture
def weak(tmp_path: Path) -> Path:
    """Return a policy that pushes to where the pole leans. The pole falls after 20 to 70 steps."""
    return linear(tmp_path / "weak.safetensors", [[0.0, 0.0, -1.0, 0.0], [0.0, 0.0, 1.0, 0.0]])


def test_a_trained_policy_holds_the_pole_up(flyball: Flyball) -> None:
    done = flyball("--env", "CartPole-v1", "--model", CARTPOLE, "--episodes", 20, "--num-envs", 4, "--seed", 5)
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(done.stdout.splitlines()) == 1
    assert told["mean_return"] > 450
    assert (told["episodes"], told["num_envs"], told["action_codec"]) == (20, 4, "greedy")
    assert len(told["model"]) == 64


def test_the_summary_has_these_fields(flyball: Flyball) -> None:
    told = json.loads(flyball("--env", "CartPole-v1", "--policy", "random", "--episodes", 2).stdout)
    assert list(told) == [
        "env", "num_envs", "autoreset", "seed", "max_steps", "policy", "model", "action_codec", "success", "device",
        "precision", "episodes", "successes", "success_rate", "success_interval", "median_steps_to_goal", "mean_return",
        "return_stderr", "mean_steps", "steps_p50_success", "return_mean_success", "return_mean_fail",
        "dist_at_end_p50",
    ]  # fmt: skip


def test_the_same_arguments_write_the_same_bytes(flyball: Flyball, weak: Path, tmp_path: Path) -> None:
    def written(seed: int, trajectory: Path) -> tuple[bytes, bytes]:
        words = ("--env", "CartPole-v1", "--model", weak, "--num-envs", 3, "--episodes", 10, "--action-codec", "sample")
        done = succeeded(flyball(*words, "--seed", seed, "--dump-trajectory", trajectory))
        return done.stdout_bytes, trajectory.read_bytes()

    first = written(1, tmp_path / "first.jsonl")
    assert first == written(1, tmp_path / "second.jsonl")
    assert first != written(2, tmp_path / "third.jsonl")


def test_a_trajectory_explains_the_summary(flyball: Flyball, weak: Path, tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    words = ("--env", "CartPole-v1", "--model", weak, "--num-envs", 3, "--episodes", 10, "--dump-trajectory", path)
    told = json.loads(flyball(*words).stdout)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert sum(row["reward"] for row in rows) / 10 == told["mean_return"]
    assert len({(row["env"], row["episode"]) for row in rows}) == 10
    assert {row["dist"] for row in rows} == {None}


@pytest.mark.parametrize("count", [1, 4, 7])
@pytest.mark.parametrize("trained", [True, False])
def test_it_agrees_with_stable_baselines3(count: int, trained: bool, weak: Path) -> None:
    """Play the same policy in the same episodes. SB3's environments reset in the same step, ours in the next."""
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    environments = open_environments("CartPole-v1", count)
    spaces = environments.observation_space, environments.action_space
    path = CARTPOLE if trained else weak

    class Predictor:
        def __init__(self) -> None:
            policy = load_policy("mlp", PolicyRequest(str(path), count, *spaces, "cpu", 0))
            self.act = coded_actor(policy, "greedy", environments.action_space, 0)

        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            return self.act(observation), state

    episodes = 10 if trained else 40
    theirs = DummyVecEnv([lambda: Monitor(gymnasium.make("CartPole-v1"))] * count)
    theirs.seed(9)
    returns, lengths = evaluate_policy(Predictor(), theirs, episodes, return_episode_rewards=True)
    ours = evaluate_episodes(environments, Predictor().act, episodes=episodes, seed=9, max_steps=100_000)
    assert ours.mean_return == np.mean(returns)
    assert ours.mean_steps == np.mean(lengths)
    assert ours.return_stderr == pytest.approx(np.std(returns, ddof=1) / episodes**0.5)
    assert trained or len(set(returns)) > 10


def test_success_and_distances_are_those_of_the_environment(flyball: Flyball, tmp_path: Path) -> None:
    walker = linear(tmp_path / "walker.safetensors", [[0.0], [1.0]], "Corridor-v0")
    words = ("--env", "corridors:Corridor-v0", "--model", walker, "--episodes", 9, "--success-key", "is_success")
    told = json.loads(flyball(*words).stdout)
    assert (told["success_rate"], told["dist_at_end_p50"], told["success"]) == (1.0, 0.0, "info.is_success")
    assert told["median_steps_to_goal"] == told["steps_p50_success"] >= 1
    assert flyball(*words[:-1], "arrived").exit_code == 2


def test_what_an_environment_prints_does_not_get_into_the_data(tmp_path: Path) -> None:
    walker = linear(tmp_path / "walker.safetensors", [[0.0], [1.0]], "Corridor-v0")
    words = ["--env", "corridors:TalkativeCorridor-v0", "--model", str(walker), "--episodes", "2"]
    done = run(
        [sys.executable, "-m", "flyball.app.cli", "eval", *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert json.loads(done.stdout)["episodes"] == 2
    assert "a step" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ((), 2, "--config KEY"),
        (("--env", "CartPole-v1", "--config", "tic_tac_toe_2p"), 2, "leave one of them out"),
        (("--env", "CartPole-v1", "--policy", "random", "--games", 5), 2, "--games goes with --config"),
        (("--config", "tic_tac_toe_2p", "--dump-trajectory", "x.jsonl"), 2, "--dump-trajectory goes with --env"),
        (("--env", "CartPole-v1"), 2, "--model FILE"),
        (("--env", "CartPole-v1", "--policy", "random", "--model", CARTPOLE), 2, "leave --model out"),
        (("--env", "CartPole-v1", "--model", "absent.safetensors"), 2, "absent.safetensors cannot be read"),
        (("--env", "CartPole-v1", "--model", __file__), 2, "test_eval_environments.py is no policy for environments"),
        (("--env", "CartPole-v1", "--model", CARTPOLE, "--action-codec", "clip"), 2, "greedy, sample or raw"),
        (("--env", "CartPole-v1", "--model", CARTPOLE, "--dump-trajectory", "/no/where.jsonl"), 2, "cannot be written"),
        (
            ("--env", "CartPole-v1", "--model", CARTPOLE, "--dump-trajectory", "/dev/full"),
            2,
            "/dev/full cannot be written",
        ),
        (("--env", "Acrobot-v1", "--model", CARTPOLE), 2, "takes 4 features; these observations have 6"),
        (("--env", "corridors:EndlessCorridor-v0", "--policy", "random"), 2, "--max-steps N"),
        (
            ("--env", "corridors:Corridor-v0", "--policy", "random", "--success-key", "place", "--num-envs", 2),
            2,
            "info['place'] is not a number",
        ),
        (("--env", "NoSuch-v0", "--policy", "random"), 4, "NoSuch"),
        (("--env", "CartPole-v1", "--policy", "rando"), 4, "Did you mean random?"),
        (("--env", "CartPole-v1", "--policy", "random", "--device", "abacus"), 2, "cpu, cuda"),
        (
            ("--env", "CartPole-v1", "--policy", "random", "--max-steps", 30, "--episodes", 50),
            1,
            "of 50 episodes ended",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(flyball: Flyball, words, code: int, why: str) -> None:
    refused(flyball(*words), code, why)


@pytest.mark.parametrize("broken", ["made", "reset", "stepped"])
def test_environment_that_raises_is_named(flyball: Flyball, broken: str) -> None:
    done = flyball("--env", f"corridors:BrokenCorridor-{broken}-v0", "--policy", "random")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"BrokenCorridor-{broken}-v0 raised RuntimeError: the floor gave way when {broken}." in done.stderr
    assert "corridors.py, line" in " ".join(done.stderr.split())


@pytest.mark.gpu
def test_a_gpu_plays_as_a_cpu_does(flyball: Flyball) -> None:
    words = ("--env", "CartPole-v1", "--model", CARTPOLE, "--episodes", 4, "--num-envs", 4)
    told = [json.loads(flyball(*words, "--device", device).stdout) for device in ("cpu", "cuda")]
    assert [one.pop("device") for one in told] == ["cpu", "cuda"]
    assert told[0]["mean_return"] == told[1]["mean_return"] == 500


@pytest.mark.parametrize("words", [("--env", "CartPole-v1", "--model", CARTPOLE), ("--config", "tic_tac_toe_2p")])
def test_a_missing_device_is_skipped_not_failed(flyball: Flyball, words, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = succeeded(flyball(*words, "--device", "cuda"))
    assert list(json.loads(done.stdout)) == ["skipped"]


def test_without_gymnasium_it_says_what_to_install(flyball: Flyball, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    refused(flyball("--env", "CartPole-v1", "--policy", "random"), 1, "pip install 'flyball[gym]'")


def test_the_random_policy_plays_any_space(flyball: Flyball) -> None:
    for name in ("CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1"):
        done = flyball("--env", name, "--policy", "random", "--episodes", 3, "--num-envs", 2, "--max-steps", 2000)
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["model"] is None


PACKAGE = """
import numpy as np

class Balancer:
    action_codec = "raw"

    def __init__(self, request):
        self.gain = float(request.source)

    def outputs(self, observations):
        return (observations[:, 2] + self.gain * observations[:, 3] > 0).astype(np.int64)
"""


def test_other_packages_bring_policies_as_entry_points(
    flyball: Flyball, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "balancing.py").write_text(PACKAGE, encoding="utf-8")
    info = tmp_path / "balancing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: balancing\nVersion: 1.0\n", encoding="utf-8")
    points = "[flyball.policies]\nbalancer = balancing:Balancer\nbroken = balancing:Absent\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    done = succeeded(flyball("--env", "CartPole-v1", "--policy", "balancer", "--model", 1.0, "--episodes", 5))
    told = json.loads(done.stdout)
    assert told["mean_return"] > 150
    assert (told["policy"], told["action_codec"], told["model"]) == ("balancer", "raw", None)
    refused(flyball("--env", "CartPole-v1", "--policy", "broken"), 2, "balancing:Absent")
