"""``flyball eval --env``: a policy in Gymnasium environments."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import click
from numpy.typing import NDArray

from flyball.app.config import Precision
from flyball.app.core import derive_seed, writing
from flyball.app.gym.episodes import EvalState, StepResult, trajectory_rows
from flyball.app.gym.evaluation import Watcher, evaluate_episodes, open_environments
from flyball.app.gym.players import PolicyRequest, coded_actor, fingerprint, load_policy


def evaluate_environment(
    environment: str,
    *,
    policy: str,
    model: str | None,
    episodes: int,
    num_envs: int,
    seed: int,
    device: str,
    precision: Precision,
    action_codec: str | None,
    max_steps: int | None,
    success_key: str | None,
    dump_trajectory: Path | None,
) -> dict[str, Any]:
    """Play the episodes and return the summary."""
    if policy == "random" and model is not None:
        raise click.UsageError("--policy random plays without a model: leave --model out.")
    if policy == "mlp" and model is None:
        raise click.UsageError("Say which policy plays: --model FILE, --policy random, or --policy NAME.")
    with closing(open_environments(environment, num_envs, success_key)) as environments:
        if max_steps is None:
            if environments.step_limit is None:
                raise click.UsageError(f"{environment} never cuts an episode off: say how long to play, --max-steps N.")
            # an episode takes at most ``step_limit`` steps, and one more for its reset
            max_steps = -(-episodes // num_envs) * (environments.step_limit + 1)
        request = PolicyRequest(
            source=model,
            count=num_envs,
            observation_space=environments.observation_space,
            action_space=environments.action_space,
            device=device,
            precision=precision,
            seed=derive_seed(seed, "policy"),
        )
        player = load_policy(policy, request)
        codec = action_codec or player.action_codec
        actor = coded_actor(player, codec, environments.action_space, derive_seed(seed, "actions"))
        with _recording(dump_trajectory) as watch:
            summary = evaluate_episodes(
                environments, actor, episodes=episodes, seed=seed, max_steps=max_steps, watch=watch
            )
    return {
        "env": environment,
        "num_envs": num_envs,
        "autoreset": environments.autoreset,
        "seed": seed,
        "max_steps": max_steps,
        "policy": policy,
        "model": fingerprint(model),
        "action_codec": codec,
        "success": "done" if success_key is None else f"info.{success_key}",
        "device": device,
        "precision": precision,
        **summary.model_dump(mode="json"),
    }


@contextmanager
def _recording(path: Path | None) -> Iterator[Watcher | None]:
    """Open a trajectory file and yield the function that writes a step. Yields None if ``path`` is None."""
    if path is None:
        yield None
        return
    with writing(path):
        file = path.open("w", encoding="utf-8", buffering=1)  # line by line, so that a full disk shows at once

    def watch(state: EvalState, actions: NDArray[Any], result: StepResult) -> None:
        with writing(path):
            file.writelines(json.dumps(row) + "\n" for row in trajectory_rows(state, actions, result))

    try:
        yield watch
    finally:
        with suppress(OSError):  # a failed write has been reported by ``writing``
            file.close()
