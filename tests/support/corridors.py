"""A tiny Gymnasium environment for tests: walk to the goal.

The reset decides how far the goal is.

Observation: the distance, one number. Actions: back, forward. Reward -1 a step. ``info``: ``dist``, ``is_success``.
Importing it registers ``Corridor-v0`` (cut off after 20 steps) and ``EndlessCorridor-v0`` (never cut off), for
instance by the id ``corridors:Corridor-v0``. ``BrokenCorridor-made-v0`` raises when it is made; others raise when they
are reset or stepped. ``TalkativeCorridor-v0`` prints each step. ``info["place"]`` is a text.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

LIMIT = 20


class Corridor(gymnasium.Env[np.ndarray, int]):
    observation_space = Box(0, 100, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, talkative: bool = False) -> None:
        self._talkative = talkative
        self._distance = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._distance = int(self.np_random.integers(1, 9))
        return self._seen(), {"dist": float(self._distance)}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._talkative:
            print("a step")  # noqa: T201
        self._distance += -1 if action == 1 else 1
        done = self._distance == 0
        return self._seen(), -1.0, done, False, {"dist": float(self._distance), "is_success": done, "place": "here"}

    def _seen(self) -> np.ndarray:
        return np.array([self._distance], dtype=np.float32)


class BrokenCorridor(Corridor):
    """An environment that raises when made, reset or stepped. Its id says when."""

    def __init__(self, broken: str) -> None:
        super().__init__()
        self._broken = broken
        self._check("made")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self._check("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._check("stepped")
        return super().step(action)

    def _check(self, when: str) -> None:
        if self._broken == when:
            raise RuntimeError(f"the floor gave way when {when}")


gymnasium.register("Corridor-v0", entry_point=Corridor, max_episode_steps=LIMIT)
gymnasium.register("TalkativeCorridor-v0", entry_point=Corridor, max_episode_steps=LIMIT, kwargs={"talkative": True})
gymnasium.register("EndlessCorridor-v0", entry_point=Corridor)
for broken in ("made", "reset", "stepped"):
    spec = {"entry_point": BrokenCorridor, "max_episode_steps": LIMIT, "kwargs": {"broken": broken}}
    gymnasium.register(f"BrokenCorridor-{broken}-v0", **spec)
