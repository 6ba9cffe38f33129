"""ModelLifecycleCoordinator: which model is current. Promotion by GSPRT, rollback on severe regressions.

A candidate first plays its gauntlet, which rates it; then gate games against the current model, kept apart from the
rating games, until the sequential test decides. It counts rotations: what the games of one opening or deal, the
candidate in each seat, come to together (the pentanomial model with two players). A candidate that was not trained from
the current model is refused: its base has been replaced or rolled back meanwhile. Rolling back is idempotent: it names
the model it replaces, and a model that is no longer current is not replaced again.

What an operator decided about the current model is adopted, in the journal's order, as if it had been decided here.

A model that is current for another reason than its own promotion here is rated: one that an operator promoted has not
been, as far as is known; a model restored by a rollback is rated, as the reference of the next candidates.
"""

import operator
from collections.abc import Mapping
from typing import ClassVar

from app.controllers.controller import Controller
from app.controllers.state import FeedbackState
from app.controllers.watchdog import SEVERITIES
from app.core import Elo, EventId, ModelHash, derive_seed, gsprt_llr, rotation_outcomes, sprt_bounds, sprt_verdict
from app.events import (
    Emission,
    EvaluationCompleted,
    EvaluationFailed,
    EvaluationRequested,
    Event,
    Evidence,
    MatchResult,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    PromotionRejected,
    RegressionDetected,
    RollbackRequested,
    Row,
    Step,
    TrainingCompleted,
)

MAX_ROUNDS = 40
"""Gate rounds after which a candidate is kept out, failed ones included."""

REMEMBERED = 10
"""Promoted models that a rollback can go back to. The evaluator, who has the last as champion, knows as many."""


class Promoted(Row, frozen=True):
    """A model that was promoted."""

    model: ModelHash
    step: int


class Candidate(Row, frozen=True):
    """The model that wants to be promoted, its rating evaluation if it was played, and its gate games.

    ``rotations`` adds up those of the ``MatchResult`` of every round.
    """

    model: ModelHash
    parent: ModelHash | None
    step: int
    rating_id: EventId | None = None
    elo: Elo = Elo(0.0)
    elo_stderr: float = 0.0
    rotations: tuple[int, ...] = ()
    games: int = 0
    rounds: int = 0

    def after(self, match: MatchResult, players: int) -> "Candidate":
        """Return the candidate after another round of gate games.

        Where no opening, deal or draw made a rotation differ from another, all of them together say what one says.
        """
        before = self.rotations or (0,) * len(match.rotations)
        add = operator.add if match.distinct_games > players else _at_most_one
        summed = tuple(map(add, before, match.rotations))
        return self.replace(rotations=summed, games=self.games + match.games)

    def plays_gate(self, model: ModelHash) -> bool:
        """Return whether gate games of this model are the candidate's: it was rated, so they were asked for."""
        return self.model == model and self.rating_id is not None


class ModelsRow(Row, frozen=True):
    """One configuration's promoted models, the current one last, and its candidate."""

    promoted: tuple[Promoted, ...] = ()
    candidate: Candidate | None = None

    @property
    def current(self) -> Promoted | None:
        """The current model."""
        return self.promoted[-1] if self.promoted else None


FIRST = ModelsRow()
"""The row of a configuration without a model."""


