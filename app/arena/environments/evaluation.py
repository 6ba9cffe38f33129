"""Episodes in environments of the evaluation's own: nothing of a training is reset, stepped or written."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from app.evaluation import Autoreset, EpisodeSummary, EvalState, StepResult, advance, begin_episodes, summarise_episodes

Observations = Any
"""A batch of observations [N, ...], or whatever an environment's space makes of N of them."""

Actor = Callable[[Observations], NDArray[Any]]
"""Chooses the actions [N, ...] for a batch of observations."""

Watcher = Callable[[EvalState, NDArray[Any], StepResult], None]
"""Told of every step: the state before it, the actions, the result."""


class Environments(Protocol):
    """N environments that are stepped together and reset themselves."""

    @property
    def count(self) -> int:
        """N."""
        ...

    @property
    def autoreset(self) -> Autoreset:
        """When they reset themselves; see rule 4 of ``app.evaluation.episodes``."""
        ...

    def reset(self, seed: int) -> Observations:
        """Begin an episode in each, environment i seeded with ``seed`` + i; return the first observations."""
        ...

    def step(self, actions: NDArray[Any]) -> tuple[Observations, StepResult]:
        """Take a step in each; return the observations to act on next, and the result."""
        ...


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """How much is played.

    Attributes:
        episodes: of all environments together.
        seed: of the environments.
        max_steps: of each environment, over all its episodes; a step that only resets counts as well.
    """

    episodes: int
    seed: int
    max_steps: int


def evaluate_episodes(
    environments: Environments, act: Actor, plan: EpisodePlan, watch: Watcher | None = None
) -> EpisodeSummary:
    """Play episodes and sum them up. Deterministic where the environments and the actor are.

    Raises ``UnfinishedEpisodes``, ``NoEpisodes`` or ``NotFinite``.
    """
    state = begin_episodes(plan.episodes, environments.count, environments.autoreset)
    observations = environments.reset(plan.seed)
    for _ in range(plan.max_steps):
        actions = act(observations)
        observations, result = environments.step(actions)
        if watch is not None:
            watch(state, actions, result)
        state = advance(state, result)
        if state.complete:
            break
    return summarise_episodes(state)
