"""How good a shard of self-play is as food for training: one number in [0, 1], and why.

Each component is in [0, 1], 1 being as good as needed:

- ``diversity``: share of distinct positions among the rows; 1 from a share of 1/3 on.
- ``originality``: share of distinct games (whole histories); 1 from a share of 1/2 on.
- ``completion``: share of games that ended rather than being cut off; at least 1/10, since even a game that was
  cut off teaches, through the critic.
- ``balance``: entropy of who won the finished games (each seat, nobody); 1 from that of a 90:10 split on and when
  none finished, at least 1/10: two perfect players of a drawn game draw every time.
- ``entropy``: how undecided the players were, as a share of choosing evenly; 1 from 1/10 on.

The score is the weighted geometric mean: one hopeless component makes a hopeless shard, which an average would hide.
"""

from collections.abc import Sequence
from math import log, prod

from pydantic import Field

from app.config import Settings

WEIGHTS = {"diversity": 0.3, "originality": 0.2, "completion": 0.2, "balance": 0.15, "entropy": 0.15}
ENOUGH_DIVERSITY = 1 / 3
ENOUGH_ORIGINALITY = 1 / 2
ENOUGH_BALANCE = -(0.9 * log(0.9) + 0.1 * log(0.1))
ENOUGH_ENTROPY = 1 / 10
FLOOR = 1 / 10


class ShardStatistics(Settings):
    """Counts of a shard."""

    rows: int = Field(ge=1)
    distinct_positions: int = Field(ge=1)
    games: int = Field(ge=1)
    distinct_games: int = Field(ge=1)
    truncated_games: int = Field(ge=0)
    wins: tuple[int, ...] = Field(description="games won by each seat alone")
    drawn_games: int = Field(ge=0, description="games with no single winner, truncated ones not counted")
    surprise: float = Field(ge=0, description="mean of -log probability of the action taken, nats")
    freedom: float = Field(gt=0, description="mean of the log of the number of legal actions, nats")
    mean_length: float = Field(ge=0, description="decisions a game")


class QualityScore(Settings):
    """A shard's quality."""

    score: float = Field(ge=0, le=1)
    components: dict[str, float]


def quality_score(counted: ShardStatistics) -> QualityScore:
    """Score a shard from its statistics; see the module's text for the formula."""
    components = {
        "diversity": _share(counted.distinct_positions / counted.rows, ENOUGH_DIVERSITY),
        "originality": _share(counted.distinct_games / counted.games, ENOUGH_ORIGINALITY),
        "completion": max(FLOOR, 1 - counted.truncated_games / counted.games),
        "balance": max(FLOOR, _balance((*counted.wins, counted.drawn_games))),
        "entropy": _share(counted.surprise / counted.freedom, ENOUGH_ENTROPY),
    }
    return QualityScore(
        score=prod(components[name] ** weight for name, weight in WEIGHTS.items()), components=components
    )


def _share(value: float, enough: float) -> float:
    return min(1.0, value / enough)


def _balance(counts: Sequence[int]) -> float:
    total = sum(counts)
    if not total:
        return 1.0
    return _share(-sum(n / total * log(n / total) for n in counts if n), ENOUGH_BALANCE)
