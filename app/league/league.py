"""A league: its agents and their games, folded from the journal; immutable, so that each change returns a new one."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Literal, Self

from msgspec import field

from flyball.app.config import AdmissionSettings
from flyball.app.core import RANDOM, Elo
from flyball.app.events import (
    CheckpointAdded,
    CheckpointRetired,
    EloUpdated,
    EvaluationCompleted,
    Event,
    LeagueRole,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    PromotionRejected,
    RegressionDetected,
    Row,
)
from flyball.app.events.payload import Bound
from flyball.app.league.totals import PairTotals, totals_of

AgentKind = Literal["baseline", "checkpoint"]


class Agent(Row, frozen=True):
    """One member of a league."""

    id: str  # a checkpoint's content hash; a built-in player's name
    kind: AgentKind
    step: int | None = None  # number of trainings behind it; None for a baseline
    elo: Elo | None = None  # None until it is rated; the random bot is at 0
    elo_stderr: float | None = None  # None also if a rating came without one
    bound: Bound | None = None  # the agent is above, or below, ``elo``: then it has no rating
    matches: int = 0  # rated games behind the rating
    created_us: int | None = None  # time of admission, microseconds since 1970 UTC; None for a baseline
    parent: str | None = None  # its nearest ancestor in the league
    roles: tuple[LeagueRole, ...] = ()  # the reasons for keeping a checkpoint
    retired: bool = False  # a retired agent is no longer an opponent; its games are still known

    @property
    def permanent(self) -> bool:
        """True for members that never expire: baselines, and checkpoints with another role than ``recent``."""
        return self.kind == "baseline" or any(role != "recent" for role in self.roles)

    def rated(self, elo: float, stderr: float | None, matches: int, bound: Bound | None = None) -> Self:
        """Return the agent with another rating, or another bound."""
        return self.replace(elo=Elo(elo), elo_stderr=stderr, matches=matches, bound=bound)


def baseline(name: str) -> Agent:
    """Return a built-in player as an agent without games. Only the random bot's rating is known before any game: 0."""
    if name == RANDOM:
        return Agent(id=name, kind="baseline", elo=Elo(0.0), elo_stderr=0.0)
    return Agent(id=name, kind="baseline")