class ModelLifecycleCoordinator(Controller[ModelsRow]):
    """Owns which model is current."""

    name: ClassVar[str] = "ModelLifecycleCoordinator"
    row: ClassVar[type[ModelsRow]] = ModelsRow
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(
        {
            TrainingCompleted,
            EvaluationCompleted,
            EvaluationFailed,
            ModelPromoted,
            ModelRolledBack,
            RegressionDetected,
            RollbackRequested,
        }
    )
    emits: ClassVar[frozenset[type[Payload]]] = frozenset(
        {EvaluationRequested, ModelPromoted, PromotionRejected, ModelRolledBack}
    )

    def step(
        self,
        rows: Mapping[str, ModelsRow],
        event: Event[Payload],
        states: Mapping[str, FeedbackState],  # noqa: ARG002 - the protocol's argument
    ) -> Step[ModelsRow]:
        """Fold one event."""
        row = rows.get(event.subject) or FIRST
        match event.data:
            case TrainingCompleted(model=model, parent=parent, step=step):
                candidate = Candidate(model=model, parent=parent, step=step)
                return Step({event.subject: row.replace(candidate=candidate)})
            case EvaluationCompleted(purpose="rating" | "gate") as data if (
                row.candidate and row.candidate.model == data.model
            ):
                return self._evaluated(event, row, row.candidate, data)
            case EvaluationFailed(purpose="gate", model=model) if row.candidate and row.candidate.plays_gate(model):
                return self._another_round(event, row, row.candidate)
            case RegressionDetected(model=model, severity=severity, last_good=last_good, elo_drop=drop):
                if SEVERITIES.index(severity) < SEVERITIES.index(self.settings.feedback.lifecycle.rollback_at):
                    return Step()
                return self._roll_back(event, row, model, last_good, f"{severity} regression by {drop:.0f} Elo")
            case RollbackRequested(model=model, reason=reason):
                return self._roll_back(event, row, model, None, reason)
            case ModelPromoted() | ModelRolledBack() as decision:
                return self._adopted(event, row, decision)
        return Step()

    def _adopted(
        self, event: Event[Payload], row: ModelsRow, decision: ModelPromoted | ModelRolledBack
    ) -> Step[ModelsRow]:
        """Take over what was decided elsewhere; its own decisions were taken in when they were taken."""
        if isinstance(decision, ModelRolledBack):
            promoted = _up_to(row.promoted, Promoted(model=decision.to_model, step=decision.step))
        else:
            promoted = _with(row.promoted, Promoted(model=decision.model, step=decision.step))
        newest = promoted[-1]
        if row.current and row.current.model == newest.model:
            return Step()
        return Step({event.subject: ModelsRow(promoted=promoted)}, (self._rating(event, newest),))

    def _roll_back(
        self, event: Event[Payload], row: ModelsRow, model: ModelHash, last_good: ModelHash | None, reason: str
    ) -> Step[ModelsRow]:
        """Go back to ``last_good`` if it is remembered, else to the one before; nothing if ``model`` is not current."""
        if row.current is None or row.current.model != model or len(row.promoted) < 2:
            return Step()
        models = [promoted.model for promoted in row.promoted[:-1]]
        index = models.index(last_good) if last_good in models else len(models) - 1
        target = row.promoted[index]
        decision = ModelRolledBack(from_model=model, to_model=target.model, step=target.step, reason=reason)
        emissions = Emission(decision), self._rating(event, target)
        return Step({event.subject: ModelsRow(promoted=row.promoted[: index + 1])}, emissions)

    def _rating(self, event: Event[Payload], promoted: Promoted) -> Emission:
        """Ask for rating games of their own: the same model may be rated several times."""
        seed = derive_seed(self.settings.seed, event.subject, "current", event.id)
        request = EvaluationRequested(purpose="rating", model=promoted.model, step=promoted.step, seed=seed)
        return Emission(request)

    def _evaluated(
        self, event: Event[Payload], row: ModelsRow, candidate: Candidate, data: EvaluationCompleted
    ) -> Step[ModelsRow]:
        if data.purpose == "gate":
            match, players = data.results[0], self.settings.config(event.subject).players
            if not candidate.plays_gate(data.model) or len(match.rotations) != rotation_outcomes(players):
                return Step()
            if row.current and match.opponent_model != row.current.model:
                return self._another_round(event, row, candidate)  # it says nothing about the current champion
            return self._judged(event, row, candidate.after(match, players))
        rating = {"rating_id": event.id, "elo": data.elo, "elo_stderr": data.elo_stderr}
        rated = candidate.replace(**rating)
        if row.current is None:
            return self._promote(event.subject, row, rated, _evidence(rated, "no model before it", 0, 0))
        if candidate.parent != row.current.model:
            return self._reject(event.subject, row, rated, _evidence(rated, "not trained from the current model", 0, 0))
        return self._another_round(event, row, rated)

    def _judged(self, event: Event[Payload], row: ModelsRow, candidate: Candidate) -> Step[ModelsRow]:
        limits = self.settings.feedback.lifecycle
        llr = gsprt_llr(candidate.rotations, limits.elo0, limits.elo1)
        verdict = sprt_verdict(llr, limits.alpha, limits.beta)
        if verdict == "continue" and candidate.games < limits.max_games:
            return self._another_round(event, row, candidate)
        rejected, accepted = sprt_bounds(limits.alpha, limits.beta)
        better = _at_least(limits.elo0)
        if verdict == "accept":
            return self._promote(event.subject, row, candidate, _evidence(candidate, better, llr, accepted))
        if verdict == "reject":
            worse = _evidence(candidate, _below(limits.elo1), -llr, -rejected)
            return self._reject(event.subject, row, candidate, worse)
        return self._reject(event.subject, row, candidate, _evidence(candidate, f"undecided: {better}", llr, accepted))

    def _another_round(self, event: Event[Payload], row: ModelsRow, candidate: Candidate) -> Step[ModelsRow]:
        key, rounds = event.subject, candidate.rounds + 1
        if rounds > MAX_ROUNDS:
            return self._reject(key, row, candidate, _evidence(candidate, f"undecided after {MAX_ROUNDS} rounds", 0, 0))
        seed = derive_seed(self.settings.seed, key, "gate", candidate.model, rounds)
        request = EvaluationRequested(purpose="gate", model=candidate.model, step=candidate.step, seed=seed)
        asked = candidate.replace(rounds=rounds)
        return Step({key: row.replace(candidate=asked)}, (Emission(request),))

    def _promote(self, key: str, row: ModelsRow, candidate: Candidate, evidence: Evidence) -> Step[ModelsRow]:
        current = row.current
        promotion = ModelPromoted(
            model=candidate.model,
            previous=current.model if current else None,
            step=candidate.step,
            elo=candidate.elo,
            evidence=evidence,
        )
        newest = Promoted(model=candidate.model, step=candidate.step)
        return Step({key: ModelsRow(promoted=_with(row.promoted, newest))}, (Emission(promotion),))

    def _reject(self, key: str, row: ModelsRow, candidate: Candidate, evidence: Evidence) -> Step[ModelsRow]:
        assert row.current is not None  # only a first model has none, and that is promoted
        rejection = PromotionRejected(
            model=candidate.model, current=row.current.model, step=candidate.step, evidence=evidence
        )
        return Step({key: row.replace(candidate=None)}, (Emission(rejection),))


