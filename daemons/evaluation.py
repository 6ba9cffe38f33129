"""The evaluator: plays and rates gauntlets of new models, gates, and matches of tournaments."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from flyball.app.config import EvaluationSettings, GameConfig, JobKind
from flyball.app.controllers import Controller, Lineage, States, state_of
from flyball.app.controllers.lineage import Champion
from flyball.app.core import ANCHOR, Elo, FlyballError, JsonObject, ModelHash, expected_score
from flyball.app.events import (
    AgentRating,
    Cause,
    CheckpointAdded,
    CheckpointRetired,
    EloUpdated,
    EvaluationCompleted,
    EvaluationFailed,
    EvaluationProgress,
    EvaluationRequested,
    Event,
    MatchesRequested,
    MatchResult,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    Row,
    Step,
    handles,
)
from flyball.app.job_specs import BatchResult, Opponent
from flyball.app.league.league import Agent, League, fold_league
from flyball.app.league.matchmaking import select
from flyball.app.league.pool import Pool, saturated
from flyball.app.league.ratings import LEAST_ERROR, Estimate
from flyball.app.league.totals import PairTotals, totals_of
from flyball.app.play.gauntlet import (
    ATTEMPTS,
    MEMBER,
    GauntletResult,
    GauntletSpec,
    OpponentResult,
    plan_gauntlet,
    plan_matches,
)
from flyball.daemons.jobs import Job, Worker
from flyball.daemons.leases import Leases
from flyball.daemons.spec import DaemonSpec


def members(
    league: League,
    request: EvaluationRequested,
    elo: float | None,
    taken: Collection[str],
    settings: EvaluationSettings,
) -> tuple[tuple[str, ModelHash], ...]:
    """Return the league members to play, each with its role.

    The newest lasting anchors come first. Other members are drawn, and those nearer in strength to the current model
    are likelier. Drawn members without a rating are skipped.

    Args:
        league: the configuration's league.
        request: the request; its seed decides the draw.
        elo: the current model's rating, if there is such a model.
        taken: opponents that are played in any case.
        settings: the numbers of opponents.
    """
    lasting = [agent.id for agent in reversed(league.lasting)][: settings.anchors]
    hero = Agent(
        id=request.model, kind="checkpoint", step=request.step, elo=None if elo is None else Elo(elo), elo_stderr=None
    )
    drawn = select(league, "pfsp", hero, len(league.active), seed=request.seed, curve="var")
    fit = [agent.id for agent in drawn if agent.kind == "checkpoint" and agent.elo is not None]
    others = [name for name in fit if name not in taken and name not in lasting][: settings.members]
    named = ((ANCHOR, lasting), (MEMBER, others))
    return tuple((f"{role}{number}", ModelHash(name)) for role, names in named for number, name in enumerate(names, 1))


CHANGED_ELO = 1.0
"""Least change of a rating that is published, in Elo."""

CHANGED_ERROR = 0.2
"""Least relative change of a rating's standard error that is published."""


class Rated(NamedTuple):
    """Ratings after an evaluation.

    Attributes:
        hero: the rating of the evaluated model.
        opponents: ratings by name, including those of its rated opponents.
        changed: new ratings of rated models and built-in players, to publish.
    """

    hero: Estimate
    opponents: Mapping[str, Elo]
    changed: tuple[AgentRating, ...] = ()


def rated_together(
    hero: ModelHash, matches: Sequence[MatchResult], pool: Pool, published: Mapping[str, Estimate | None]
) -> Rated:
    """Fit an evaluation's games together with those of the pool.

    Args:
        hero: the evaluated model.
        matches: results of its games.
        pool: games of earlier evaluations and tournaments.
        published: agents whose changes are published, with their latest published ratings; ``None``: not rated yet.
    """
    played = totals_of(hero, matches)
    estimates = pool.ratings(hero, played).comparable()
    elos = {agent: estimate.elo for agent, estimate in estimates.items()}
    return Rated(estimates[hero], elos, changed_ratings(estimates, pool, published, played))


