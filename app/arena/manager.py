"""EvaluationManager: gauntlets spread over an engine's processes, awaited or in the background.

A snapshot is played: the checkpoint that the store holds under the model's hash. Whoever trains meanwhile has its own
network, optimiser and games, and nothing here can touch them.
"""

import asyncio

from app.engine import Engine, Report, scatter
from app.evaluation import ATTEMPTS, GauntletResult, GauntletSpec

BATCH_JOB = "app.arena.job:batch"


class EvaluationManager:
    """Plays gauntlets on an engine. A batch whose process dies, hangs or fails is tried again, then written off."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def evaluate(self, spec: GauntletSpec, on_progress: Report | None = None) -> GauntletResult:
        """Play a gauntlet and sum it up. Raises ``NothingPlayed``. Cancelling stops its games.

        Args:
            spec: what to play; the same spec gives the same games, however many processes there are.
            on_progress: hears ``{"opponent", "games"}`` of each batch that is done.
        """
        parts = await scatter(
            self._engine,
            BATCH_JOB,
            spec.parts,
            on_progress=on_progress,
            deadline_seconds=spec.config.evaluation.batch_seconds,
            failures=ATTEMPTS,
        )
        return spec.gather(parts)

    def start(
        self, group: asyncio.TaskGroup, spec: GauntletSpec, on_progress: Report | None = None
    ) -> asyncio.Task[GauntletResult]:
        """Play a gauntlet in the background. The task is its future: await it, ask it, or cancel it."""
        return group.create_task(self.evaluate(spec, on_progress))
