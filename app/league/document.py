"""``league.json``: a league as a document, and back without loss.

Optional fields may be missing from a file written by hand. ``history`` has one
entry for each pair that met, the sum of its games: the file stays small. A checkpoint's name is its content hash; its
``path`` is the same, for that is where the store has it.
"""

from datetime import datetime, timedelta
from hashlib import sha256
from typing import Annotated, Literal, Self

from pydantic import (
    AwareDatetime,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    model_validator,
)

from app.core import Elo, UnusableFile
from app.events import LeagueRole, Value
from app.events.envelope import EPOCH
from app.league.league import Agent, League
from app.league.totals import PairTotals

MODEL_HASH = r"^[0-9a-f]{64}$"
MICROSECOND = timedelta(microseconds=1)


class DamagedLeague(UnusableFile):
    """A league's file is not what its checksum or its schema promises."""


class AgentEntry(Value):
    """One agent as the file has it."""

    type: Literal["baseline", "checkpoint"]
    path: Annotated[str, Field(pattern=MODEL_HASH)] | None
    elo: Elo | None
    matches: NonNegativeInt
    step: NonNegativeInt | None = None
    created_at: AwareDatetime | None = None
    parent: str | None = None
    elo_stderr: NonNegativeFloat | None = None
    roles: tuple[LeagueRole, ...] = ()
    retired: bool = False


class Result(Value):
    """The games of ``p1`` against ``p2``: how many, and the sum of their scores.

    ``rotations`` and ``squares`` are those of ``PairTotals``; without them, games were won or lost one by one.
    """

    games: PositiveInt
    points: NonNegativeFloat
    rotations: PositiveInt | None = None
    squares: NonNegativeFloat | None = None


class HistoryEntry(Value):
    """A pair that met, and the step of the later of the two, as far as they are agents of the file."""

    step: NonNegativeInt | None
    p1: str
    p2: str
    result: Result


class LeagueMetadata(Value):
    """Metadata of the file. ``sha256`` is that of the rest; remove it when editing by hand.

    ``champion`` and ``last_good`` need be no agents of the file: a model may be current and no member of the league.
    """

    run_name: str
    best_elo: Elo | None
    best_agent: str | None
    config_key: str | None = None
    champion: str | None = None
    last_good: str | None = None
    sha256: str | None = None


class LeagueDocument(Value):
    """The whole file."""

    agents: dict[str, AgentEntry]
    history: tuple[HistoryEntry, ...]
    metadata: LeagueMetadata

    @model_validator(mode="after")
    def _checkpoints_are_where_their_hash_says(self) -> Self:
        for name, entry in self.agents.items():
            if entry.path != (name if entry.type == "checkpoint" else None):
                raise ValueError(
                    f"agent {name}: a checkpoint's id and path are its content hash, a baseline has no path"
                )
        return self


def dump_league(league: League, run_name: str, config_key: str) -> bytes:
    """Return a league as its file."""
    best = league.best
    metadata = LeagueMetadata(
        run_name=run_name,
        config_key=config_key,
        best_elo=best.elo if best else None,
        best_agent=best.id if best else None,
        champion=league.champion,
        last_good=league.last_good,
    )
    document = LeagueDocument(
        agents={agent.id: _entry(agent) for agent in sorted(league.agents.values(), key=_place)},
        history=tuple(
            _met(league, met) for _, others in sorted(league.games.items()) for _, met in sorted(others.items())
        ),
        metadata=metadata,
    )
    sealed = document.replace(metadata=metadata.replace(sha256=_checksum(document)))
    return (sealed.model_dump_json(indent=2) + "\n").encode()


def load_league(data: bytes, name: str) -> tuple[League, LeagueMetadata]:
    """Return what a file holds. Raises ``DamagedLeague``, which calls it ``name``."""
    try:
        document = LeagueDocument.model_validate_json(data)
        league = _league(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise DamagedLeague(
            f"{name} is no league: {where}: {first['msg']}.",
            hint="It was left as it is. Put it back from a copy, or move it away and export the league once more.",
        ) from error
    if document.metadata.sha256 not in (None, _checksum(document)):
        raise DamagedLeague(
            f"{name} is damaged: what it holds has another checksum.",
            hint="It was left as it is. Put it back from a copy; if you edited it, take metadata.sha256 out.",
        )
    return league, document.metadata


def _league(document: LeagueDocument) -> League:
    agents = {name: _agent(name, entry) for name, entry in document.agents.items()}
    league = League(agents=agents, champion=document.metadata.champion, last_good=document.metadata.last_good)
    for entry in document.history:
        league = league.with_games(_totals(entry))
    return league


def _met(league: League, met: PairTotals) -> HistoryEntry:
    known = (league.agents.get(name) for name in (met.first, met.second))
    steps = [agent.step for agent in known if agent is not None and agent.step is not None]
    result = Result(games=met.games, points=met.score, rotations=met.rotations, squares=met.squares)
    return HistoryEntry(step=max(steps, default=None), p1=met.first, p2=met.second, result=result)


def _totals(entry: HistoryEntry) -> PairTotals:
    played = entry.result
    return PairTotals(
        first=entry.p1,
        second=entry.p2,
        games=played.games,
        rotations=played.rotations or played.games,
        score=played.points,
        squares=played.points if played.squares is None else played.squares,
    )


def _checksum(document: LeagueDocument) -> str:
    bare = document.replace(metadata=document.metadata.replace(sha256=None))
    return sha256(bare.model_dump_json().encode()).hexdigest()


def _entry(agent: Agent) -> AgentEntry:
    return AgentEntry(
        type=agent.kind,
        path=agent.id if agent.kind == "checkpoint" else None,
        elo=agent.elo,
        matches=agent.matches,
        step=agent.step,
        created_at=None if agent.created_us is None else EPOCH + agent.created_us * MICROSECOND,
        parent=agent.parent,
        elo_stderr=agent.elo_stderr,
        roles=agent.roles,
        retired=agent.retired,
    )


def _agent(name: str, entry: AgentEntry) -> Agent:
    return Agent(
        id=name,
        kind=entry.type,
        step=entry.step,
        elo=entry.elo,
        elo_stderr=entry.elo_stderr,
        matches=entry.matches,
        created_us=_microseconds(entry.created_at),
        parent=entry.parent,
        roles=entry.roles,
        retired=entry.retired,
    )


def _microseconds(time: datetime | None) -> int | None:
    return None if time is None else (time - EPOCH) // MICROSECOND


def _place(agent: Agent) -> tuple[int, str]:
    return (-1 if agent.step is None else agent.step), agent.id