def changed_ratings(
    estimates: Mapping[str, Estimate],
    pool: Pool,
    published: Mapping[str, Estimate | None],
    played: Sequence[PairTotals] = (),
) -> tuple[AgentRating, ...]:
    """Return the fitted ratings, and bounds of ratings, that differ from the published ones.

    ``played`` are the games of the fit in addition to the pool's; ``published`` as in ``rated_together``.
    """
    games = pool.games(played)
    rated = [
        AgentRating(agent=agent, elo=estimate.elo, elo_stderr=estimate.stderr, games=games[agent], bound=None)
        for agent, estimate in estimates.items()
        if games[agent] and agent in published and _is_news(published[agent], estimate)
    ]
    bounded = [
        AgentRating(agent=bot, elo=elo, elo_stderr=None, games=games[bot], bound=side)
        for bot, (side, elo) in pool.bounds(estimates, played).items()
        if games[bot] and bot in published and _is_news(published[bot], Estimate(elo, 0.0))
    ]
    return (*rated, *bounded)


def _is_news(published: Estimate | None, fitted: Estimate) -> bool:
    if published is None:
        return True
    moved = abs(fitted.elo - published.elo) >= CHANGED_ELO
    return moved or abs(fitted.stderr - published.stderr) >= max(LEAST_ERROR, CHANGED_ERROR * published.stderr)


EvaluationRequest = EvaluationRequested | MatchesRequested
EvaluationJob = Job[EvaluationRequest]
LONG_GAMES = 1000
"""Number of games beyond which an evaluation reports its progress."""

RECENT = 6
"""Number of latest champions that new games rate again. The oldest is the opponent ``recent``."""


WAITING_MATCHES = 16
"""Most waiting tournament requests of a configuration; the oldest ones beyond it are dropped."""


class EvaluationPending(Row, frozen=True):
    """A request that waits for its result: an evaluation or matches."""

    cause: Cause
    evaluation: EvaluationRequested | None = None
    matches: MatchesRequested | None = None

    @property
    def request(self) -> EvaluationRequest:
        """The request."""
        request = self.evaluation or self.matches
        assert request is not None  # one of them is given
        return request


class EvaluatorRow(Row, frozen=True):
    """The evaluator's row of one configuration.

    An operator's request is added to the pending ones, because replacing one could lose a candidate's verdict.

    Attributes:
        league: the configuration's league.
        pool: the games that rate its members.
        pending: the pending requests, oldest first.
    """

    league: League = League()
    pool: Pool = Pool()
    pending: tuple[EvaluationPending, ...] = ()

    @property
    def cause(self) -> Cause | None:
        """The oldest request."""
        return self.pending[0].cause if self.pending else None

    def published_ratings(self, lineage: Lineage) -> dict[str, Estimate | None]:
        """Return the latest published ratings of members and latest champions, by model; ``None``: not rated yet."""
        members = {agent.id: _rating(agent) for agent in self.league.active}
        return members | {champion.model: _rating(champion) for champion in lineage.champions[-RECENT:]}


def _rating(rated: Agent | Champion) -> Estimate | None:
    return None if rated.elo is None else Estimate(rated.elo, rated.elo_stderr or 0.0)


Rows = Mapping[str, EvaluatorRow]


