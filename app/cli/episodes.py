"""``flyball eval --env``: a policy in Gymnasium environments."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from numpy.typing import NDArray

from app.core import derive_seed, writing
from app.gym.codecs import CodedPolicy, PolicyRequest
from app.gym.episodes import EvalState, StepResult, trajectory_rows
from app.gym.evaluation import EpisodePlan, GymnasiumEnvironments, Watcher, evaluate_episodes, open_environments
from app.gym.players import fingerprint, load_policy


@dataclass(frozen=True, slots=True)
class EnvironmentRequest:
    """Options of the command."""

    environment: str
    policy: str
    model: str | None
    episodes: int
    num_envs: int
    seed: int
    device: str
    action_codec: str | None
    max_steps: int | None
    success_key: str | None
    trajectory: Path | None


def evaluate_environment(request: EnvironmentRequest) -> dict[str, Any]:
    """Play the episodes and return the summary.

    Raises:
        MissingGymnasium: it is not installed.
        UnknownEnvironment, UnknownPolicy: nothing is called so.
        BadPolicy, BadEnvironment, UnsuitedCodec: they do not go together.
        UnfinishedEpisodes, NotFinite: the episodes have no summary.
    """
    _check_model(request)
    environments = open_environments(request.environment, request.num_envs, request.success_key)
    try:
        max_steps = request.max_steps or _steps_needed(request, environments)
        asked = PolicyRequest(
            source=request.model,
            count=request.num_envs,
            observation_space=environments.observation_space,
            action_space=environments.action_space,
            device=request.device,
            seed=derive_seed(request.seed, "policy"),
        )
        policy = load_policy(request.policy, asked)
        codec = request.action_codec or policy.action_codec
        actor = CodedPolicy(policy, codec, environments.action_space, derive_seed(request.seed, "actions"))
        plan = EpisodePlan(request.episodes, request.seed, max_steps)
        with _recording(request.trajectory) as watch:
            summary = evaluate_episodes(environments, actor, plan, watch)
    finally:
        environments.close()
    return {
        "env": request.environment,
        "num_envs": request.num_envs,
        "autoreset": environments.autoreset,
        "seed": request.seed,
        "max_steps": max_steps,
        "policy": request.policy,
        "model": fingerprint(request.model),
        "action_codec": codec,
        "success": "done" if request.success_key is None else f"info.{request.success_key}",
        "device": request.device,
        **summary.model_dump(mode="json"),
    }


def _check_model(request: EnvironmentRequest) -> None:
    if request.policy == "random" and request.model is not None:
        raise click.UsageError("--policy random plays without a model: leave --model out.")
    if request.policy == "mlp" and request.model is None:
        raise click.UsageError("Say which policy plays: --model FILE, --policy random, or --policy NAME.")


def _steps_needed(request: EnvironmentRequest, environments: GymnasiumEnvironments) -> int:
    """Return the steps within which all episodes have ended, whatever happens: its limit bounds each of them."""
    if environments.step_limit is None:
        raise click.UsageError(f"{request.environment} never cuts an episode off: say how long to play, --max-steps N.")
    most = -(-request.episodes // request.num_envs)
    return most * (environments.step_limit + 1)  # and a step for the reset


@contextmanager
def _recording(path: Path | None) -> Iterator[Watcher | None]:
    """Give what writes every step into a trajectory file, None without one."""
    if path is None:
        yield None
        return
    with writing(path):
        file = path.open("w", encoding="utf-8", buffering=1)  # line by line: a full disk is told where it is written

    def watch(state: EvalState, actions: NDArray[Any], result: StepResult) -> None:
        with writing(path):
            file.writelines(json.dumps(row) + "\n" for row in trajectory_rows(state, actions, result))

    try:
        yield watch
    finally:
        with suppress(OSError):  # of what could not be written the line has told
            file.close()
