"""SelfplayScheduler: which configuration plays next, on which worker, with which model.

The rule, for now: a configuration whose current model lacks fresh rows has one request out, and a new one follows
the moment its result arrives; requests go round the workers. Requests wait in each worker's queue in the order of
the journal, so every configuration is served in turn.
"""

from collections.abc import Mapping
from typing import ClassVar

from app.core import EventId, ModelHash, derive_id, derive_seed
from app.events import (
    ClockTick,
    Emission,
    EvaluationFailed,
    Event,
    ModelDistributed,
    Payload,
    PromotionRejected,
    QualityDegraded,
    QualityScoreUpdated,
    SelfplayFailed,
    SelfplayRequested,
    Step,
    TrainingFailed,
    Value,
)
from app.feedback.controller import Controller
from app.feedback.state import FeedbackState

RETRY_US = 60_000_000
"""A request that brought nothing for so long is written off and repeated."""


class SelfplayRow(Value):
    """What the scheduler knows of one configuration."""

    model: ModelHash
    fresh_rows: int
    requests: int
    outstanding: EventId | None
    requested_us: int


class SelfplayScheduler(Controller[SelfplayRow]):
    """Asks for games until the current model has enough fresh rows for a training."""

    name: ClassVar[str] = "SelfplayScheduler"
    row: ClassVar[type[SelfplayRow]] = SelfplayRow
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(
        {
            ModelDistributed,
            QualityScoreUpdated,
            QualityDegraded,
            SelfplayFailed,
            PromotionRejected,
            TrainingFailed,
            EvaluationFailed,
            ClockTick,
        }
    )
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({SelfplayRequested})

    def step(
        self,
        rows: Mapping[str, SelfplayRow],
        event: Event[Payload],
        states: Mapping[str, FeedbackState],  # noqa: ARG002
    ) -> Step[SelfplayRow]:
        """Fold one event."""
        if isinstance(event.data, ClockTick):
            return self._retry_stale(rows, event)
        row = self._updated(rows.get(event.subject), event.data)
        if row is None:
            return Step()
        return self._ask({event.subject: row}, event)

    def _updated(self, row: SelfplayRow | None, data: Payload) -> SelfplayRow | None:
        """Return the row as the event leaves it, or nothing when the event changes nothing."""
        match data:
            case ModelDistributed():
                requests = row.requests if row else 0
                return SelfplayRow(model=data.model, fresh_rows=0, requests=requests, outstanding=None, requested_us=0)
            case QualityScoreUpdated() if row and data.shard.model == row.model:
                usable = data.score >= self.settings.min_quality
                fresh = row.fresh_rows + (data.shard.rows if usable else 0)
                return _answered(row, data.request_id, fresh)
            case QualityDegraded() | SelfplayFailed() if row and row.outstanding == data.request_id:
                # The next tick repeats it: a failure that comes back must not spin.
                return row.model_copy(update={"requested_us": 0})
            case PromotionRejected() | TrainingFailed() | EvaluationFailed() if row:
                return row.model_copy(update={"fresh_rows": 0})
        return None

    def _ask(self, changed: dict[str, SelfplayRow], event: Event[Payload]) -> Step[SelfplayRow]:
        """Request games for each changed row that lacks fresh rows and has no request out."""
        rows, emissions = dict(changed), list[Emission]()
        for key, row in changed.items():
            if row.outstanding is None and row.fresh_rows < self.settings.config(key).rows_per_training:
                request = derive_id(self.name, event.id, len(emissions))
                emissions.append(Emission(self._request(key, row), key))
                rows[key] = row.model_copy(
                    update={
                        "outstanding": request,
                        "requests": row.requests + 1,
                        "requested_us": event.recorded_us,
                    }
                )
        return Step(rows, tuple(emissions))

    def _request(self, key: str, row: SelfplayRow) -> SelfplayRequested:
        config, workers = self.settings.config(key), self.settings.selfplay_workers
        turn = derive_seed(0, key) + row.requests
        return SelfplayRequested(
            worker=workers[turn % len(workers)],
            model=row.model,
            opponents=(),
            games=config.selfplay.games_per_request,
            seed=derive_seed(self.settings.seed, key, "selfplay", row.requests),
            temperature=config.selfplay.temperature,
        )

    def _retry_stale(self, rows: Mapping[str, SelfplayRow], event: Event[Payload]) -> Step[SelfplayRow]:
        stale = {
            key: row.model_copy(update={"outstanding": None})
            for key, row in rows.items()
            if row.outstanding is not None and event.recorded_us - row.requested_us >= RETRY_US
        }
        return self._ask(stale, event)


def _answered(row: SelfplayRow, request_id: EventId, fresh_rows: int) -> SelfplayRow:
    outstanding = None if row.outstanding == request_id else row.outstanding
    return row.model_copy(update={"outstanding": outstanding, "fresh_rows": fresh_rows})
