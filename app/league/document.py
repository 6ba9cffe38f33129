"""``league.json``: lossless conversion of a league to its file and back.

Optional fields may be missing from a file written by hand. ``history`` has one entry, a sum, for each pair with games,
so that the file stays small. A checkpoint's name is its content hash, and so is its ``path`` in the store.
"""

from datetime import timedelta
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

from flyball.app.core import Elo, UnusableFile
from flyball.app.events import LeagueRole, Value
from flyball.app.events.envelope import EPOCH
from flyball.app.events.payload import Bound
from flyball.app.league.league import Agent, League
from flyball.app.league.totals import PairTotals

MICROSECOND = timedelta(microseconds=1)
# the same as in ``Agent``
SHARED_FIELDS = ("bound", "elo", "elo_stderr", "matches", "parent", "retired", "roles", "step")
ROUNDING = 1e-9  # relative error of a sum of scores


class DamagedLeague(UnusableFile):
    """A league's file does not match its checksum or its schema."""


class AgentEntry(Value):
    """One agent of the file."""

    type: Literal["baseline", "checkpoint"]
    path: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None
    elo: Elo | None
    matches: NonNegativeInt
    step: NonNegativeInt | None = None
    created_at: AwareDatetime | None = None
    parent: str | None = None
    elo_stderr: NonNegativeFloat | None = None
    bound: Bound | None = None
    roles: tuple[LeagueRole, ...] = ()
    retired: bool = False


class Result(Value):
    """Number of games, and the sum of their scores (``points``).

    ``squares`` is the sum of the squared scores of rotations. Without it and ``rotations``, each game counts as a
    rotation of its own without a draw.
    """

    games: PositiveInt
    points: NonNegativeFloat
    rotations: PositiveInt | None = None
    squares: NonNegativeFloat | None = None


class HistoryEntry(Value):
    """The games of ``p1`` against ``p2``.

    ``step`` is that of the later agent of the two, as far as the file has them; None if it has neither, or only
    baselines.
    """

    step: NonNegativeInt | None
    p1: str
    p2: str
    result: Result


class LeagueMetadata(Value):
    """Metadata of the file.

    ``sha256`` is the checksum of the rest of the file; remove it when editing by hand. ``champion`` and ``last_good``
    need not be agents of the file, because the current model need not be a member.
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
    def _check_consistency(self) -> Self:  # noqa: C901 - one complaint a line
        for name, entry in self.agents.items():
            if entry.path != (name if entry.type == "checkpoint" else None):
                raise ValueError(
                    f"agent {name}: a checkpoint's id and path are its content hash, a baseline has no path"
                )
            if not name:
                raise ValueError("an agent has no name")
            if (entry.type == "checkpoint") != (entry.step is not None):
                raise ValueError(f"agent {name}: a checkpoint has a step, a baseline has none")
            if entry.parent == name:
                raise ValueError(f"agent {name} is named as its own parent")
        for pair in self.history:
            if pair.p1 == pair.p2:
                raise ValueError(f"{pair.p1} cannot be its own opponent; leave out what it plays against itself")
            if pair.result.points > pair.result.games * (1 + ROUNDING):
                raise ValueError(f"{pair.result.points} points of {pair.result.games} games: a game gives one at most")
        return self


def dump_league(league: League, run_name: str, config_key: str) -> bytes:
    """Return the content of a league's file."""
    best = league.best
    metadata = LeagueMetadata(
        run_name=run_name,
        config_key=config_key,
        best_elo=best.elo if best else None,
        best_agent=best.id if best else None,
        champion=league.champion,
        last_good=league.last_good,
    )
    agents = sorted(league.agents.values(), key=lambda agent: (-1 if agent.step is None else agent.step, agent.id))
    document = LeagueDocument(
        agents={agent.id: _agent_entry(agent) for agent in agents},
        history=tuple(
            _history_entry(league, pair)
            for _, others in sorted(league.games.items())
            for _, pair in sorted(others.items())
        ),
        metadata=metadata,
    )
    sealed = document.replace(metadata=metadata.replace(sha256=_checksum(document)))
    return (sealed.model_dump_json(indent=2) + "\n").encode()


def load_league(data: bytes, name: str) -> tuple[League, LeagueMetadata]:
    """Read a file's content. Raises ``DamagedLeague``. The error's message names the file ``name``."""
    try:
        document = LeagueDocument.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise DamagedLeague(
            f"{name} is not a league: {where}: {first['msg']}.",
            hint="It was left as it is. Put it back from a copy, or move it away and export the league once more.",
        ) from error
    about = document.metadata
    if about.sha256 not in (None, _checksum(document)):
        raise DamagedLeague(
            f"{name} is damaged: what it holds has another checksum.",
            hint="It was left as it is. Put it back from a copy; if you edited it, take metadata.sha256 out.",
        )
    agents = {agent: _agent(agent, entry) for agent, entry in document.agents.items()}
    league = League(agents=agents, champion=about.champion, last_good=about.last_good)
    for pair in document.history:
        league = league.with_games(_totals(pair))
    return league, about


def _checksum(document: LeagueDocument) -> str:
    bare = document.replace(metadata=document.metadata.replace(sha256=None))
    return sha256(bare.model_dump_json().encode()).hexdigest()


def _agent_entry(agent: Agent) -> AgentEntry:
    return AgentEntry(
        type=agent.kind,
        path=agent.id if agent.kind == "checkpoint" else None,
        created_at=None if agent.created_us is None else EPOCH + agent.created_us * MICROSECOND,
        **{field: getattr(agent, field) for field in SHARED_FIELDS},
    )


def _agent(name: str, entry: AgentEntry) -> Agent:
    return Agent(
        id=name,
        kind=entry.type,
        created_us=None if entry.created_at is None else (entry.created_at - EPOCH) // MICROSECOND,
        **{field: getattr(entry, field) for field in SHARED_FIELDS},
    )


def _history_entry(league: League, pair: PairTotals) -> HistoryEntry:
    agents = (league.agents.get(name) for name in (pair.first, pair.second))
    steps = [agent.step for agent in agents if agent is not None and agent.step is not None]
    result = Result(games=pair.games, points=pair.score, rotations=pair.rotations, squares=pair.squares)
    return HistoryEntry(step=max(steps, default=None), p1=pair.first, p2=pair.second, result=result)


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
