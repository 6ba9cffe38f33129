"""Bases of payloads, three kinds of event, and value types, with bounds so that no event stops a fold."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from flyball.app.core import (
    PLAYERS_OF,
    Elo,
    EloPerHour,
    EventId,
    GradedScores,
    MeanOutcome,
    ModelHash,
    Name,
    PlayerName,
    Rate,
    ShardKey,
    is_model,
)

TYPE_PREFIX = "flyball."


class Kind(StrEnum):
    """Kind of an event: a fact, a request, or a decision."""

    FACT = "fact"
    REQUEST = "request"
    DECISION = "decision"


class Scope(StrEnum):
    """Scope of an event: one configuration or the whole system. A configuration's key is the envelope's subject."""

    CONFIG = "config"
    SYSTEM = "system"


class Value(BaseModel):
    """Base of what payloads are made of: frozen, complete, strict, finite.

    Validators are built when first used, because a process that starts uses few of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with some fields changed. Raises ``ValidationError``, also for an unknown field."""
        return self.model_validate({**self.__dict__, **changes})


class Payload(Value):
    """The data of one event type.

    No field has a default, because otherwise a forgotten value would be recorded unnoticed.

    Class arguments: ``type`` is the CloudEvents type without its prefix, ``name`` the event name. ``notable`` marks
    a rare event that matters to an operator: it is logged at INFO, and stays on the screen of ``flyball up``.
    """

    kind: ClassVar[Kind]
    scope: ClassVar[Scope] = Scope.CONFIG
    event_type: ClassVar[str]
    event_name: ClassVar[str]
    dataversion: ClassVar[int]
    notable: ClassVar[bool] = False

    def __init_subclass__(
        cls,
        type: str = "",  # noqa: A002 - the CloudEvents word
        name: str = "",
        version: int = 1,
        *,
        notable: bool = False,
        **kwargs: Any,
    ) -> None:
        """Set the event type, name and version from the class arguments; a base without ``type`` has none."""
        super().__init_subclass__(**kwargs)
        if type:
            cls.event_type, cls.event_name, cls.dataversion = TYPE_PREFIX + type, name, version
            cls.notable = notable


class Fact(Payload):
    """Something that happened."""

    kind = Kind.FACT


class Request(Payload):
    """Work that is wanted. Every result names the request by its event id."""

    kind = Kind.REQUEST


class Decision(Payload):
    """A knob that was set, by its one owner."""

    kind = Kind.DECISION


TEXT_LENGTH = 4000
MOST_ITEMS = 10_000

Intensity = Literal["paused", "reduced", "normal", "accelerated", "hot_path"]
Severity = Literal["minor", "moderate", "severe", "critical"]

Count = Annotated[int, Field(ge=0, le=10**12)]
PositiveCount = Annotated[int, Field(ge=1, le=10**12)]
Position = Annotated[int, Field(ge=0, lt=1 << 63, description="in the journal")]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Period = Annotated[float, Field(ge=1e-6, le=1e9, description="seconds")]
Figure = Annotated[float, Field(ge=-1e12, le=1e12)]
Metrics = Annotated[
    dict[Name, Figure], Field(max_length=100, description="a training's figures by name; which ones, its backend says")
]
Temperature = Annotated[float, Field(ge=1e-3, le=1e3)]
LearningRate = Annotated[float, Field(ge=1e-12, le=1)]
Rating = Annotated[Elo, Field(ge=-100_000, le=100_000)]
RatingError = Annotated[float, Field(ge=0.01, le=100_000, description="standard error, Elo")]
Velocity = Annotated[EloPerHour, Field(ge=-1e12, le=1e12)]


def _shorten(text: object) -> object:
    """Shorten a text, and replace what UTF-8 can't encode. Any failure can then be reported."""
    return text.encode(errors="replace").decode()[:TEXT_LENGTH] if isinstance(text, str) else text


Text = Annotated[str, BeforeValidator(_shorten), Field(max_length=TEXT_LENGTH)]
"""An error or a reason, for people. A longer text is cut."""

Reason = Literal["tournament", "retest"]
"""Reason for playing single matches.

Tournaments are among members of the league: they refine ratings, and nothing waits for them. A retest plays a doubted
model against the opponent that the doubt is about, and decides whether the model stays.
"""

Purpose = Literal["rating", "gate"] | Reason
"""Games that rate a model are kept apart from those that decide its promotion."""

LeagueRole = Literal["recent", "anchor", "elite", "lasting"]
"""Reason for a checkpoint to be in the league; all but recent ones stay for ever.

The newest two with the role ``lasting`` are the anchors that every model is rated against (ADR-018).
"""

Category = Literal["mirror", "peers", "exploitable", "baselines", "prioritised"]
"""Matchmaking's category of an opponent (the last is AlphaStar's)."""


class SampledOpponent(Value):
    """One draw of matchmaking: an opponent, its category and its games.

    ``agent`` is the opponent's name in the league, ``category`` the reason for choosing it.
    """

    agent: PlayerName
    category: Category
    games: PositiveCount


