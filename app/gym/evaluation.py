"""Evaluation of a policy in Gymnasium environments that no training uses."""

import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flyball.app.core import FlyballError
from flyball.app.gym.episodes import (
    Autoreset,
    EpisodeSummary,
    EvalState,
    StepResult,
    advance,
    begin_episodes,
    summarise_episodes,
)

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

DIST = "dist"
"""Key of ``info`` for an environment's distance to the goal."""

_AUTORESET: dict[str, Autoreset] = {"NextStep": "next_step", "SameStep": "same_step"}


class MissingGymnasium(FlyballError):
    """Gymnasium is not installed."""


class UnknownEnvironment(FlyballError, code="unknown"):
    """An environment that cannot be made."""


class BadEnvironment(FlyballError, code="usage"):
    """An environment that raises, or lacks what an evaluation needs."""


Observations = Any
"""A batch of N observations: an array [N, ...], or as the environment's space batches them."""

Actor = Callable[[Observations], NDArray[Any]]
"""Choice of the actions [N, ...] for a batch of observations."""

Watcher = Callable[[EvalState, NDArray[Any], StepResult], None]
"""Receiver of every step: state before the step, actions, and result."""


class GymnasiumEnvironments:
    """N environments that are stepped together and reset themselves.

    Args:
        vector: Gymnasium's vector environment, with same-step or next-step autoreset.
        success_key: the key of ``info`` that reports success at an episode's end; None: ``done`` means success.

    The constructor and every method raise ``BadEnvironment``.
    """

    def __init__(self, vector: "VectorEnv[Any, Any, Any]", success_key: str | None = None) -> None:
        mode = vector.metadata.get("autoreset_mode", "NextStep")  # Gymnasium 1.0 has only NextStep, without naming it
        name = str(getattr(mode, "value", mode))
        if name not in _AUTORESET:
            raise BadEnvironment(
                f"The environments do not reset themselves ({mode}).", hint="Make them with same-step or next-step."
            )
        self._vector = vector
        self._name = str(vector.spec.id if vector.spec else vector)
        self._success = success_key
        # steps after which an episode is cut off
        self.step_limit: int | None = vector.spec.max_episode_steps if vector.spec else None
        self.autoreset: Autoreset = _AUTORESET[name]
        self.count = int(vector.num_envs)
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space

    def reset(self, seed: int) -> Any:
        """Reset all environments; return the first observations. Environment i gets the seed ``seed`` + i."""
        with _running(self._name):
            return self._vector.reset(seed=seed)[0]

    def step(self, actions: NDArray[Any]) -> tuple[Any, StepResult]:
        """Step all environments; return the next observations and the result."""
        with _running(self._name):
            observations, rewards, done, trunc, infos = self._vector.step(actions)
        done, trunc = np.asarray(done, dtype=np.bool_), np.asarray(trunc, dtype=np.bool_)
        final = infos.get("final_info", {}) if self.autoreset == "same_step" else infos
        result = StepResult(
            reward=np.asarray(rewards, dtype=np.float64),
            done=done,
            trunc=trunc,
            dist=_reported_values(infos, DIST, self.count),
            final_dist=_reported_values(final, DIST, self.count),
            success=None if self._success is None else self._success_values(self._success, final, done | trunc),
        )
        return observations, result

    def close(self) -> None:
        """Release the resources of the environments."""
        with _running(self._name):
            self._vector.close()

    def _success_values(self, key: str, infos: dict[str, Any], ended: NDArray[np.bool_]) -> NDArray[np.bool_]:
        reported = _reported_values(infos, key, self.count)
        if ended.any() and (reported is None or np.isnan(reported[ended]).any()):
            raise BadEnvironment(
                f"An episode ended and its info has no {key!r}.",
                hint="Name a key that is there at the end of every episode, or leave --success-key out.",
            )
        return np.zeros(self.count, dtype=np.bool_) if reported is None else np.nan_to_num(reported) != 0


def open_environments(name: str, count: int, success_key: str | None = None) -> GymnasiumEnvironments:
    """Return ``count`` new environments with the id ``name``, in this process.

    Raises ``MissingGymnasium``, ``UnknownEnvironment`` or ``BadEnvironment``.
    """
    try:
        import gymnasium
    except ImportError as error:
        raise MissingGymnasium("Gymnasium is not installed.", hint="pip install 'flyball[gym]'") from error
    module, _, plain = name.rpartition(":")
    try:
        with _running(name, gymnasium.error.Error, ImportError):
            if module:
                import_module(module)
            mode = "sync" if gymnasium.spec(plain).entry_point is not None else "vector_entry_point"
            vector = gymnasium.make_vec(plain, num_envs=count, vectorization_mode=mode)
    except (gymnasium.error.Error, ImportError) as error:
        raise UnknownEnvironment(
            f"The environment {name!r} cannot be made: {str(error).rstrip('.')}.",
            hint="Write an id that is registered, or module:id for one that a module of yours registers.",
        ) from error
    return GymnasiumEnvironments(vector, success_key)


@contextmanager
def _running(name: str, *expected: type[Exception]) -> Iterator[None]:
    """Run an environment's code; unexpected exceptions become ``BadEnvironment``."""
    try:
        yield
    except expected:
        raise
    except Exception as error:
        frame = extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error}".rstrip(": .")
        raise BadEnvironment(
            f"The environment {name} raised {what}.", hint=f"Look at {frame.filename}, line {frame.lineno}."
        ) from error


def _reported_values(infos: dict[str, Any], key: str, count: int) -> NDArray[np.float64] | None:
    """Return the values [N] under a key, NaN where missing.

    Return None if all environments lack the key.

    Gymnasium collects the infos in one array a key; under ``_key`` is a mask of the environments that set ``key``.

    Raises ``BadEnvironment`` where a value is not a number.
    """
    if key not in infos:
        return None
    values = np.full(count, np.nan)
    reported = np.asarray(infos.get(f"_{key}", np.ones(count)), dtype=np.bool_)
    try:
        values[reported] = np.asarray(infos[key])[reported].astype(np.float64)
    except (IndexError, TypeError, ValueError) as error:
        raise BadEnvironment(
            f"info[{key!r}] is not a number for each environment: {reprlib.repr(infos[key])}.",
            hint="--success-key names a number or a boolean; 'dist' must be a number.",
        ) from error
    return values


def evaluate_episodes(
    environments: GymnasiumEnvironments,
    act: Actor,
    *,
    episodes: int,
    seed: int,
    max_steps: int,
    watch: Watcher | None = None,
) -> EpisodeSummary:
    """Play episodes and return their summary.

    It is deterministic if the environments and the actor are.

    Args:
        environments: are all reset first.
        act: chooses the actions.
        episodes: to count, over all environments.
        seed: of the environments.
        max_steps: of each environment, over all its episodes, including steps that only reset.
        watch: is called after every step.

    Raises ``UnfinishedEpisodes`` or ``NotFinite``.
    """
    state = begin_episodes(episodes, environments.count, environments.autoreset)
    observations = environments.reset(seed)
    for _ in range(max_steps):
        actions = act(observations)
        observations, result = environments.step(actions)
        if watch is not None:
            watch(state, actions, result)
        state = advance(state, result)
        if state.complete:
            break
    return summarise_episodes(state)
