"""Shares of worker time over time, by configuration, with the part of each that evaluations took."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball.app.controllers.state import States, WorkerTime
from flyball.app.core import SECOND_US, ConfigKey

MOST_MOMENTS = 240
"""Moments at which the worker time is noted. With more, every second one is dropped."""

FIRST_STEP_US = 5 * SECOND_US
"""Least time between the first moments; it doubles whenever moments are dropped."""

LEAST_WINDOW_US = 60 * SECOND_US
"""Shortest time over which a share is measured: a job counts when it ends, so that shorter ones would be noise."""

WINDOWS = 30
"""Windows in a long run."""

MOST_SHOWN = 12
"""Configurations with a colour of their own; where there are more, the last colour is that of all others."""

OTHERS = "{} others"


class Moment(NamedTuple):
    """Worker time of each configuration since the beginning."""

    time_us: int
    spent: Mapping[str, WorkerTime]


class WorkerShares:
    """Worker time by configuration, noted at moments that are spread evenly over the run.

    Attributes:
        due_us: when the next moment is due, microseconds since 1970 UTC.
    """

    def __init__(self) -> None:
        self._moments: list[Moment] = []
        self._step_us, self.due_us = FIRST_STEP_US, 0

    def take(self, time_us: int, states: States) -> None:
        """Note the worker time of all configurations, if a moment is due."""
        if time_us < self.due_us:
            return
        self._moments.append(Moment(time_us, {key: state.worker_time for key, state in states.items()}))
        if len(self._moments) > MOST_MOMENTS:
            del self._moments[1::2]
            self._step_us *= 2
        self.due_us = time_us + self._step_us

    @property
    def tag(self) -> str:
        """Changes with the noted moments."""
        return f"{len(self._moments)} {self.due_us}"

    def to_json(self, keys: Sequence[ConfigKey]) -> dict[str, Any]:
        """Return the shares of configurations for JSON.

        ``x`` are times in seconds since 1970, ``groups`` the configurations, each with its share of the worker time of
        all at those times (``share``) and the part of it that evaluations took (``evaluation``), and the same for the
        whole time as ``mean_share`` and ``mean_evaluation``.
        """
        groups = self._groups(keys)
        if len(self._moments) < 2:
            return {"x": [], "groups": []}
        spent, evaluation = (
            np.array([[sum(_spent(moment, keys, what)) for _, keys in groups] for moment in self._moments], dtype=float)
            for what in ("total", "evaluation")
        )
        times = np.array([moment.time_us for moment in self._moments])
        window = max(LEAST_WINDOW_US, (times[-1] - times[0]) // WINDOWS)
        before = np.maximum(0, np.searchsorted(times, times - window, side="right") - 1)[1:]
        of_all = (spent[1:] - spent[before]).sum(axis=1, keepdims=True)
        share, evaluated = (_parts(part[1:] - part[before], of_all) for part in (spent, evaluation))
        mean, mean_evaluated = (_parts(part[-1], spent[-1].sum()) for part in (spent, evaluation))
        return {
            "x": [round(float(time) / SECOND_US, 1) for time in times[1:]],
            "groups": [
                {
                    "name": name,
                    "share": share[:, at].tolist(),
                    "evaluation": evaluated[:, at].tolist(),
                    "mean_share": float(mean[at]),
                    "mean_evaluation": float(mean_evaluated[at]),
                }
                for at, (name, _) in enumerate(groups)
            ],
        }

    def _groups(self, keys: Sequence[ConfigKey]) -> list[tuple[str, Sequence[ConfigKey]]]:
        """Return names and configurations of what is shown: those with most worker time, and all others together."""
        if len(keys) <= MOST_SHOWN or not self._moments:
            return [(key, (key,)) for key in keys]
        spent = dict(zip(keys, _spent(self._moments[-1], keys, "total"), strict=True))
        first = sorted(keys, key=lambda key: spent[key], reverse=True)[: MOST_SHOWN - 1]
        shown, others = ([key for key in keys if (key in first) == is_first] for is_first in (True, False))
        return [*((key, (key,)) for key in shown), (OTHERS.format(len(others)), others)]


def _spent(moment: Moment, keys: Sequence[ConfigKey], what: str) -> list[float]:
    return [getattr(moment.spent[key], what) if key in moment.spent else 0.0 for key in keys]


def _parts(seconds: NDArray[Any], of_all: NDArray[Any]) -> NDArray[Any]:
    """Return shares, 0 where no time was spent, with four digits."""
    shares: NDArray[Any] = np.divide(seconds, of_all, out=np.zeros_like(seconds), where=of_all > 0)
    return shares.round(4)
