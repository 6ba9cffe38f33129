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
from typing import Any, ClassVar

from app.controllers.controller import Controller
from app.controllers.state import States
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
    handles,
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


Rows = Mapping[str, ModelsRow]


class ModelLifecycleCoordinator(Controller):
    """Owns which model is current."""

    name: ClassVar[str] = "ModelLifecycleCoordinator"
    row: ClassVar[type[ModelsRow]] = ModelsRow
    emits: ClassVar[frozenset[type[Payload]]] = frozenset(
        {EvaluationRequested, ModelPromoted, PromotionRejected, ModelRolledBack}
    )

    @handles(TrainingCompleted)
    def trained(self, rows: Rows, event: Event[TrainingCompleted], states: States) -> Step[ModelsRow]:
        """Take up the candidate."""
        candidate = Candidate(model=event.data.model, parent=event.data.parent, step=event.data.step)
        return Step({event.subject: (rows.get(event.subject) or FIRST).replace(candidate=candidate)})

    @handles(EvaluationCompleted)
    def evaluated(self, rows: Rows, event: Event[EvaluationCompleted], states: States) -> Step[ModelsRow]:
        """Judge the candidate: its gauntlet opens the gate, gate games decide."""
        row, data = rows.get(event.subject) or FIRST, event.data
        candidate = row.candidate
        if candidate is None or candidate.model != data.model or data.purpose not in {"rating", "gate"}:
            return Step()
        if data.purpose == "gate":
            match, players = data.results[0], self.settings.config(event.subject).players
            if not candidate.plays_gate(data.model) or len(match.rotations) != rotation_outcomes(players):
                return Step()
            if row.current and match.opponent_model != row.current.model:
                return self._another_round(event, row, candidate)  # it says nothing about the current champion
            return self._judged(event, row, candidate.after(match, players))
        rated = candidate.replace(rating_id=event.id, elo=data.elo, elo_stderr=data.elo_stderr)
        if row.current is None:
            return self._promote(event.subject, row, rated, _evidence(rated, "no model before it", 0, 0))
        if candidate.parent != row.current.model:
            return self._reject(event.subject, row, rated, _evidence(rated, "not trained from the current model", 0, 0))
        return self._another_round(event, row, rated)

    @handles(EvaluationFailed)
    def evaluation_failed(self, rows: Rows, event: Event[EvaluationFailed], states: States) -> Step[ModelsRow]:
        """Play gate games again."""
        row, data = rows.get(event.subject) or FIRST, event.data
        if data.purpose == "gate" and row.candidate and row.candidate.plays_gate(data.model):
            return self._another_round(event, row, row.candidate)
        return Step()

    @handles(RegressionDetected)
    def regressed(self, rows: Rows, event: Event[RegressionDetected], states: States) -> Step[ModelsRow]:
        """Roll back after a regression that is bad enough."""
        data = event.data
        if SEVERITIES.index(data.severity) < SEVERITIES.index(self.settings.feedback.lifecycle.rollback_at):
            return Step()
        reason = f"{data.severity} regression by {data.elo_drop:.0f} Elo"
        return self._roll_back(event, rows.get(event.subject) or FIRST, data.model, data.last_good, reason)

    @handles(RollbackRequested)
    def rollback_requested(self, rows: Rows, event: Event[RollbackRequested], states: States) -> Step[ModelsRow]:
        """Roll back to the model before."""
        return self._roll_back(event, rows.get(event.subject) or FIRST, event.data.model, None, event.data.reason)

    @handles(ModelPromoted)
    def promoted(self, rows: Rows, event: Event[ModelPromoted], states: States) -> Step[ModelsRow]:
        """Adopt an operator's promotion."""
        row, newest = rows.get(event.subject) or FIRST, Promoted(model=event.data.model, step=event.data.step)
        return self._adopted(event, row, _with(row.promoted, newest))

    @handles(ModelRolledBack)
    def rolled_back(self, rows: Rows, event: Event[ModelRolledBack], states: States) -> Step[ModelsRow]:
        """Adopt an operator's rollback."""
        row, target = rows.get(event.subject) or FIRST, Promoted(model=event.data.to_model, step=event.data.step)
        return self._adopted(event, row, _up_to(row.promoted, target))

    def _adopted(self, event: Event[Any], row: ModelsRow, promoted: tuple[Promoted, ...]) -> Step[ModelsRow]:
        """Adopt what was decided elsewhere, and have it rated; own decisions were taken in when they were taken."""
        if row.current and row.current.model == promoted[-1].model:
            return Step()
        return Step({event.subject: ModelsRow(promoted=promoted)}, (self._rating(event, promoted[-1]),))

    def _roll_back(
        self, event: Event[Any], row: ModelsRow, model: ModelHash, last_good: ModelHash | None, reason: str
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

    def _rating(self, event: Event[Any], promoted: Promoted) -> Emission:
        """Ask for rating games of their own: the same model may be rated several times."""
        seed = derive_seed(self.settings.seed, event.subject, "current", event.id)
        request = EvaluationRequested(purpose="rating", model=promoted.model, step=promoted.step, seed=seed)
        return Emission(request)

    def _judged(self, event: Event[Any], row: ModelsRow, candidate: Candidate) -> Step[ModelsRow]:
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

    def _another_round(self, event: Event[Any], row: ModelsRow, candidate: Candidate) -> Step[ModelsRow]:
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