class Evaluator(Worker[EvaluationRequest], Controller):
    """Runs the backend's ``match`` for batches of games. For the opponents see ``plan_gauntlet``."""

    name: ClassVar[str] = "Evaluator"
    kind: ClassVar[JobKind] = "evaluation"
    row: ClassVar[type[EvaluatorRow]] = EvaluatorRow
    returns: ClassVar[type[BatchResult]] = BatchResult
    emits: ClassVar[frozenset[type[Payload]]] = frozenset(
        {EloUpdated, EvaluationCompleted, EvaluationFailed, EvaluationProgress}
    )

    @handles(EvaluationRequested)
    def evaluation_requested(self, rows: Rows, event: Event[EvaluationRequested], states: States) -> Step[EvaluatorRow]:
        """Queue the gauntlet or gate."""
        newest = EvaluationPending(cause=event.cause, evaluation=event.data)
        return _changed(rows, event, states, pending=_queued(_row(rows, event).pending, newest))

    @handles(MatchesRequested)
    def matches_requested(self, rows: Rows, event: Event[MatchesRequested], states: States) -> Step[EvaluatorRow]:
        """Queue the matches."""
        newest = EvaluationPending(cause=event.cause, matches=event.data)
        return _changed(rows, event, states, pending=_queued(_row(rows, event).pending, newest))

    @handles(EvaluationCompleted, EvaluationFailed)
    def ended(
        self, rows: Rows, event: Event[EvaluationCompleted] | Event[EvaluationFailed], states: States
    ) -> Step[EvaluatorRow]:
        """Drop a finished request, and add its games to the pool."""
        row, data, lineage = _row(rows, event), event.data, state_of(states, event.subject).lineage
        waiting = tuple(pending for pending in row.pending if pending.cause.id != data.request_id)
        agents = {*row.published_ratings(lineage), *self.settings.config(event.subject).builtins}
        return _changed(rows, event, states, pool=_pooled(row.pool, data, agents), pending=waiting)

    @handles(ModelPromoted, ModelRolledBack)
    def current_changed(self, rows: Rows, event: Event[Any], states: States) -> Step[EvaluatorRow]:
        """Drop pending gate requests whose candidate has become current; ``_changed`` does it."""
        return _changed(rows, event, states)

    @handles(CheckpointAdded, CheckpointRetired, EloUpdated)
    def league_changed(self, rows: Rows, event: Event[Any], states: States) -> Step[EvaluatorRow]:
        """Update the league's members and their ratings."""
        return _changed(rows, event, states, league=self._league(_row(rows, event), event))

    def _league(self, row: EvaluatorRow, event: Event[Any]) -> League:
        league = row.league.with_baselines(self.settings.config(event.subject).builtins)
        return fold_league(league, event, self.settings.league.admission)

    @staticmethod
    def pending(rows: Rows) -> Sequence[tuple[Cause, tuple[EvaluationRequest, EvaluatorRow]]]:
        """Return the pending requests, oldest first.

        Requests of tournaments come after all others. Running matches of a tournament are not interrupted. Cancelling
        them would lose their games, and kill the process that plays them together with the models that it has loaded.
        """
        waiting = [(pending, row) for row in rows.values() for pending in row.pending]
        waiting.sort(key=lambda pair: (_is_background(pair[0]), pair[0].cause.sequence))
        return [(pending.cause, (pending.request, row)) for pending, row in waiting]

    def job(self, cause: Cause, pending: tuple[EvaluationRequest, EvaluatorRow], states: States) -> EvaluationJob:
        """Return the job that plays an evaluation or matches."""
        request, row = pending
        config, lineage = self.settings.config(cause.subject or ""), state_of(states, cause.subject or "").lineage
        league = row.league.with_baselines(config.builtins)
        published = row.replace(league=league).published_ratings(lineage)
        if isinstance(request, MatchesRequested):
            opponents = plan_matches(request.opponents, request.games, config)
        else:
            opponents = _opponents(request, lineage, league, config)
        spec = GauntletSpec(
            **dict(self.identity.context), config=config, model=request.model, opponents=opponents, seed=request.seed
        )
        return Job(
            cause,
            request,
            self.backend(cause).match,
            spec.parts,
            config.evaluation.batch_seconds,
            gather=spec.gather,
            attempts=ATTEMPTS,
            memo={"opponents": opponents, "pool": row.pool, "published": published},
        )

    def progressed(self, job: EvaluationJob, report: JsonObject) -> tuple[Payload, ...]:
        """Report a finished batch of a long evaluation."""
        planned = sum(opponent.games for opponent in job.memo["opponents"])
        if planned <= LONG_GAMES:
            return ()
        return (EvaluationProgress(request_id=job.id, model=job.request.model, planned_games=planned, **report),)

    def completed(self, job: EvaluationJob, result: GauntletResult, seconds: float) -> tuple[Payload, ...]:
        """Report the matches, and the ratings fitted to their games.

        The ratings are fitted to all games of the pool. A gate, which compares one pair, rates only the candidate. No
        reducer computes a fit, because its last digits may differ on another machine. It is recorded as a fact.
        """
        matches, hero, purpose = tuple(map(_match, result.results)), job.request.model, job.request.purpose
        published: Mapping[str, Estimate | None] = {} if purpose == "gate" else job.memo["published"]
        rated = rated_together(hero, matches, job.memo["pool"], published)
        complete = EvaluationCompleted(
            request_id=job.id,
            purpose=purpose,
            model=hero,
            step=job.request.step,
            results=tuple(m.replace(opponent_elo=rated.opponents.get(m.player)) for m in matches),
            elo=rated.hero.elo,
            elo_stderr=rated.hero.stderr,
            lost_games=result.lost_games,
            undecided_games=sum(match.undecided for match in result.results),
            seconds=result.seconds,
        )
        return (complete, EloUpdated(ratings=rated.changed)) if rated.changed else (complete,)

    def failed(self, job: EvaluationJob, error: FlyballError) -> tuple[Payload, ...]:
        """Report that an evaluation or its matches could not be finished."""
        request = job.request
        return (EvaluationFailed(request_id=job.id, purpose=request.purpose, model=request.model, error=str(error)),)