class OpponentPick(Value):
    """An opponent that matchmaking may choose: why, and with which probability."""

    agent: PlayerName
    category: Category
    probability: float = Field(ge=1e-12, le=1)


Bound = Literal["above", "below"]
"""Side of a bound on a rating."""


class AgentRating(Value):
    """An agent's rating, which rests on ``games`` games.

    A bot that wins, or loses, all games against the models has no rating. Then ``bound`` says that it is above, or
    below, ``elo`` (97.5% certain), and there is no error.
    """

    agent: PlayerName
    elo: Rating
    elo_stderr: RatingError | None
    games: PositiveCount
    bound: Bound | None

    @model_validator(mode="after")
    def _error_or_bound(self) -> Self:
        if (self.elo_stderr is None) != (self.bound is not None):
            raise ValueError("a rating has a standard error, a bound has none: leave one of them out")
        if self.bound is not None and is_model(self.agent):
            raise ValueError(f"only bots have bounds: give the rating of model {self.agent}")
        return self


class Lineup(Value):
    """Games with the same players.

    The hero takes every seat in turn. ``opponents`` sit in the seats after the hero's, in order.

    An opponent may be the hero's model: a mirror, whose moves are as good to learn from as the hero's.
    """

    opponents: tuple[PlayerName, ...] = Field(min_length=1, max_length=MOST_ITEMS)
    games: PositiveCount


ShardWorker = Annotated[
    Name | None, Field(description="daemon@node that played it; null: recorded before it was named")
]


class ShardRef(Value):
    """A shard of experience: its place, its worker and its content."""

    key: ShardKey
    worker: ShardWorker
    rows: PositiveCount
    games: PositiveCount
    model: ModelHash
    seed: Seed | None = Field(description="of its games; null: unknown")


class MatchResult(Value):
    """Games of one model against one opponent, seats rotated.

    ``score`` is the mean of the games' scores, which are linear in the outcome: 1/2 between equals. With two players, a
    won game scores 1, a drawn game 1/2 and a lost game 0. With more players, it is the share of opponents beaten, a tie
    counting half. In games with graded outcomes a score says by how much. A game that was cut off counts as half a
    point, and is no win, draw or loss: wins + draws + losses + truncated = games.

    A rotation is P games with the same opening or deal, one with the model in each seat. ``rotations`` counts the
    rotations by their half points, from 0 to 2 P (P - 1). A game has one half point for every opponent tied, and two
    for every opponent beaten. With two players, these are the five counts of the pentanomial model. Where outcomes are
    graded, ``graded`` has the rotations' scores, and ``rotations`` is empty.
    """

    opponent: Name = Field(description="its role, for instance 'champion'; a bot's name")
    opponent_model: ModelHash | None
    opponent_elo: Rating | None = Field(description="None for one that was not rated then")
    games: PositiveCount
    wins: Count
    draws: Count
    losses: Count
    truncated: Count
    distinct_games: PositiveCount
    score: Rate
    outcome: MeanOutcome | None = Field(
        description="in the game's own units; None if the backend does not know it, or did not before version 3"
    )
    rotations: tuple[Count, ...] = Field(max_length=100)
    graded: GradedScores | None = Field(description="None where every game is won, drawn or lost")

    @property
    def player(self) -> str:
        """The opponent: its model's hash, or the name of a bot."""
        return self.opponent_model or self.opponent

    @property
    def graded_outcome(self) -> MeanOutcome | None:
        """The mean outcome where it says more than the score; None where every game is won, drawn or lost."""
        return self.outcome if self.graded else None

    @property
    def players(self) -> int:
        """The number of seats."""
        return self.graded.players if self.graded else PLAYERS_OF[len(self.rotations)]

    @model_validator(mode="after")
    def _games_add_up(self) -> Self:
        if self.wins + self.draws + self.losses + self.truncated != self.games:
            raise ValueError(f"wins, draws, losses and truncated games do not add up to {self.games} games")
        if self.distinct_games > self.games:
            raise ValueError(f"{self.distinct_games} distinct games are more than {self.games} games")
        return self

    @model_validator(mode="after")
    def _rotations_are_of_these_games(self) -> Self:
        if self.graded and self.rotations:
            raise ValueError("rotations are either counted by half points or graded: leave one of them out")
        if not self.graded and len(self.rotations) not in PLAYERS_OF:
            raise ValueError(
                f"{len(self.rotations)} counts of rotations: count each rotation of P games by its half points, "
                "from 0 to 2 P (P - 1)"
            )
        rotations = self.graded.rotations if self.graded else sum(self.rotations)
        if not 0 <= self.games - self.players * rotations < self.players:
            raise ValueError(f"{rotations} rotations of {self.players} games are not those of {self.games} games")
        return self


class Evidence(Value):
    """Grounds of a decision: the evaluation, and the figure that decided."""

    evaluation_id: EventId
    statistic: Text
    value: Figure
    threshold: Figure
    games: Count
    elo: Rating
    elo_stderr: RatingError
