"""What several payloads are made of."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from app.core import PLAYERS_OF, Elo, EventId, ModelHash, Rate, ShardKey
from app.events.payload import Value

Intensity = Literal["paused", "reduced", "normal", "accelerated", "hot_path"]
Severity = Literal["minor", "moderate", "severe", "critical"]
Parameter = Literal["learning_rate", "epochs", "games_per_iteration", "quality_threshold", "base_temperature"]
Rating = Annotated[Elo, Field(ge=-100_000, le=100_000)]
RatingError = Annotated[float, Field(ge=0.01, le=100_000, description="standard error, Elo")]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Figure = Annotated[float, Field(ge=-1e12, le=1e12)]

Reason = Literal["tournament", "retest"]
"""Why single matches are played.

Tournaments are among members of the league: they refine ratings, and nothing waits for them. A retest is of a model
that is doubted, against the opponent that the doubt is about, and decides whether it stays.
"""

Purpose = Literal["rating", "gate"] | Reason
"""Games that rate a model are kept apart from those that decide its promotion (DESIGN §5)."""

LeagueRole = Literal["recent", "anchor", "elite", "lasting"]
"""Why a checkpoint is in the league; all but recent ones stay for ever (seed 001 §1).

The newest two with the role ``lasting`` are the anchors that every model is rated against (ADR-014).
"""

Category = Literal["mirror", "peers", "exploitable", "baselines", "prioritised"]
"""Why matchmaking chose an opponent (seed 001 §3; the last is AlphaStar's)."""


class SampledOpponent(Value):
    """One draw of matchmaking: an opponent by its name in the league, why it was chosen, how many games it plays."""

    agent: str = Field(min_length=1)
    category: Category
    games: PositiveInt


class OpponentPick(Value):
    """An opponent that matchmaking may choose: why, and with which probability."""

    agent: str = Field(min_length=1)
    category: Category
    probability: float = Field(gt=0, le=1)


class AgentRating(Value):
    """What an agent's games say of its strength; ``games`` is how many."""

    agent: str = Field(min_length=1)
    elo: Rating
    elo_stderr: RatingError
    games: PositiveInt


class Lineup(Value):
    """Games with the same players. The hero takes every seat in turn; ``opponents`` sit in those after its, in order.

    An opponent may be the hero's model: a mirror, whose moves are as good to learn from as the hero's.
    """

    opponents: tuple[str, ...] = Field(min_length=1)
    games: PositiveInt


ShardWorker = Annotated[str | None, Field(description="daemon@node that played it; null: recorded before it was named")]


class ShardRef(Value):
    """Where rows of experience lie, who played them, and what they are about."""

    key: ShardKey
    worker: ShardWorker
    rows: PositiveInt
    games: PositiveInt
    model: ModelHash
    seed: NonNegativeInt


class MatchResult(Value):
    """Games of one model against one opponent, seats rotated.

    ``score`` is the mean of each game's score: 1 won, 1/2 drawn, 0 lost with two players; with more, the share of
    opponents beaten, ties half. Games that were cut off are half a point there, and neither wins, draws nor losses:
    wins + draws + losses + truncated = games.

    ``rotations`` counts the games by what shares an opening or a deal: P games, the model in each seat. It says how
    many rotations brought none of the 2 P (P - 1) half points that there are (a game has one for every opponent tied,
    two for every opponent beaten), how many one, and so on. With two players these are the five counts of the
    pentanomial model.
    """

    opponent: str = Field(min_length=1, description="its role, for instance 'champion'; a built-in player's name")
    opponent_model: ModelHash | None
    opponent_elo: Rating | None = Field(description="None for one that was not rated then")
    games: PositiveInt
    wins: NonNegativeInt
    draws: NonNegativeInt
    losses: NonNegativeInt
    truncated: NonNegativeInt
    distinct_games: PositiveInt
    score: Rate
    rotations: tuple[NonNegativeInt, ...]

    @property
    def player(self) -> str:
        """Who the opponent is: its model's hash, or the name of a built-in player."""
        return self.opponent_model or self.opponent

    @model_validator(mode="after")
    def _rotations_are_of_these_games(self) -> Self:
        players = PLAYERS_OF.get(len(self.rotations))
        if players is None or not 0 <= self.games - players * sum(self.rotations) < players:
            raise ValueError(
                f"{sum(self.rotations)} rotations in {len(self.rotations)} counts are not those of {self.games} games; "
                "count each rotation of P games by its half points, from 0 to 2 P (P - 1)"
            )
        return self


class TrainingMetrics(Value):
    """What one PPO update looked like; means over its last epoch."""

    policy_loss: Figure
    value_loss: Figure
    entropy: Figure
    approx_kl: Figure
    clip_fraction: Figure
    explained_variance: Figure | None
    seconds: Seconds


class Evidence(Value):
    """Why a decision was taken: the evaluation, and the figure that decided."""

    evaluation_id: EventId
    statistic: str
    value: float
    threshold: float
    games: NonNegativeInt
    elo: Rating
    elo_stderr: RatingError
