"""LeagueKeeper: controls each league's members, and matchmaking of the current model.

Only promoted models enter, if the schedule admits them; checkpoints of rejected ones are deleted. Expired and excess
members retire in the same step. A rollback retires all members that were promoted after the restored model.

The keeper applies its own events to its league at once, by ``league_after``, because it does not read them back.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from flyball.app.controllers.controller import Controller
from flyball.app.controllers.emitters import LEAGUE_KEEPER
from flyball.app.controllers.state import FeedbackState, States, state_of
from flyball.app.core import ModelHash, derive_seed
from flyball.app.events import (
    AgentRating,
    CheckpointAdded,
    CheckpointRetired,
    EloUpdated,
    Emission,
    EvaluationCompleted,
    Event,
    MatchesRequested,
    MatchmakingUpdated,
    ModelPromoted,
    ModelRolledBack,
    OpponentPick,
    Payload,
    PromotionRejected,
    RegressionDetected,
    Row,
    RunConfigured,
    Step,
    handles,
)
from flyball.app.league.admission import admission, retirements
from flyball.app.league.league import Agent, League, fold_league, league_after
from flyball.app.league.matchmaking import distribution
from flyball.app.league.tournaments import tournaments

Leaving = Literal["expired", "evicted", "rolled_back"]


class LeagueRow(Row, frozen=True):
    """One configuration's league.

    Attributes:
        league: its members, and what they have played.
        rated: the model that was rated last; its parent is not set.
        promoted: the champions of the lineage, members or not, as agents. Their parents are their nearest ancestors in
            the league.
    """

    league: League = League()
    rated: Agent | None = None
    promoted: tuple[Agent, ...] = ()


FIRST = LeagueRow()
"""The default row, before any event about the league."""


def rated_agent(data: EvaluationCompleted) -> Agent:
    """Return a rated model as an agent without parent and roles."""
    return Agent(
        id=data.model,
        kind="checkpoint",
        step=data.step,
        elo=data.elo,
        elo_stderr=data.elo_stderr,
        matches=sum(match.games for match in data.results),
    )


def promoted_agent(row: LeagueRow, data: ModelPromoted, *, trained: bool) -> Agent:
    """Return a promoted model as an agent.

    The agent has the rating of its gauntlet, or of its gate. A model that an operator promoted has none: it was not
    ``trained``, or it has no games. Its parent is the nearest ancestor in the league: the previous champion, or that
    champion's parent.
    """
    before = next((agent for agent in row.promoted if agent.id == data.previous), None)
    ancestors = (data.previous, before and before.parent)
    parent = next((name for name in ancestors if name in row.league.agents and name != data.model), None)
    if row.rated is not None and row.rated.id == data.model:
        return row.rated.replace(parent=parent)
    agent = Agent(id=data.model, kind="checkpoint", step=data.step, parent=parent)
    evidence = data.evidence
    return agent.rated(data.elo, evidence.elo_stderr, evidence.games) if trained and evidence.games else agent


def with_ratings(promoted: tuple[Agent, ...], ratings: Iterable[AgentRating]) -> tuple[Agent, ...]:
    """Return the promoted models, updated with newer ratings where there are any."""
    newer = {rating.agent: rating for rating in ratings}
    return tuple(
        agent.rated(rating.elo, rating.elo_stderr, rating.games, rating.bound)
        if (rating := newer.get(agent.id))
        else agent
        for agent in promoted
    )


def _champions(states: States, event: Event[Any], agents: Iterable[Agent]) -> tuple[Agent, ...]:
    """Return those agents that are in the lineage."""
    names = {champion.model for champion in state_of(states, event.subject).lineage.champions}
    return tuple(agent for agent in agents if agent.id in names)


def retired_by_rollback(league: League, removed: Iterable[Agent]) -> tuple[CheckpointRetired, ...]:
    """Return the retirements of members that a rollback removes from the lineage."""
    active = {agent.id for agent in league.checkpoints}
    return tuple(retirement_of(agent, "rolled_back") for agent in removed if agent.id in active)


def may_change_matches(before: LeagueRow, row: LeagueRow, data: Payload) -> bool:
    """Return whether an event may change the current model's opponents.

    Opponents depend on the members, and on games of members, of the model's ancestors and of the model itself. Games
    of other models, mostly a candidate that was just rated, change nothing.
    """
    if not isinstance(data, EvaluationCompleted) or row.league.agents is not before.league.agents:
        return True
    return any(data.model in (agent.id, agent.parent) for agent in (*row.promoted, *row.league.agents.values()))


def retirement_of(agent: Agent, reason: Leaving) -> CheckpointRetired:
    """Return the retirement of a member."""
    return CheckpointRetired(model=ModelHash(agent.id), step=agent.step or 0, reason=reason)


Rows = Mapping[str, LeagueRow]


class LeagueKeeper(Controller):
    """Owns admission, retirement and matchmaking; requests placement matches for new members."""

    name: ClassVar[str] = LEAGUE_KEEPER.name
    row: ClassVar[type[LeagueRow]] = LeagueRow
    emits: ClassVar[frozenset[type[Payload]]] = LEAGUE_KEEPER.emits

    @handles(RunConfigured)
    def run_configured(self, rows: Rows, event: Event[RunConfigured], states: States) -> Step[LeagueRow]:
        """Match the current models again, because the settings may differ."""
        emissions = list[Emission]()
        for config in self.settings.configs:  # not in rows' order: a restart changes it, and ids depend on it
            if row := rows.get(config.key):
                decided = self._matchmaking(row, state_of(states, config.key))
                emissions += (Emission(data, config.key) for data in decided)
        return Step({}, tuple(emissions))

    @handles(EvaluationCompleted)
    def evaluated(self, rows: Rows, event: Event[EvaluationCompleted], states: States) -> Step[LeagueRow]:
        """Add an evaluation's games to the league, but a gate's, which repeat one pair and would bias ratings."""
        before, row, data = *self._rows(rows, event), event.data
        if data.purpose == "gate":
            return Step()
        if data.purpose != "rating":
            return self._step(event, states, before, row, ())
        row, payloads = self._admit_rated(row.replace(rated=rated_agent(data)))
        return self._step(event, states, before, row, payloads)

    @handles(ModelPromoted)
    def promoted(self, rows: Rows, event: Event[ModelPromoted], states: States) -> Step[LeagueRow]:
        """Admit a promoted model, if the schedule calls for it.

        A gate's rating is too uncertain for a member, except for a lasting anchor: anchors that are too far apart would
        have one-sided games, and everybody's games against an anchor soon rate it.
        """
        before, row = self._rows(rows, event)
        current = state_of(states, event.subject).lineage.current
        trained = current is not None and current.root != event.data.model
        newest = promoted_agent(row, event.data, trained=trained)
        others = tuple(agent for agent in row.promoted if agent.id != newest.id)
        row = row.replace(promoted=_champions(states, event, (*others, newest)))
        is_rated = row.rated is not None and row.rated.id == newest.id
        added = self._admission(row.league, newest)
        added = tuple(member for member in added if is_rated or "lasting" in member.roles)
        return self._step(event, states, before, row, added)

    @handles(ModelRolledBack)
    def rolled_back(self, rows: Rows, event: Event[ModelRolledBack], states: States) -> Step[LeagueRow]:
        """Retire the members that were promoted after the restored model."""
        before, row = self._rows(rows, event)
        remaining, model = _champions(states, event, row.promoted), event.data.from_model
        removed = [agent for agent in row.promoted if agent not in remaining and (remaining or agent.id == model)]
        retired = retired_by_rollback(row.league, removed)
        return self._step(event, states, before, row.replace(promoted=remaining), retired)

    @handles(EloUpdated)
    def elo_updated(self, rows: Rows, event: Event[EloUpdated], states: States) -> Step[LeagueRow]:
        """Update the champions with published ratings."""
        before, row = self._rows(rows, event)
        row = row.replace(promoted=with_ratings(row.promoted, event.data.ratings))
        return self._step(event, states, before, row, ())

    @handles(PromotionRejected, RegressionDetected)
    def league_changed(self, rows: Rows, event: Event[Any], states: States) -> Step[LeagueRow]:
        """Update the league after a rejection or a regression."""
        before, row = self._rows(rows, event)
        return self._step(event, states, before, row, ())

    def _rows(self, rows: Rows, event: Event[Any]) -> tuple[LeagueRow, LeagueRow]:
        """Return the configuration's row before the event, and with the event folded into its league."""
        before = rows.get(event.subject) or FIRST
        league = before.league.with_baselines(self.settings.config(event.subject).builtins)
        return before, before.replace(league=fold_league(league, event, self.settings.league.admission))

    def _matchmaking(self, row: LeagueRow, state: FeedbackState) -> tuple[MatchmakingUpdated, ...]:
        """Return the current model's matchmaking, if it differs from the last decision."""
        league = row.league
        agents = {agent.id: agent for agent in row.promoted} | league.agents
        hero = agents.get(league.champion or "")
        if hero is None:
            return ()
        picks = distribution(league, hero, self.settings.league.matchmaking)
        decided = MatchmakingUpdated(
            model=ModelHash(hero.id),
            picks=tuple(
                OpponentPick(agent=pick.agent, category=pick.category, probability=share)
                for pick, share in picks.items()
            ),
        )
        return () if decided == state.matchmaking else (decided,)

    def _admit_rated(self, row: LeagueRow) -> tuple[LeagueRow, tuple[CheckpointAdded, ...]]:
        """Admit a champion that is rated only now. An operator promoted it unrated."""
        *others, newest = row.promoted or (None,)
        if newest is None or row.rated is None or newest.id != row.rated.id or newest.elo is not None:
            return row, ()
        champion = row.rated.replace(parent=newest.parent)
        return row.replace(promoted=(*others, champion)), self._admission(row.league, champion)

    def _admission(self, league: League, newest: Agent) -> tuple[CheckpointAdded, ...]:
        """Return the admission of a promoted model.

        The result is empty if the model has no rating or is a member already, or if the schedule does not call for it.
        """
        member = league.agents.get(newest.id)
        if newest.elo is None or newest.elo_stderr is None or (member is not None and not member.retired):
            return ()
        step = newest.step or 0
        roles = admission(step, newest.elo, league, self.settings.league.admission)
        if not roles:
            return ()
        added = CheckpointAdded(
            model=ModelHash(newest.id),
            parent=None if newest.parent is None else ModelHash(newest.parent),
            step=step,
            elo=newest.elo,
            elo_stderr=newest.elo_stderr,
            games=newest.matches,
            roles=roles,
        )
        return (added,)

    def _step(
        self, event: Event[Payload], states: States, before: LeagueRow, row: LeagueRow, payloads: Iterable[Payload]
    ) -> Step[LeagueRow]:
        """Apply own decisions to the league, and update matchmaking. Members whose time is over are retired."""
        league, emissions = self._apply(row.league, event, payloads)
        leaving = retirements(league, self.settings.league.admission)
        league, retired = self._apply(league, event, (retirement_of(member.agent, member.reason) for member in leaving))
        row, state = row.replace(league=league), state_of(states, event.subject)
        matchmaking = self._matchmaking(row, state) if may_change_matches(before, row, event.data) else ()
        matches = self._tournaments(event.subject, league, emissions)
        return Step({event.subject: row}, (*emissions, *retired, *map(Emission, matches), *map(Emission, matchmaking)))

    def _tournaments(self, key: str, league: League, emissions: Iterable[Emission]) -> Iterable[MatchesRequested]:
        settings = self.settings.league.tournaments
        for emission in emissions:
            if isinstance(emission.data, CheckpointAdded):
                seed = derive_seed(self.settings.seed, key)
                yield from tournaments(league, league.agents[emission.data.model], settings, seed)

    def _apply(
        self, league: League, event: Event[Payload], payloads: Iterable[Payload]
    ) -> tuple[League, tuple[Emission, ...]]:
        emissions = tuple(Emission(data) for data in payloads)
        for emission in emissions:
            league = league_after(league, emission.data, event.recorded_us, self.settings.league.admission)
        return league, emissions
