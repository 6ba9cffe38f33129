"""Specification of an evaluation's episode metrics, as a reducer.

N environments that reset themselves are stepped together. ``advance`` folds their ``StepResult`` into the counts so
far, an ``EvalState``. Tests name the rules by their numbers.

1. **End.** An episode ends with the step that sets ``done`` or ``trunc``. Its steps are those since its reset, the last
   one included. Its return is the undiscounted sum of their rewards.
2. **Success.** An episode succeeds when its last step sets ``done``, even if it sets ``trunc`` too. Where the
   environment reports success itself (``StepResult.success``), that decides instead. Every other end is a failure.
3. **Quota.** Of E episodes environment i plays (E + i) // N, fixed before the first step. Its further episodes are not
   counted. Stopping at the E-th episode that ends anywhere would favour short episodes: if successes take 10 steps,
   failures 100, and both are equally likely, 64 environments would show 32 successes in 32 episodes.
4. **Autoreset.** Under ``same_step`` the step that ends an episode returns the first observation of the next one. The
   distance of the last observation is then in ``StepResult.final_dist``. Under ``next_step`` the ending step returns
   the last observation. The step after it only resets: it takes no action, gives no reward and returns the first
   observation of the next episode. A resetting step belongs to neither episode and is not counted.
5. **Rates.** ``success_rate`` is successes / E. A state with fewer than E finished episodes has no summary: episodes
   unfinished within the steps allowed are an error that says how many, not a smaller sample.
6. **Means and medians.** ``mean_return`` is over all E episodes, ``return_mean_success`` and ``return_mean_fail`` over
   those that succeeded and failed. Medians are lower medians, ``sorted[(n - 1) // 2]``: a value that occurred.
   ``median_steps_to_goal`` (also called ``steps_p50_success``) is over successes only, ``dist_at_end_p50`` over all
   episodes.
7. **No data is None.** A mean or median over no episode is None, never 0. ``dist_at_end_p50`` is None unless every
   episode reports its last distance (NaN: not reported), because a part of the episodes may not represent all.
8. **Numbers are finite.** A NaN or infinite reward, or an infinite last distance, is an error.

Sources: Gymnasium's ``AutoresetMode``; the quota is that of Stable-Baselines3's ``evaluate_policy``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import fsum, isfinite, sqrt
from statistics import fmean, median_low
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flyball.app.config import FrozenModel
from flyball.app.core import FlyballError, Rate

Autoreset = Literal["same_step", "next_step"]
Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]
Numbers = NDArray[np.float64]
Number = TypeVar("Number", int, float)


class UnfinishedEpisodes(FlyballError):
    """Some of the requested episodes did not end (rule 5)."""


class NotFinite(FlyballError):
    """An environment returned NaN or infinity (rule 8)."""


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """Results of one step in N environments."""

    reward: Numbers  # [N]
    done: Flags  # [N] the episode terminated
    trunc: Flags  # [N] the episode was cut off
    dist: Numbers | None = None  # [N] goal distance of the returned observation; NaN: not reported, None: never
    final_dist: Numbers | None = None  # [N] the last observation's under ``same_step``; read at episode ends
    success: Flags | None = None  # [N] as the environment reports it; read at episode ends


class Episode(NamedTuple):
    """One finished episode."""

    environment: int
    success: bool
    steps: int
    reward: float  # the return: the sum of the rewards
    dist: float | None  # to the goal at the episode's end; None: not reported


@dataclass(frozen=True, slots=True, eq=False)
class EvalState:
    """Progress of an evaluation."""

    autoreset: Autoreset  # how the environments reset themselves
    requested: int  # E, the episodes to count
    owed: Counts  # [N] episodes that each environment still has to finish
    steps: Counts  # [N] steps so far of the current episodes
    reward: Numbers  # [N] returns so far of the current episodes
    resetting: Flags  # [N] whether the next step only resets, under ``next_step``
    episodes: tuple[Episode, ...] = ()  # finished and counted, in the order of their ends

    @property
    def complete(self) -> bool:
        """Return whether every environment has finished its quota."""
        return len(self.episodes) == self.requested

    @property
    def counted(self) -> Flags:
        """Mask [N] of the environments whose next step counts."""
        return (self.owed > 0) & ~self.resetting


class EpisodeSummary(FrozenModel):
    """Summary of an evaluation's episodes; rules 5 to 7 define each field."""

    episodes: int = Field(ge=1)
    successes: int = Field(ge=0)
    success_rate: float = Field(ge=0, le=1)
    success_interval: tuple[float, float] = Field(description="Wilson, 95%")
    median_steps_to_goal: int | None
    mean_return: float
    return_stderr: float | None = Field(description="of the mean return; None with one episode")
    mean_steps: float
    steps_p50_success: int | None
    return_mean_success: float | None
    return_mean_fail: float | None
    dist_at_end_p50: float | None


