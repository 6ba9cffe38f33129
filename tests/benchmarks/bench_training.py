"""Whole iterations of training against those of peers.

Rates are steps a second of processor time on one thread, games included, in one run. Run with
``pytest tests/benchmarks/bench_training.py -m benchmark -s``. PettingZoo needs the extra ``pettingzoo``, the
peer in JAX ``"jax[cpu]" pgx mctx optax``.
"""

import subprocess
import sys
from collections.abc import Callable
from statistics import median
from time import process_time
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from cleanrl_loop import cleanrl_epoch
from taking_turns import median_rates

from flyball.app.config import CPU, GAMES, PipelineSettings
from flyball.app.learning.learner import improve
from flyball.app.learning.network import bytes_to_parameters, load_network
from flyball.app.learning.samples import Samples, prepare
from flyball.app.play.players import policy_of
from flyball.app.store import Shard
from flyball.app.train.game import collect, run_game
from flyball.app.train.learning import first_policy

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]
ENVIRONMENTS, EPOCHS, BATCH = 64, 4, 256
ROUNDS = 3
AND_ITS_MEMORY = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""Runs a command and prints its peak memory in KiB. A process begins with the peak of the one that starts it."""


def iterations(key: str, games: int, game: str | None = None) -> Callable[[int], int]:
    """Return a function that does an iteration and returns its rows.

    It is an iteration of self-play with all seats recorded.
    """
    ours = Ours(key, games, game)

    def iterate(seed: int) -> int:
        rows = ours.play(seed)
        ours.learn(rows, seed)
        return rows.rows

    return iterate


class Ours:
    """Iterations from one policy."""

    def __init__(self, key: str, games: int, game: str | None = None) -> None:
        self.settings = PipelineSettings.model_validate(
            {
                "env": {"game": game},
                "collection": {"games_per_iteration": games},
                "ppo": {"epochs": EPOCHS, "batch_size": BATCH, "target_kl": 10, "max_kl": 100},
            }
        )
        self._table = run_game(GAMES[key], self.settings)
        self.base = first_policy(self._table, self.settings, 0, lambda _text: None)

    def play(self, seed: int) -> Shard:
        return collect(self._table, self.base.model, policy_of(self.base), self.settings, seed).shard

    def samples(self, rows: Shard, seed: int) -> Samples:
        return prepare([rows], self.settings.ppo, (), seed)

    def learn(self, rows: Shard, seed: int) -> None:
        samples = self.samples(rows, seed)
        improve(self.base, samples, self.settings.ppo, seed=seed, compute=CPU, report=lambda _number, _metrics: None)


def openspiels(steps: int = 16) -> Callable[[int], int]:
    """Return an iteration of OpenSpiel's own PPO on Hearts.

    Its network plays every seat, and each seat is shown as that network expects it.
    """
    from open_spiel.python.pytorch.ppo import PPO, PPOAgent
    from open_spiel.python.rl_environment import Environment
    from open_spiel.python.vector_env import SyncVectorEnv

    environments = SyncVectorEnv([Environment("hearts") for _ in range(ENVIRONMENTS)])
    size = environments.observation_spec()["info_state"][0]
    agent = PPO(
        input_shape=(size,),
        num_actions=52,
        num_players=4,
        num_envs=ENVIRONMENTS,
        steps_per_batch=steps,
        num_minibatches=steps * ENVIRONMENTS // BATCH,
        update_epochs=EPOCHS,
        agent_fn=PPOAgent,
    )

    def seen(times: list[Any]) -> list[Any]:
        """Show each table as its mover sees it.

        The agent looks at one player only, so the mover's view takes that place.
        """
        movers = [time.current_player() for time in times]
        return [
            SimpleNamespace(observations={name: [time.observations[name][mover]] for name in time.observations
                                          if name in ("info_state", "legal_actions")})
            for time, mover in zip(times, movers, strict=True)
        ]  # fmt: skip

    def iterate(_seed: int) -> int:
        times = environments.reset()
        for _ in range(steps):
            movers = [time.current_player() for time in times]
            times, rewards, done, _ = environments.step(agent.step(seen(times)), reset_if_done=True)
            agent.post_step([reward[mover] for reward, mover in zip(rewards, movers, strict=True)], done)
        agent.learn(seen(times))
        return steps * ENVIRONMENTS

    return iterate


def test_hearts_against_openspiel_s_own_ppo() -> None:
    own, peer = median_rates(iterations("hearts_4p", 100, "hearts(hands=4)"), openspiels(), rounds=ROUNDS)
    print(f"\nhearts: {own:,.0f} steps/s, OpenSpiel's PPO {peer:,.0f}, {own / peer:.0f} times")  # noqa: T201
    assert own / peer >= 30


class ConnectFour(gymnasium.Env):
    """PettingZoo's connect four, with a step for each move of either player."""

    observation_space = gymnasium.spaces.Box(0, 1, (84,))
    action_space = gymnasium.spaces.Discrete(7)

    def __init__(self) -> None:
        from pettingzoo.classic import connect_four_v3

        self._game = connect_four_v3.env()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._game.reset(seed=seed)
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        mover = self._game.agent_selection
        self._game.step(int(action))
        over = any(self._game.terminations.values())
        return self._seen(), float(self._game.rewards[mover]), over, False, {}

    def action_masks(self) -> Any:
        return self._game.observe(self._game.agent_selection)["action_mask"].astype(bool)

    def _seen(self) -> Any:
        board = self._game.observe(self._game.agent_selection)["observation"]
        return board.reshape(-1).astype(np.float32)


