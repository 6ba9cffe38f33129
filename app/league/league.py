"""A league: its agents, and who has beaten whom. Frozen; every change is a new one."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, model_validator

from app.core import RANDOM, Elo
from app.events import LeagueRole, Value
from app.league.totals import PairTotals

AgentKind = Literal["baseline", "checkpoint"]
_PASSING: frozenset[LeagueRole] = frozenset({"recent"})


class Agent(Value):
    """One member of a league.

    Attributes:
        id: a checkpoint's content hash; a built-in player's name.
        step: trainings that made it; a baseline has none.
        elo: None until it is rated; the random bot is at 0.
        elo_stderr: None also where a rating came without one.
        matches: rated games that the rating rests on.
        created_us: when it entered, microseconds since 1970 UTC; a baseline was always there.
        parent: its nearest ancestor in the league.
        roles: why a checkpoint is there.
        retired: it is nobody's opponent any more; what it has played is still known.
    """

    id: str = Field(min_length=1)
    kind: AgentKind
    step: NonNegativeInt | None = None
    elo: Elo | None = None
    elo_stderr: NonNegativeFloat | None = None
    matches: NonNegativeInt = 0
    created_us: NonNegativeInt | None = None
    parent: str | None = None
    roles: tuple[LeagueRole, ...] = ()
    retired: bool = False

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        if (self.kind == "checkpoint") != (self.step is not None):
            raise ValueError(f"agent {self.id}: a checkpoint has a step, a baseline has none")
        if self.parent == self.id:
            raise ValueError(f"agent {self.id} is named as its own parent")
        return self

    @property
    def permanent(self) -> bool:
        """Return whether it stays for ever: baselines, and checkpoints with more than the role of a recent one."""
        return self.kind == "baseline" or not _PASSING.issuperset(self.roles)

    def rated(self, elo: float, stderr: float, matches: int) -> Self:
        """Return it with another rating."""
        return self.replace(elo=Elo(elo), elo_stderr=stderr, matches=matches)


def baseline(name: str) -> Agent:
    """Return a built-in player; only the random bot's rating is known before any game."""
    if name == RANDOM:
        return Agent(id=name, kind="baseline", elo=Elo(0.0), elo_stderr=0.0)
    return Agent(id=name, kind="baseline")


Games = dict[str, dict[str, PairTotals]]


class League(Value):
    """The league of one configuration.

    Attributes:
        agents: by id; those retired lately among them.
        games: of pairs of agents, under the lesser id first, then the greater, from the side of the lesser.
        champion: the current model, a member or not.
        last_good: the model that a rollback would go back to, if anybody has said so.
    """

    agents: dict[str, Agent] = Field(default_factory=dict)
    games: Games = Field(default_factory=dict)
    champion: str | None = None
    last_good: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        misnamed = [name for name, agent in self.agents.items() if name != agent.id]
        if misnamed:
            raise ValueError(f"agent {misnamed[0]} calls itself {self.agents[misnamed[0]].id}")
        named = [(one, other, pair) for one, others in self.games.items() for other, pair in others.items()]
        swapped = [(one, other) for one, other, pair in named if not one == pair.first < pair.second == other]
        if swapped:
            raise ValueError(f"the games of {' and '.join(swapped[0])} are not under the lesser id, or are not theirs")
        return self

    @property
    def active(self) -> tuple[Agent, ...]:
        """All who may be met: baselines by name, then checkpoints, oldest first."""
        return (*self.baselines, *self.checkpoints)

    @property
    def checkpoints(self) -> tuple[Agent, ...]:
        """The active checkpoints, oldest first."""
        return tuple(sorted(self._active("checkpoint"), key=_place))

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
        """The active checkpoint of the highest rating, the oldest of several; None before one is rated."""
        rated = [agent for agent in self.checkpoints if agent.elo is not None]
        return max(rated, key=lambda agent: agent.elo or 0.0, default=None)

    def between(self, one: str, other: str) -> PairTotals | None:
        """Return the games of two agents from the side of ``one``, or None if they never met."""
        if one < other:
            return self.games.get(one, {}).get(other)
        games = self.games.get(other, {}).get(one)
        return games and games.flipped

    def lineage(self, agent: Agent) -> tuple[str, ...]:
        """Return the ids of an agent's ancestors, nearest first, as far as they are known; it need be no member."""
        found: list[str] = []
        parent = agent.parent
        while parent is not None and parent not in found:
            found.append(parent)
            known = self.agents.get(parent)
            parent = known.parent if known else None
        return tuple(found)

    def with_agent(self, agent: Agent) -> Self:
        """Add an agent, or replace the one of its id."""
        return self.replace(agents={**self.agents, agent.id: agent})

    def with_baselines(self, names: Iterable[str]) -> Self:
        """Return it with these built-in players and no others; their ratings and games stay as they are."""
        wanted, present = set(names), {agent.id for agent in self.baselines}
        if wanted == present:
            return self
        kept = {name: agent for name, agent in self.agents.items() if agent.kind == "checkpoint" or name in wanted}
        return self.replace(agents={name: baseline(name) for name in sorted(wanted)} | kept)

    def with_rating(self, name: str, elo: float, stderr: float, matches: int) -> Self:
        """Set the rating of an agent; one that is no member has none here."""
        agent = self.agents.get(name)
        if agent is None:
            return self
        return self.with_agent(agent.rated(elo, stderr, matches))

    def with_games(self, played: PairTotals) -> Self:
        """Add games of two agents."""
        seen = played if played.first < played.second else played.flipped
        before = self.games.get(seen.first, {})
        met = before[seen.second].plus(seen) if seen.second in before else seen
        return self.replace(games={**self.games, seen.first: {**before, seen.second: met}})

    def joined(self, other: "League") -> Self:
        """Take over the agents and games of another league that are not here; taken over twice they count once.

        Of agents and pairs that both know, what is known here stays; so does whom this one calls its champion.
        """
        agents = {**other.agents, **self.agents}
        pairs = {*other.games, *self.games}
        games = {one: {**other.games.get(one, {}), **self.games.get(one, {})} for one in sorted(pairs)}
        current = {"champion": self.champion or other.champion, "last_good": self.last_good or other.last_good}
        return self.replace(agents=agents, games=games, **current)

    def without(self, name: str) -> Self:
        """Retire an agent; nothing for one that is no member."""
        agent = self.agents.get(name)
        return self if agent is None else self.with_agent(agent.replace(retired=True))

    def forgetting(self, before_step: int) -> Self:
        """Drop the agents that retired and are older than a step, and all games of those whom nobody knows any more."""
        agents = {
            name: agent
            for name, agent in self.agents.items()
            if not agent.retired or agent.step is None or agent.step >= before_step
        }
        known = {*agents, self.champion, self.last_good}
        games = {
            one: kept
            for one, others in self.games.items()
            if one in known and (kept := {other: games for other, games in others.items() if other in known})
        }
        return self.replace(agents=agents, games=games)


def founded(baselines: Iterable[str]) -> League:
    """Return a league before its first checkpoint: the built-in players."""
    return League(agents={name: baseline(name) for name in sorted(baselines)})


_place = attrgetter("step", "id")
"""Checkpoints have a step."""