def _at_least(elo: float) -> str:
    """Describe a candidate that is at least this much stronger."""
    if elo < 0:
        return f"not {-elo:g} Elo worse"
    return f"more than {elo:g} Elo better" if elo > 0 else "better"


def _below(elo: float) -> str:
    """Describe a candidate that is not this much stronger."""
    if elo > 0:
        return f"not {elo:g} Elo better"
    return f"more than {-elo:g} Elo worse" if elo < 0 else "worse"


def _at_most_one(before: int, more: int) -> int:
    return max(before, min(1, more))


def _with(promoted: tuple[Promoted, ...], newest: Promoted) -> tuple[Promoted, ...]:
    return (*(before for before in promoted if before.model != newest.model), newest)[-REMEMBERED:]


def _up_to(promoted: tuple[Promoted, ...], target: Promoted) -> tuple[Promoted, ...]:
    """Return the models up to one that somebody else went back to; of one too old to be remembered, only that."""
    models = [before.model for before in promoted]
    return promoted[: models.index(target.model) + 1] if target.model in models else (target,)


def _evidence(candidate: Candidate, statistic: str, value: float, threshold: float) -> Evidence:
    assert candidate.rating_id is not None  # gate games follow the rating games
    return Evidence(
        evaluation_id=candidate.rating_id,
        statistic=statistic,
        value=value,
        threshold=threshold,
        games=candidate.games,
        elo=candidate.elo,
        elo_stderr=candidate.elo_stderr,
    )