def test_connect_four_against_maskable_ppo_and_pettingzoo() -> None:
    sb3 = pytest.importorskip("sb3_contrib")
    pytest.importorskip(
        "pettingzoo.classic.connect_four_v3", reason="install the extra: pip install -e '.[pettingzoo]'"
    )
    from stable_baselines3.common.vec_env import DummyVecEnv

    steps = 32
    model = sb3.MaskablePPO(
        "MlpPolicy",
        DummyVecEnv([ConnectFour] * ENVIRONMENTS),
        n_steps=steps,
        batch_size=BATCH,
        n_epochs=EPOCHS,
        device="cpu",
        policy_kwargs={"net_arch": [256, 128], "activation_fn": torch.nn.ReLU},
    )

    def theirs(_seed: int) -> int:
        model.learn(steps * ENVIRONMENTS, reset_num_timesteps=False)
        return steps * ENVIRONMENTS

    own, peer = median_rates(iterations("connect_four_2p", 256), theirs, rounds=ROUNDS)
    print(f"\nconnect four: {own:,.0f} steps/s, MaskablePPO {peer:,.0f}, {own / peer:.1f} times")  # noqa: T201
    assert own / peer >= 6


def test_connect_four_against_ppo_in_jax_and_cleanrl(pgx_mctx: Any) -> None:
    """Play and learn apart: ours, PPO on pgx as two compiled programs, and CleanRL's update of our rows."""
    import pgx_ppo

    torch.set_num_threads(1)
    ours = Ours("connect_four_2p", games=512)
    parameters, manifest = bytes_to_parameters(ours.base.parameters), ours.base.manifest
    theirs = pgx_ppo.Training(pgx_mctx.layers_of(parameters), games=512, steps=16, settings=ours.settings.ppo)
    played = [ours.play(seed) for seed in range(ROUNDS + 1)]
    learner = load_network(manifest.network, manifest.shape, parameters)

    def update(seed: int) -> int:
        ours.learn(played[seed], seed)
        return played[seed].rows

    def cleanrl_update(seed: int) -> int:
        samples = ours.samples(played[seed], seed)
        for _ in range(EPOCHS):
            cleanrl_epoch(learner, samples, ours.settings.ppo)
        return played[seed].rows

    works = {
        "play": lambda seed: ours.play(seed).rows,
        "play in JAX": lambda _seed: theirs.play(),
        "update": update,
        "update in JAX": lambda _seed: theirs.learn(),
        "update by CleanRL": cleanrl_update,
    }
    rates = dict(zip(works, median_rates(*works.values(), rounds=ROUNDS), strict=True))
    print("\n" + ", ".join(f"{name} {rate:,.0f} rows/s" for name, rate in rates.items()))  # noqa: T201
    own, peer = (1 / (1 / rates[f"play{name}"] + 1 / rates[f"update{name}"]) for name in ("", " in JAX"))
    print(f"whole iterations: {own:,.0f} rows/s, {own / peer:.2f} times JAX's")  # noqa: T201
    assert all(np.isfinite(array).all() for layer in theirs.layers for array in layer)
    assert rates["update"] > rates["update by CleanRL"]


def test_large_iteration_costs_no_more_a_row_than_a_small_one() -> None:
    """Iterations of 100 and of 10 matches, each of four hands."""
    costs = {}
    for matches in (10, 100):
        iterate = iterations("hearts_4p", matches, "hearts(hands=4)")
        took, rows = [], 0
        for seed in range(ROUNDS + 1):
            began = process_time()
            rows = iterate(seed)
            took.append(process_time() - began)
        seconds = median(took[1:])
        print(f"\nan iteration of {rows:,} rows: {seconds:.2f} s of processor time")  # noqa: T201
        costs[matches] = seconds / rows
    assert costs[100] <= 1.25 * costs[10]


def test_and_its_memory(tmp_path) -> None:
    settings = ["env.game=hearts(hands=4)", "collection.games_per_iteration=100", "collection.num_iterations=1",
                "collection.opponents={self=1.0}", "collection.initial_policy=random", "ppo.epochs=4",
                "ppo.batch_size=256", "training.eval_games=100", "training.final_games=0"]  # fmt: skip
    words = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "flyball.app.cli", "train", "hearts_4p", "--output", str(tmp_path / "run"), *words]
    told = subprocess.run([sys.executable, "-c", AND_ITS_MEMORY, *command], check=True, capture_output=True, text=True)
    gigabytes = int(told.stdout) / 2**20
    print(f"\na whole run of such iterations: {gigabytes:.2f} GB")  # noqa: T201
    assert gigabytes < 1