class League(Row, frozen=True):
    """The league of one configuration."""

    agents: dict[str, Agent] = field(default_factory=dict)  # by id, recently retired ones included
    # totals of each pair: games[lesser id][greater id], with the scores of the lesser id
    games: dict[str, dict[str, PairTotals]] = field(default_factory=dict)
    champion: str | None = None  # the current model, a member or not
    last_good: str | None = None  # the target of a rollback, once one is known

    @property
    def active(self) -> tuple[Agent, ...]:
        """All possible opponents: baselines by name, then checkpoints, oldest first."""
        return (*self.baselines, *self.checkpoints)

    @property
    def checkpoints(self) -> tuple[Agent, ...]:
        """The active checkpoints, oldest first."""
        return tuple(sorted(self._active("checkpoint"), key=attrgetter("step", "id")))

    @property
    def baselines(self) -> tuple[Agent, ...]:
        """The built-in players, by name."""
        return tuple(sorted(self._active("baseline"), key=attrgetter("id")))

    def _active(self, kind: AgentKind) -> list[Agent]:
        return [agent for agent in self.agents.values() if agent.kind == kind and not agent.retired]

    @property
    def lasting(self) -> tuple[Agent, ...]:
        """The anchors that every model is rated against, oldest first."""
        return tuple(agent for agent in self.checkpoints if "lasting" in agent.roles)

    @property
    def latest_step(self) -> int | None:
        """The step of the newest active checkpoint."""
        return max((agent.step for agent in self._active("checkpoint") if agent.step is not None), default=None)

    @property
    def best(self) -> Agent | None:
        """The active checkpoint of the highest rating, the oldest if tied; None before any checkpoint is rated."""
        rated = [agent for agent in self.checkpoints if agent.elo is not None]
        return max(rated, key=lambda agent: agent.elo or 0.0, default=None)

    def between(self, first: str, second: str) -> PairTotals | None:
        """Return the games of two agents from the side of ``first``; None if they have played no games."""
        if first < second:
            return self.games.get(first, {}).get(second)
        games = self.games.get(second, {}).get(first)
        return games and games.flipped

    def lineage(self, agent: Agent) -> tuple[str, ...]:
        """Return the ids of an agent's known ancestors, nearest first. The agent need not be a member."""
        ancestors: list[str] = []
        parent = agent.parent
        while parent is not None and parent not in ancestors:
            ancestors.append(parent)
            ancestor = self.agents.get(parent)
            parent = ancestor.parent if ancestor else None
        return tuple(ancestors)

    def with_agent(self, agent: Agent) -> Self:
        """Add an agent, or replace the agent of the same id."""
        return self.replace(agents={**self.agents, agent.id: agent})

    def with_baselines(self, names: Iterable[str]) -> Self:
        """Return the league with exactly these built-in players. Ratings of kept players and all games stay."""
        baselines, present = set(names), {agent.id for agent in self.baselines}
        if baselines == present:
            return self
        known_agents = {
            name: agent for name, agent in self.agents.items() if agent.kind == "checkpoint" or name in baselines
        }
        return self.replace(agents={name: baseline(name) for name in sorted(baselines)} | known_agents)

    def with_games(self, played: PairTotals) -> Self:
        """Add games of two agents."""
        ordered = played if played.first < played.second else played.flipped
        before = self.games.get(ordered.first, {})
        totals = before.get(ordered.second)
        return self.replace(
            games={**self.games, ordered.first: {**before, ordered.second: totals.plus(ordered) if totals else ordered}}
        )

    def merged(self, other: "League") -> Self:
        """Add another league's agents and games that are unknown here.

        Known agents and pairs stay as they are, and so does the champion. Joining the same league again changes
        nothing.
        """
        firsts = sorted({*other.games, *self.games})
        return self.replace(
            agents={**other.agents, **self.agents},
            games={first: {**other.games.get(first, {}), **self.games.get(first, {})} for first in firsts},
            champion=self.champion or other.champion,
            last_good=self.last_good or other.last_good,
        )

    def without(self, name: str) -> Self:
        """Retire an agent; an unknown one changes nothing."""
        agent = self.agents.get(name)
        return self if agent is None else self.with_agent(agent.replace(retired=True))

    def without_retired(self, before_step: int) -> Self:
        """Drop retired agents older than a step, and games of agents other than those left and protected models."""
        agents = {
            name: agent
            for name, agent in self.agents.items()
            if not agent.retired or agent.step is None or agent.step >= before_step
        }
        remaining = {*agents, self.champion, self.last_good}
        games = {
            agent_id: totals
            for agent_id, others in self.games.items()
            if agent_id in remaining
            and (totals := {other: games for other, games in others.items() if other in remaining})
        }
        return self.replace(agents=agents, games=games)


LEAGUE_READS: frozenset[type[Payload]] = frozenset(
    {
        CheckpointAdded,
        CheckpointRetired,
        EloUpdated,
        EvaluationCompleted,
        ModelPromoted,
        ModelRolledBack,
        PromotionRejected,
        RegressionDetected,
    }
)
"""The payload types that change a league."""


def fold_league(league: League, event: Event[Payload], settings: AdmissionSettings) -> League:
    """Return the league after one more event about its configuration."""
    return league_after(league, event.data, event.recorded_us, settings)


def league_after(  # noqa: C901 - one case an event
    league: League, data: Payload, now_us: int, settings: AdmissionSettings
) -> League:
    """Return the league after an event's data.

    ``now_us`` is in microseconds since 1970 UTC. Gate games are left out, because they repeat one pair and would bias
    the ratings.
    """
    match data:
        case CheckpointAdded():
            agent = Agent(
                id=data.model,
                kind="checkpoint",
                step=data.step,
                elo=data.elo,
                elo_stderr=data.elo_stderr,
                matches=data.games,
                created_us=now_us,
                parent=data.parent,
                roles=data.roles,
            )
            league = league.with_agent(agent)
        case CheckpointRetired(model=model):
            return league.without(model)
        case EloUpdated(ratings=ratings):
            for rating in ratings:
                if member := league.agents.get(rating.agent):
                    league = league.with_agent(member.rated(rating.elo, rating.elo_stderr, rating.games, rating.bound))
            return league
        case EvaluationCompleted(purpose=purpose) if purpose != "gate":
            for played in totals_of(data.model, data.results):
                league = league.with_games(played)
            return league
        case ModelPromoted(model=model):
            league = league.replace(champion=model)
        case ModelRolledBack(from_model=bad, to_model=model):
            good = None if league.last_good == bad else league.last_good
            league = league.replace(champion=model, last_good=good)
        case PromotionRejected():
            pass
        case RegressionDetected(last_good=good) if good is not None:
            return league.replace(last_good=good)
        case _:
            return league
    return league.without_retired((league.latest_step or 0) - settings.remembered_for)
