"""The evaluator: plays each new model's gauntlet and rates it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from app.core import FlyballError, ModelHash
from app.evaluation import ATTEMPTS, GauntletSpec, OpponentScore, performance_rating, plan_gauntlet
from app.events import (
    Cause,
    EvaluationCompleted,
    EvaluationFailed,
    EvaluationProgress,
    EvaluationRequested,
    Event,
    MatchResult,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    Step,
    Value,
)
from app.runtime.work.worker import Job, Json, QuietWorker

EvaluationJob = Job[EvaluationRequested]
LONG_GAMES = 1000
"""An evaluation of more games than this tells of its progress."""

REMEMBERED = 6
"""Promoted models kept as opponents; the oldest of them is the 'recent snapshot'."""


class RatedModel(Value):
    """A model that was current once, and the rating it was promoted with."""

    model: ModelHash
    elo: float
    stderr: float


class EvaluationPending(Value):
    """A request that waits for its result."""

    cause: Cause
    request: EvaluationRequested


class Champions(Value):
    """One configuration's row: its latest current models, newest last, and the requests that wait, oldest first.

    Usually one waits. An operator's comes on top: it must not displace the one that a candidate's verdict depends on.
    """

    promoted: tuple[RatedModel, ...] = ()
    pending: tuple[EvaluationPending, ...] = ()

    @property
    def cause(self) -> Cause | None:
        """What the oldest request is about."""
        return self.pending[0].cause if self.pending else None


class Evaluator(QuietWorker[EvaluationRequested]):
    """Runs ``app.arena.job:batch`` for batches of games against the random bot, the champion and a recent snapshot."""

    name: ClassVar[str] = "Evaluator"
    row: ClassVar[type[Champions]] = Champions
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(
        {EvaluationRequested, EvaluationCompleted, EvaluationFailed, ModelPromoted, ModelRolledBack}
    )
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({EvaluationCompleted, EvaluationFailed, EvaluationProgress})

    def step(self, rows: Mapping[str, Champions], event: Event[Payload]) -> Step[Champions]:
        """Take up requests, drop those that have their result, remember who was promoted."""
        row = rows.get(event.subject, Champions())
        changed: dict[str, object]
        match event.data:
            case EvaluationRequested() as request:
                changed = {"pending": (*row.pending, EvaluationPending(cause=event.cause, request=request))}
            case EvaluationCompleted(request_id=done) | EvaluationFailed(request_id=done):
                changed = {"pending": tuple(one for one in row.pending if one.cause.id != done)}
            case ModelRolledBack(to_model=model):
                changed = {"promoted": _up_to(row.promoted, model)}
            case ModelPromoted(model=model, elo=elo, evidence=evidence):
                others = tuple(rated for rated in row.promoted if rated.model != model)
                changed = {
                    "promoted": (*others, RatedModel(model=model, elo=elo, stderr=evidence.elo_stderr))[-REMEMBERED:]
                }
            case _:
                return Step()
        return Step({event.subject: _without_idle_gates(row.model_copy(update=changed))})

    def jobs(self, rows: Mapping[str, Champions]) -> Iterable[EvaluationJob]:
        """Return the pending requests, oldest first."""
        pending = [(one, row.promoted) for row in rows.values() for one in row.pending]
        for one, promoted in sorted(pending, key=lambda found: found[0].cause.recorded_us):
            yield self._job(one.cause, one.request, promoted)

    def _job(self, cause: Cause, request: EvaluationRequested, promoted: tuple[RatedModel, ...]) -> EvaluationJob:
        config = self.settings.config(cause.subject or "")
        champion = promoted[-1].model if promoted else None
        recent = promoted[0].model if promoted else None
        opponents = plan_gauntlet(request.model, champion, recent, config.evaluation, config.players)
        if request.purpose == "gate":
            opponents = tuple(opponent for opponent in opponents if opponent.model == champion)
        spec = GauntletSpec(
            store=Path(self.place.store), config=config, model=request.model, opponents=opponents, seed=request.seed
        )
        return Job(
            cause,
            request,
            "app.arena.job:batch",
            spec.parts,
            gather=lambda parts: spec.gather(parts).model_dump(),
            deadline_seconds=config.evaluation.batch_seconds,
            attempts=ATTEMPTS,
            context={
                "opponents": opponents,
                "ratings": {rated.model: (rated.elo, rated.stderr) for rated in promoted},
            },
        )

    def progressed(self, job: EvaluationJob, report: Json) -> tuple[Payload, ...]:
        """Say that a batch is done, where it takes long until all are."""
        planned = sum(opponent.games for opponent in job.context["opponents"])
        if planned <= LONG_GAMES:
            return ()
        return (EvaluationProgress(request_id=job.id, model=job.request.model, planned_games=planned, **report),)

    def completed(self, job: EvaluationJob, result: Json) -> tuple[Payload, ...]:
        """Say how each match went, and which rating explains them best."""
        ratings = job.context["ratings"]
        known = [ratings.get(match["opponent_model"], (0.0, 0.0)) for match in result["results"]]
        results = tuple(_match(match, elo) for match, (elo, _) in zip(result["results"], known, strict=True))
        errors = [stderr for _, stderr in known]
        scores = [OpponentScore(m.opponent_elo, m.score.mean, m.games, e) for m, e in zip(results, errors, strict=True)]
        elo, stderr = performance_rating(scores)
        complete = EvaluationCompleted(
            request_id=job.id,
            purpose=job.request.purpose,
            model=job.request.model,
            step=job.request.step,
            results=results,
            elo=elo,
            elo_stderr=stderr,
            lost_games=result["lost_games"],
            seconds=result["seconds"],
        )
        return (complete,)

    def failed(self, job: EvaluationJob, error: FlyballError) -> tuple[Payload, ...]:
        """Say that the gauntlet could not be finished."""
        return (
            EvaluationFailed(request_id=job.id, purpose=job.request.purpose, model=job.request.model, error=str(error)),
        )


def _match(match: Json, elo: float) -> MatchResult:
    counted = {field: match[field] for field in MatchResult.model_fields if field != "opponent_elo"}
    return MatchResult.model_validate({**counted, "opponent_elo": elo})


def _without_idle_gates(row: Champions) -> Champions:
    """Drop gates at which nobody stands: an operator has promoted the candidate itself, or there is no champion yet."""
    champion = row.promoted[-1].model if row.promoted else None
    played = [
        one for one in row.pending if one.request.purpose == "rating" or champion not in (None, one.request.model)
    ]
    return row if len(played) == len(row.pending) else row.model_copy(update={"pending": tuple(played)})


def _up_to(promoted: tuple[RatedModel, ...], model: ModelHash) -> tuple[RatedModel, ...]:
    """Return the models up to the one that was gone back to; those after it are no opponents any more."""
    index = next((i for i, rated in enumerate(promoted) if rated.model == model), len(promoted) - 1)
    return promoted[: index + 1]