def _opponents(
    request: EvaluationRequested, lineage: Lineage, league: League, config: GameConfig
) -> tuple[Opponent, ...]:
    """Return a model's opponents: for a gate only the champion, otherwise the whole gauntlet."""
    champion, settings = lineage.current, config.evaluation
    recent = lineage.champions[-RECENT:]
    candidates = [("champion", champion.model), ("recent", recent[0].model)] if champion else []
    if request.purpose == "gate":
        gate = plan_gauntlet(request.model, candidates[:1], (), settings, config.players)
        return tuple(opponent for opponent in gate if opponent.model is not None)
    taken = {model for _, model in candidates}
    elo = champion.elo if champion else None
    others = members(league, request, elo, taken, settings)
    ratings = {agent.id: agent.elo for agent in league.active} | {past.model: past.elo for past in lineage.champions}
    rated = {name: other for name, other in ratings.items() if other is not None}
    one_sided = [name for name, other in rated.items() if elo is not None and saturated(expected_score(elo - other))]
    return plan_gauntlet(
        request.model, (*others, *candidates), config.builtins, settings, config.players, saturated=one_sided
    )


def _row(rows: Rows, event: Event[Any]) -> EvaluatorRow:
    return rows.get(event.subject, EvaluatorRow())


def _changed(rows: Rows, event: Event[Any], states: States, **changes: Any) -> Step[EvaluatorRow]:
    """Return the step that changes the row of the event's configuration.

    Gates without two different models are dropped: the candidate is the champion already, or there is no champion.
    """
    row, champion = _row(rows, event).replace(**changes), state_of(states, event.subject).lineage.current_model
    requests = ((pending, pending.request) for pending in row.pending)
    still = [
        pending for pending, request in requests if request.purpose != "gate" or champion not in (None, request.model)
    ]
    return Step({event.subject: row.replace(pending=tuple(still))})


def _match(match: OpponentResult) -> MatchResult:
    """Return a match's result without the opponent's rating, which is not fitted yet."""
    counted = {field: value for field, value in match if field in MatchResult.model_fields}
    return MatchResult(**counted, opponent_elo=None)


def _is_background(pending: EvaluationPending) -> bool:
    return pending.request.purpose == "tournament"


def _queued(pending: tuple[EvaluationPending, ...], newest: EvaluationPending) -> tuple[EvaluationPending, ...]:
    """Add a request, and drop the oldest tournament requests beyond ``WAITING_MATCHES``."""
    waiting = (*pending, newest)
    dropped = list(filter(_is_background, waiting))[:-WAITING_MATCHES]
    return tuple(pending for pending in waiting if pending not in dropped)


def _pooled(pool: Pool, data: EvaluationCompleted | EvaluationFailed, agents: Collection[str]) -> Pool:
    """Add a completed evaluation's games to the pool.

    A gate's games link a champion without a gauntlet to its parent. ``agents``: see ``Pool.after``.
    """
    if isinstance(data, EvaluationFailed):
        return pool
    candidate = data.model if data.purpose in ("rating", "gate") else None
    return pool.after(totals_of(data.model, data.results), agents, candidate)


class EvaluationLeases(Leases):
    """Leases of evaluations and matches."""

    name = "EvaluationLeases"
    worker = Evaluator
    daemon = "evaluation"
    failed = frozenset({EvaluationFailed})


DAEMON = DaemonSpec(
    EvaluationLeases.daemon,
    "plays gauntlets and gates of new models",
    worker=Evaluator,
    leases=EvaluationLeases,
    capacity=1,
)
