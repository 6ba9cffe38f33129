"""Environments with scripted episodes, under either kind of autoreset."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from flyball.app.gym.episodes import Autoreset, StepResult


class Script(NamedTuple):
    """One episode: its rewards, its end, and the final distance.

    ``dist`` is the distance to the goal after the last step.
    """

    rewards: tuple[float, ...]
    done: bool = True
    trunc: bool = False
    dist: float = 0.0


RESET_DIST = 777.0  # of an episode's first observation; it must not be mistaken for the distance at an end
ON_THE_WAY = 555.0


class Seen(NamedTuple):
    reward: float
    done: bool
    trunc: bool
    dist: float
    final_dist: float


def seen_by(script: Script, autoreset: Autoreset) -> Iterator[Seen]:
    """Yield what an environment returns for a script and the next reset."""
    for reward in script.rewards[:-1]:
        yield Seen(reward, False, False, ON_THE_WAY, np.nan)
    last = script.rewards[-1]
    if autoreset == "same_step":
        yield Seen(last, script.done, script.trunc, RESET_DIST, script.dist)
    else:
        yield Seen(last, script.done, script.trunc, script.dist, np.nan)
        yield Seen(0.0, False, False, RESET_DIST, np.nan)


def steps_of(scripts: Sequence[Iterable[Script]], autoreset: Autoreset) -> Iterator[StepResult]:
    """Yield the steps of environments, one for each list of scripts.

    The steps end when an environment has no more episodes.
    """
    streams = [(seen for script in own for seen in seen_by(script, autoreset)) for own in scripts]
    for together in zip(*streams, strict=False):
        columns = [np.array(column) for column in zip(*together, strict=True)]
        yield StepResult(columns[0].astype(np.float64), *columns[1:])
