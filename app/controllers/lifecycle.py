"""ModelLifecycleCoordinator: promotes models by GSPRT, and rolls back severe regressions.

A candidate's first evaluation is a gauntlet, which rates it, or a round of gate games alone; FeedbackLoopController
decides which. The games against the current model are those of the gate, in a gauntlet too, so that no game is played
twice for the same question. Further rounds follow until the sequential test decides. The test's observations are
rotations: games of one opening or deal, the candidate in each seat (with two players, the pentanomial model). A
candidate that was not trained from the current model is rejected, because its base has been replaced. A round in which
no game could be played says nothing about the candidate, so it does not count: the candidate waits, with the pauses of
``TriggerSettings``, until games can be played or an operator rejects it. A rollback is idempotent: it names the model
that it replaces, and has no effect if that model is not current. A model that cannot be read from the store is rolled
back too, to the latest champion that can.

A model that an operator promoted is rated, because it may have no rating. A model restored by a rollback is rated
again, because the next candidates are compared with it.
"""

import operator
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar

from flyball.app.controllers.controller import Controller, Watched, setting
from flyball.app.controllers.lineage import Champion, Lineage
from flyball.app.controllers.state import States, state_of
from flyball.app.controllers.watchdog import SEVERITIES, fixed_opponent
from flyball.app.core import (
    HASH_DIGITS,
    PLAYERS_OF,
    SECOND_US,
    Elo,
    EventId,
    FlyballError,
    GradedScores,
    ModelHash,
    derive_seed,
    gsprt_llr,
    rotation_outcomes,
    sprt_bounds,
    sprt_verdict,
)
from flyball.app.events import (
    Cause,
    ClockTick,
    DistributionFailed,
    Emission,
    EvaluationCompleted,
    EvaluationFailed,
    EvaluationRequested,
    Event,
    Evidence,
    MatchResult,
    ModelAdvised,
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

MOST_FAILURES = 3
"""Consecutive failed gate evaluations of a candidate that has played no game, after which a rating is tried."""

RATIO = "log of the likelihood ratio"
"""Name of the figure that decides, natural logarithm: how much likelier the games are under the conclusion."""

MAX_ROUNDS = 40
"""Gate rounds with games after which an undecided candidate is rejected."""


class Phase(Enum):
    """A candidate's phase on its way to a verdict."""

    ABSENT = "absent"  # there is no candidate
    TRAINED = "trained"  # its first evaluation is awaited
    GATING = "gating"  # a further gate evaluation is under way
    PAUSED = "paused"  # gate evaluations failed, and the next one is not due yet


Trigger = type[Payload] | tuple[type[Payload], str]
"""An event type; of evaluations, with their purpose."""

RATED, GATE_PLAYED = (EvaluationCompleted, "rating"), (EvaluationCompleted, "gate")
GATE_FAILED = (EvaluationFailed, "gate")
CURRENT_REPLACED: Mapping[Trigger, frozenset[Phase]] = dict.fromkeys(
    (ModelPromoted, ModelRolledBack, RegressionDetected, RollbackRequested, DistributionFailed),
    frozenset({Phase.ABSENT}),
)
TRANSITIONS: Mapping[Phase, Mapping[Trigger, frozenset[Phase]]] = {
    Phase.ABSENT: {
        TrainingCompleted: frozenset({Phase.TRAINED}),
        **CURRENT_REPLACED,
    },
    Phase.TRAINED: {
        TrainingCompleted: frozenset({Phase.TRAINED}),
        RATED: frozenset({Phase.GATING, Phase.ABSENT}),
        GATE_PLAYED: frozenset({Phase.GATING, Phase.ABSENT}),
        GATE_FAILED: frozenset({Phase.GATING}),
        PromotionRejected: frozenset({Phase.ABSENT}),
        **CURRENT_REPLACED,
    },
    Phase.GATING: {
        TrainingCompleted: frozenset({Phase.TRAINED}),
        RATED: frozenset({Phase.GATING, Phase.ABSENT}),
        GATE_PLAYED: frozenset({Phase.GATING, Phase.ABSENT}),
        GATE_FAILED: frozenset({Phase.GATING, Phase.PAUSED, Phase.TRAINED}),
        PromotionRejected: frozenset({Phase.ABSENT}),
        **CURRENT_REPLACED,
    },
    Phase.PAUSED: {
        TrainingCompleted: frozenset({Phase.TRAINED}),
        RATED: frozenset({Phase.GATING, Phase.ABSENT}),
        GATE_PLAYED: frozenset({Phase.GATING, Phase.ABSENT}),
        GATE_FAILED: frozenset({Phase.PAUSED, Phase.TRAINED}),
        ClockTick: frozenset({Phase.GATING}),
        PromotionRejected: frozenset({Phase.ABSENT}),
        **CURRENT_REPLACED,
    },
}
"""The possible next phases by phase and trigger. In a phase that lacks an event's trigger, the event is ignored."""


class IllegalTransition(FlyballError):
    """A candidate changed its phase in a way that ``TRANSITIONS`` does not have."""


class Candidate(Row, frozen=True):
    """The model that may be promoted, with its rating, if known, and its gate games.

    Attributes:
        rated: a gauntlet has rated it.
        evaluation_id: its latest gauntlet; without a gauntlet, its latest gate evaluation.
        elo: the rating by that evaluation.
        rotations: sum of ``MatchResult.rotations`` over all rounds.
        graded: sum of ``MatchResult.graded``.
        rounds: number of gate rounds that ended with games.
        requests: number of further gate evaluations requested, failed ones included; their seeds derive from it.
        failures: number of consecutive failed gate evaluations.
        retry_us: when the gate is requested again, microseconds since 1970 UTC; ``None``: a request is under way.
        failed: the latest failure, the evidence of the request that repeats it.
    """

    model: ModelHash
    parent: ModelHash | None
    step: int
    rated: bool = False
    evaluation_id: EventId | None = None
    elo: Elo = Elo(0.0)
    elo_stderr: float = 0.0
    rotations: tuple[int, ...] = ()
    graded: GradedScores | None = None
    games: int = 0
    rounds: int = 0
    requests: int = 0
    failures: int = 0
    retry_us: int | None = None
    failed: Cause | None = None

    def evaluated(self, event: Event[EvaluationCompleted]) -> "Candidate":
        """Return the candidate after an evaluation, whose games are not counted yet."""
        data, is_gate = event.data, event.data.purpose == "gate"
        judged = self.replace(rounds=self.rounds + 1, failures=0) if is_gate else self
        if is_gate and self.rated:  # a gauntlet says more about its strength
            return judged
        return judged.replace(rated=not is_gate, evaluation_id=event.id, elo=data.elo, elo_stderr=data.elo_stderr)

    def after(self, match: MatchResult, players: int) -> "Candidate":
        """Return the candidate after another round of gate games.

        If all rotations of a match repeat the same games, they count as one observation.
        """
        games, repeated = self.games + match.games, match.distinct_games <= players
        if match.graded:
            graded = (self.graded or match.graded.as_one) if repeated else match.graded.plus(self.graded)
            return self.replace(graded=graded, games=games)
        before = self.rotations or (0,) * len(match.rotations)
        summed = tuple(map(_at_most_one if repeated else operator.add, before, match.rotations))
        return self.replace(rotations=summed, games=games)

    @property
    def score_text(self) -> str:
        """The mean score of the counted rotations, and their games. Repeated games count once."""
        rotations = sum(self.rotations) + (self.graded.rotations if self.graded else 0)
        points = sum(outcome * count for outcome, count in enumerate(self.rotations)) / max(1, len(self.rotations) - 1)
        score = (points + (self.graded.total if self.graded else 0.0)) / max(1, rotations)
        players = self.graded.players if self.graded else PLAYERS_OF.get(len(self.rotations), 1)
        counted = rotations * players
        if 2 * counted <= self.games:
            return f"scored {score:.0%} in {counted} different games of {self.games}"
        return f"scored {score:.0%} in {self.games} games{self._even_text}"

    @property
    def _even_text(self) -> str:
        """The pairs of games with one point for each side, because the more there are, the surer is the evidence."""
        if self.graded or len(self.rotations) != rotation_outcomes(players=2):
            return ""
        return f" ({self.rotations[len(self.rotations) // 2]} of {sum(self.rotations)} pairs even)"

    @property
    def phase(self) -> Phase:
        """The phase, which follows from the stored fields."""
        if not self.requests:
            return Phase.TRAINED
        return Phase.GATING if self.retry_us is None else Phase.PAUSED


class GateRow(Row, frozen=True):
    """One configuration's candidate."""

    candidate: Candidate | None = None

    @property
    def phase(self) -> Phase:
        """The candidate's phase."""
        return self.candidate.phase if self.candidate else Phase.ABSENT


NO_CANDIDATE = GateRow()
"""The default of missing rows."""

Rows = Mapping[str, GateRow]


class ModelLifecycleCoordinator(Controller):
    """Owns which model is current."""

    name: ClassVar[str] = "ModelLifecycleCoordinator"
    row: ClassVar[type[GateRow]] = GateRow
    emits: ClassVar[frozenset[type[Payload]]] = frozenset(
        {EvaluationRequested, ModelPromoted, PromotionRejected, ModelRolledBack, ModelAdvised}
    )

    def step(self, rows: Rows, event: Event[Payload], *shown: Mapping[str, Any]) -> Step[GateRow]:
        """Fold one event. Raises ``IllegalTransition``."""
        done = super().step(rows, event, *shown)
        for key, row in done.rows.items():
            before, after = rows.get(key, NO_CANDIDATE).phase, (row or NO_CANDIDATE).phase
            if after not in TRANSITIONS[before].get(_trigger(event.data), ()):
                change = f"from {before.value} to {after.value}"
                raise IllegalTransition(f"{event.data.event_name} took the candidate of {key} {change}.")
        return done

    @handles(TrainingCompleted)
    def trained(self, rows: Rows, event: Event[TrainingCompleted], states: States) -> Step[GateRow]:
        """Store the new candidate, unless another one awaits its verdict."""
        data, candidate = event.data, state_of(states, event.subject).lineage.candidate
        if candidate not in (None, data.model):
            return Step()
        return _step(event, Candidate(model=data.model, parent=data.parent, step=data.step))

    @handles(EvaluationCompleted)
    def evaluated(self, rows: Rows, event: Event[EvaluationCompleted], states: States) -> Step[GateRow]:
        """Judge the candidate by its games against the current model, those of its gauntlet included."""
        candidate, data = _candidate(rows, event), event.data
        current = state_of(states, event.subject).lineage.current_model
        players = self.settings.config(event.subject).players
        if candidate is None:
            return Step()
        is_gate, judged = data.purpose == "gate", candidate.evaluated(event)
        if is_gate and data.results[0].players != players:
            return Step()
        if current is None:
            return _promote(event, current, judged, _evidence(judged, "no model before it", 0, 0))
        if candidate.parent != current and not self.settings.advises:  # an observed loop trains from what it likes
            why = f"trained from {(candidate.parent or 'none')[:HASH_DIGITS]}, not from the current model"
            return _reject(event, current, judged, _evidence(judged, why, 0, 0))
        if not is_gate and candidate.phase is Phase.GATING:  # a round of its gate is under way
            return _step(event, judged)
        for match in data.results:
            if match.opponent_model == current and match.players == players:
                return self._judged(event, current, judged.after(match, players))
        return self._another_round(event, current, judged)

    @handles(EvaluationFailed)
    def evaluation_failed(self, rows: Rows, event: Event[EvaluationFailed], states: States) -> Step[GateRow]:
        """Repeat a failed gate evaluation: at once, but after a pause from the second consecutive failure on.

        A candidate of which no game was ever played may be one that cannot play. It gets a rating instead, whose
        failure drops it, so that training goes on.
        """
        candidate = _candidate(rows, event)
        if candidate is None or (candidate.phase is Phase.TRAINED and candidate.failures >= MOST_FAILURES):
            return Step()  # in the second case its rating is awaited, and this failure comes late
        failed = candidate.replace(failures=candidate.failures + 1, failed=event.cause)
        if failed.evaluation_id is None and failed.failures >= MOST_FAILURES:
            seed = derive_seed(self.settings.seed, event.subject, "rating", failed.model)
            rating = EvaluationRequested(purpose="rating", model=failed.model, step=failed.step, seed=seed)
            return _step(event, failed.replace(requests=0, retry_us=None), Emission(rating))
        if pause_seconds := self.settings.feedback.trigger.pause_after(failed.failures):
            return _step(event, failed.replace(retry_us=event.recorded_us + round(pause_seconds * SECOND_US)))
        return Step(*self._requested(event.subject, failed))

    @handles(ClockTick)
    def ticked(self, rows: Rows, event: Event[ClockTick], states: States) -> Step[GateRow]:
        """Repeat the gate evaluations whose pause has ended."""
        changed, emissions = dict[str, GateRow | None](), list[Emission]()
        for config in self.settings.configs:  # not in rows' order: a restart changes it, and ids depend on it
            candidate = rows.get(config.key, NO_CANDIDATE).candidate
            if candidate and candidate.retry_us is not None and candidate.retry_us <= event.recorded_us:
                row, requests = self._requested(config.key, candidate, evidence=candidate.failed)
                changed |= row
                emissions += requests
        return Step(changed, tuple(emissions))

    @handles(PromotionRejected)
    def rejected(self, rows: Rows, event: Event[PromotionRejected], states: States) -> Step[GateRow]:
        """Drop the candidate that an operator rejected."""
        return _step(event, None) if _candidate(rows, event) else Step()

    @handles(RegressionDetected)
    def regressed(self, rows: Rows, event: Event[RegressionDetected], states: States) -> Step[GateRow]:
        """Roll back after a regression that is bad enough."""
        data = event.data
        feedback, level = self.settings.feedback, SEVERITIES.index(self.settings.feedback.lifecycle.rollback_at)
        if SEVERITIES.index(data.severity) < level:
            return Step()
        least = (0.0, *feedback.watchdog.severity_elo[1:])[level]  # the least severity has no lower bound
        drop = f"{data.elo_drop:.0f} Elo against {fixed_opponent(data)}, at least {least:g}"
        rule = setting("feedback.lifecycle.rollback_at", feedback.lifecycle.rollback_at)
        reason = f"{data.severity} regression by {drop} {rule}"
        return self._roll_back(event, state_of(states, event.subject).lineage, data.model, data.last_good, reason)

    @handles(RollbackRequested)
    def rollback_requested(self, rows: Rows, event: Event[RollbackRequested], states: States) -> Step[GateRow]:
        """Roll back to the previous champion."""
        lineage = state_of(states, event.subject).lineage
        return self._roll_back(event, lineage, event.data.model, None, event.data.reason)

    @handles(DistributionFailed)
    def model_damaged(self, rows: Rows, event: Event[DistributionFailed], states: States) -> Step[GateRow]:
        """Roll back from a model that the store has lost to the latest champion that it has."""
        data = event.data
        if data.readable is None:
            return Step()
        reason = f"the store has no sound copy of the model: {data.error}"
        return self._roll_back(event, state_of(states, event.subject).lineage, data.model, data.readable, reason)

    @handles(ModelPromoted, ModelRolledBack)
    def current_decided(
        self, rows: Rows, event: Event[ModelPromoted] | Event[ModelRolledBack], states: States
    ) -> Step[GateRow]:
        """Request a rating of the model that an operator made current.

        The candidate is dropped, because it was not trained from that model. The controller's own decisions do not
        arrive here (see ``Fold``).
        """
        current = state_of(states, event.subject).lineage.current
        assert current is not None  # the event made it so
        return _step(event, None, self._rating(event, current))

    def _roll_back(
        self, event: Event[Any], lineage: Lineage, model: ModelHash, last_good: ModelHash | None, reason: str
    ) -> Step[GateRow]:
        """Restore ``last_good`` if it is remembered, otherwise the predecessor.

        Nothing changes if ``model`` is not current or has no predecessor.
        """
        if lineage.current_model != model or len(lineage.champions) < 2:
            return Step()
        earlier = lineage.champions[:-1]
        target = next((champion for champion in earlier if champion.model == last_good), earlier[-1])
        decision = ModelRolledBack(from_model=model, to_model=target.model, step=target.step, reason=reason)
        return _step(event, None, Emission(decision), self._rating(event, target))

    def _rating(self, event: Event[Any], champion: Champion) -> Emission:
        """Request a rating of a champion. Its seed derives from the event, because a model may be rated repeatedly."""
        seed = derive_seed(self.settings.seed, event.subject, "current", event.id)
        return Emission(EvaluationRequested(purpose="rating", model=champion.model, step=champion.step, seed=seed))

    def _judged(self, event: Event[Any], current: ModelHash | None, candidate: Candidate) -> Step[GateRow]:
        limits, llr = self.settings.feedback.lifecycle, self._llr(event.subject, candidate)
        verdict = sprt_verdict(llr, limits.alpha, limits.beta)
        if verdict == "continue" and candidate.games < limits.max_games:
            return self._another_round(event, current, candidate)
        rejected, accepted = sprt_bounds(limits.alpha, limits.beta)
        played = candidate.score_text
        better = f"{_at_least(limits.elo0)} {setting('feedback.lifecycle.elo0', limits.elo0)}"
        if verdict == "accept":
            passed = _evidence(candidate, f"gate passed: {played}, {better}, {RATIO}", llr, accepted)
            return _promote(event, current, candidate, passed)
        if verdict == "reject":
            worse = f"{_below(limits.elo1)} {setting('feedback.lifecycle.elo1', limits.elo1)}"
            failed = _evidence(candidate, f"gate failed: {played}, {worse}, {RATIO}", -llr, -rejected)
            return _reject(event, current, candidate, failed)
        rule = setting("feedback.lifecycle.max_games", limits.max_games)
        undecided = f"gate undecided {rule}: {played}, not shown to be {better}, {RATIO}"
        return _reject(event, current, candidate, _evidence(candidate, undecided, llr, accepted))

    def _llr(self, key: str, candidate: Candidate) -> float:
        """Return the log-likelihood ratio of a candidate's gate games: ``elo1`` against ``elo0``."""
        limits = self.settings.feedback.lifecycle
        counts = candidate.rotations or (0,) * rotation_outcomes(self.settings.config(key).players)
        return gsprt_llr(counts, limits.elo0, limits.elo1, candidate.graded)

    def watches(self, rows: Rows, states: States, key: str) -> Sequence[Watched]:
        """Return the evidence for and against the candidate. See ``Controller.watches``."""
        limits, candidate = self.settings.feedback.lifecycle, rows.get(key, NO_CANDIDATE).candidate
        rejected, accepted = sprt_bounds(limits.alpha, limits.beta)
        llr = self._llr(key, candidate) if candidate and candidate.games else None
        waits = "no candidate" if candidate is None else f"{candidate.games} gate games"
        what = f"evidence that the candidate is {_at_least(limits.elo0)}"
        return (
            Watched(what, llr, accepted, "above", "promoted", "feedback.lifecycle.alpha", waits=waits),
            Watched(what, llr, rejected, "below", "rejected", "feedback.lifecycle.beta", waits=waits),
        )

    def _another_round(self, event: Event[Any], current: ModelHash | None, candidate: Candidate) -> Step[GateRow]:
        if candidate.rounds >= MAX_ROUNDS:
            undecided = _evidence(candidate, f"gate undecided after {MAX_ROUNDS} rounds", 0, 0)
            return _reject(event, current, candidate, undecided)
        return Step(*self._requested(event.subject, candidate))

    def _requested(
        self, key: str, candidate: Candidate, *, evidence: Cause | None = None
    ) -> tuple[dict[str, GateRow | None], tuple[Emission, ...]]:
        """Return the row and the emission of a request for gate games."""
        requests = candidate.requests + 1
        seed = derive_seed(self.settings.seed, key, "gate", candidate.model, requests)
        request = EvaluationRequested(purpose="gate", model=candidate.model, step=candidate.step, seed=seed)
        row = GateRow(candidate=candidate.replace(requests=requests, retry_us=None))
        return {key: row}, (Emission(request, key, evidence),)


def _trigger(data: Payload) -> Trigger:
    return (type(data), data.purpose) if isinstance(data, EvaluationCompleted | EvaluationFailed) else type(data)


def _candidate(rows: Rows, event: Event[Any]) -> Candidate | None:
    """Return the candidate that an event is about, unless its phase ignores such events."""
    row = rows.get(event.subject, NO_CANDIDATE)
    is_ignored = row.candidate is None or row.candidate.model != event.data.model
    return None if is_ignored or _trigger(event.data) not in TRANSITIONS[row.phase] else row.candidate


def _step(event: Event[Any], candidate: Candidate | None, *emissions: Emission) -> Step[GateRow]:
    return Step({event.subject: GateRow(candidate=candidate)}, emissions)


def _promote(event: Event[Any], current: ModelHash | None, candidate: Candidate, evidence: Evidence) -> Step[GateRow]:
    promotion = ModelPromoted(
        model=candidate.model, previous=current, step=candidate.step, elo=candidate.elo, evidence=evidence
    )
    return _step(event, None, Emission(promotion))


def _reject(event: Event[Any], current: ModelHash | None, candidate: Candidate, evidence: Evidence) -> Step[GateRow]:
    assert current is not None  # only a first model has none, and that is promoted
    rejection = PromotionRejected(model=candidate.model, current=current, step=candidate.step, evidence=evidence)
    return _step(event, None, Emission(rejection))


def _at_least(elo: float) -> str:
    """Describe a candidate that is at least this much stronger."""
    if elo < 0:
        return f"not more than {-elo:g} Elo worse"
    return f"more than {elo:g} Elo better" if elo > 0 else "better"


def _below(elo: float) -> str:
    """Describe a candidate that is not this much stronger."""
    if elo > 0:
        return f"not {elo:g} Elo better"
    return f"more than {-elo:g} Elo worse" if elo < 0 else "worse"


def _at_most_one(before: int, more: int) -> int:
    return max(before, min(1, more))


def _evidence(candidate: Candidate, statistic: str, value: float, threshold: float) -> Evidence:
    assert candidate.evaluation_id is not None  # verdicts follow evaluations
    return Evidence(
        evaluation_id=candidate.evaluation_id,
        statistic=statistic,
        value=value,
        threshold=threshold,
        games=candidate.games,
        elo=candidate.elo,
        elo_stderr=candidate.elo_stderr,
    )
