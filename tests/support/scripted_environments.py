"""Environments whose episodes are written down beforehand, as they look under either kind of autoreset."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from app.gym.episodes import Autoreset, StepResult


class Script(NamedTuple):
    """One episode: its rewards, how it ends, and the distance to the goal after its last step."""

    rewards: tuple[float, ...]
    done: bool = True
    trunc: bool = False
    dist: float = 0.0


RESET_DIST = 777.0  # of the first observation of an episode: nobody should take it for the end of one
ON_THE_WAY = 555.0


class Seen(NamedTuple):
    reward: float
    done: bool
    trunc: bool
    dist: float
    final_dist: float


def seen_by(script: Script, autoreset: Autoreset) -> Iterator[Seen]:
    """Yield what one environment returns while it plays a script, and the reset that follows it."""
    for reward in script.rewards[:-1]:
        yield Seen(reward, False, False, ON_THE_WAY, np.nan)
    last = script.rewards[-1]
    if autoreset == "same_step":
        yield Seen(last, script.done, script.trunc, RESET_DIST, script.dist)
    else:
        yield Seen(last, script.done, script.trunc, script.dist, np.nan)
        yield Seen(0.0, False, False, RESET_DIST, np.nan)


def steps_of(scripts: Sequence[Iterable[Script]], autoreset: Autoreset) -> Iterator[StepResult]:
    """Yield the steps of as many environments as there are lists of scripts, until one has no more episodes."""
    streams = [(seen for script in own for seen in seen_by(script, autoreset)) for own in scripts]
    for together in zip(*streams, strict=False):
        columns = [np.array(column) for column in zip(*together, strict=True)]
        yield StepResult(columns[0].astype(np.float64), *columns[1:])
