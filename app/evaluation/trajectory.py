"""The steps of an evaluation, one by one, for looking at a policy that fails.

A trajectory file holds one JSON object a line, for every step that counts (``app.evaluation.episodes``), those of one
moment in the order of the environments::

    {"env": 0, "episode": 2, "t": 17, "action": 1, "reward": 1.0, "done": false, "trunc": false, "dist": null}

``episode`` numbers an environment's own from 0, ``t`` its steps from 0; ``action`` is what the environment was given,
a number or a list of them; ``dist`` is the distance after the step (at an episode's end that of its last observation),
null where it is not reported.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.evaluation.episodes import EvalState, StepResult

Row = dict[str, Any]


def trajectory_rows(state: EvalState, actions: NDArray[Any], result: StepResult) -> Iterator[Row]:
    """Yield the rows of one step.

    Args:
        state: before the step.
        actions: [N, ...] what the environments were given.
        result: of the step.
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
