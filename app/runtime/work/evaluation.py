"""The evaluator: plays each new model's gauntlet and rates it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from app.config import GameConfig
from app.core import Elo, FlyballError, ModelHash
from app.evaluation import ANCHOR, ATTEMPTS, GauntletSpec, Opponent, OpponentScore, performance_rating, plan_gauntlet
from app.events import (
    Cause,
    CheckpointAdded,
    CheckpointRetired,
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
from app.league import League, fold_league
from app.runtime.work.anchors import Known, anchors, known_ratings
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

    Of the league only the members are known here, not what they have played.

    Usually one waits. An operator's comes on top: it must not displace the one that a candidate's verdict depends on.
    """

    promoted: tuple[RatedModel, ...] = ()
    league: League = League()
    pending: tuple[EvaluationPending, ...] = ()

    @property
    def cause(self) -> Cause | None:
        """What the oldest request is about."""
        return self.pending[0].cause if self.pending else None


class Evaluator(QuietWorker[EvaluationRequested]):
    """Runs ``app.arena.job:batch`` for batches of games: see ``plan_gauntlet`` for the opponents."""

    name: ClassVar[str] = "Evaluator"
    row: ClassVar[type[Champions]] = Champions
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(
        {
            CheckpointAdded,
            CheckpointRetired,
            EvaluationCompleted,
            EvaluationFailed,
            EvaluationRequested,
            ModelPromoted,
            ModelRolledBack,
        }
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
            case CheckpointAdded() | CheckpointRetired():
                changed = {"league": fold_league(row.league, event, self.settings.league.admission)}
            case _:
                return Step()
        return Step({event.subject: _without_idle_gates(row.model_copy(update=changed))})

    def jobs(self, rows: Mapping[str, Champions]) -> Iterable[EvaluationJob]:
        """Return the pending requests, oldest first."""
        pending = [(one, row) for row in rows.values() for one in row.pending]
        for one, row in sorted(pending, key=lambda found: found[0].cause.recorded_us):
            yield self._job(one.cause, one.request, row)

    def _job(self, cause: Cause, request: EvaluationRequested, row: Champions) -> EvaluationJob:
        config = self.settings.config(cause.subject or "")
        league = row.league.with_baselines(config.builtins)
        opponents = _opponents(request, row.promoted, league, config)
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
                "ratings": {
                    **known_ratings(league),
                    **{rated.model: (rated.elo, rated.stderr) for rated in row.promoted},
                },
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
        ratings: Mapping[str, Known] = job.context["ratings"]
        known = [ratings.get(match["opponent_model"] or match["opponent"]) for match in result["results"]]
        results = tuple(
            _match(match, rating and rating[0]) for match, rating in zip(result["results"], known, strict=True)
        )
        rated = ((match, rating) for match, rating in zip(results, known, strict=True) if rating is not None)
        elo, stderr = performance_rating(
            [OpponentScore(Elo(elo), match.score.mean, match.games, error) for match, (elo, error) in rated]
        )
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


def _opponents(
    request: EvaluationRequested, promoted: tuple[RatedModel, ...], league: League, config: GameConfig
) -> tuple[Opponent, ...]:
    """Return whom a model plays: at the gate only the champion, else that and all who rate it."""
    champion, settings = promoted[-1] if promoted else None, config.evaluation
    candidates = [("champion", champion.model), ("recent", promoted[0].model)] if champion else []
    if request.purpose == "gate":
        gate = plan_gauntlet(request.model, candidates[:1], (), settings, config.players)
        return tuple(opponent for opponent in gate if opponent.model is not None)
    taken = {model for _, model in candidates}
    elo = champion.elo if champion else None
    found = anchors(league, request, elo, taken, settings.anchors)
    candidates += [(f"{ANCHOR}{number}", model) for number, model in enumerate(found, 1)]
    return plan_gauntlet(request.model, candidates, config.builtins, settings, config.players)


def _match(match: Json, elo: float | None) -> MatchResult:
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