def begin_episodes(episodes: int, environments: int, autoreset: Autoreset) -> EvalState:
    """Return the state before the first step, with each environment's quota."""
    return EvalState(
        autoreset=autoreset,
        requested=episodes,
        owed=(episodes + np.arange(environments)) // environments,
        steps=np.zeros(environments, dtype=np.int64),
        reward=np.zeros(environments, dtype=np.float64),
        resetting=np.zeros(environments, dtype=np.bool_),
    )


def advance(state: EvalState, result: StepResult) -> EvalState:
    """Count one step of all environments. Raises ``NotFinite``."""
    live = state.counted
    if not np.isfinite(result.reward[live]).all():
        raise _not_finite("reward", result.reward, live)
    steps = state.steps + live
    reward = state.reward + np.where(live, result.reward, 0.0)
    over = result.done | result.trunc
    ended = live & over
    dist = result.final_dist if state.autoreset == "same_step" else result.dist
    last = np.full(len(ended), np.nan) if dist is None else dist
    if np.isinf(last[ended]).any():
        raise _not_finite("distance", last, ended)
    success = result.done if result.success is None else result.success
    finished = tuple(
        Episode(i, bool(success[i]), int(steps[i]), float(reward[i]), None if np.isnan(last[i]) else float(last[i]))
        for i in np.flatnonzero(ended).tolist()
    )
    return replace(
        state,
        owed=state.owed - ended,
        steps=np.where(ended, 0, steps),
        reward=np.where(ended, 0.0, reward),
        resetting=over & ~state.resetting if state.autoreset == "next_step" else state.resetting,
        episodes=state.episodes + finished,
    )


def summarise_episodes(state: EvalState) -> EpisodeSummary:
    """Return the metrics of a complete evaluation. Raises ``UnfinishedEpisodes``."""
    if not state.complete:
        short = int((state.owed > 0).sum())
        raise UnfinishedEpisodes(
            f"{len(state.episodes)} of {state.requested} episodes ended within the steps allowed; "
            f"{short} of {len(state.owed)} environments are not done.",
            hint="Allow more steps, or ask for fewer episodes.",
        )
    episodes = state.episodes
    won = [episode for episode in episodes if episode.success]
    lost = [episode for episode in episodes if not episode.success]
    rate = Rate.of(len(won), state.requested)
    mean = fmean(episode.reward for episode in episodes)
    variance = fsum((episode.reward - mean) ** 2 for episode in episodes) / max(1, len(episodes) - 1)
    steps_to_goal = lower_median([episode.steps for episode in won])
    last_dists = [episode.dist for episode in episodes if episode.dist is not None]
    return EpisodeSummary(
        episodes=len(episodes),
        successes=len(won),
        success_rate=rate.mean,
        success_interval=(rate.lower, rate.upper),
        median_steps_to_goal=steps_to_goal,
        mean_return=mean,
        return_stderr=sqrt(variance / len(episodes)) if len(episodes) > 1 else None,
        mean_steps=fmean(episode.steps for episode in episodes),
        steps_p50_success=steps_to_goal,
        return_mean_success=_mean([episode.reward for episode in won]),
        return_mean_fail=_mean([episode.reward for episode in lost]),
        dist_at_end_p50=lower_median(last_dists) if len(last_dists) == len(episodes) else None,
    )


def lower_median(values: Sequence[Number]) -> Number | None:
    """Return the lower median, a value that occurs; None without values."""
    return median_low(values) if values else None


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _not_finite(what: str, values: Numbers, where: Flags) -> NotFinite:
    index = next(i for i in np.flatnonzero(where).tolist() if not isfinite(values[i]))
    return NotFinite(
        f"Environment {index} returned the {what} {values[index]}.", hint="Correct the environment; a mean hides it."
    )


def trajectory_rows(state: EvalState, actions: NDArray[Any], result: StepResult) -> Iterator[dict[str, Any]]:
    """Yield one row for each environment whose step counts.

    The rows serve to inspect a failing policy.

    ``state`` is the state before the step. ``episode`` counts an environment's episodes from 0, ``t`` the episode's
    steps from 0. ``action`` is a number or a list of numbers. ``dist`` is the distance after the step (at an episode's
    end, the last observation's), None where it is not reported.
    """
    count = len(state.owed)
    quotas = (state.requested + np.arange(count)) // count
    for i in np.flatnonzero(state.counted).tolist():
        done, trunc = bool(result.done[i]), bool(result.trunc[i])
        last = (done or trunc) and state.autoreset == "same_step"
        dist = result.final_dist if last else result.dist
        yield {
            "env": i,
            "episode": int(quotas[i] - state.owed[i]),
            "t": int(state.steps[i]),
            "action": np.asarray(actions[i]).tolist(),
            "reward": float(result.reward[i]),
            "done": done,
            "trunc": trunc,
            "dist": None if dist is None or np.isnan(dist[i]) else float(dist[i]),
        }
