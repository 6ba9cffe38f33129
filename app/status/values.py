"""Values of FeedbackState as texts, for people."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from flyball.app.config import PARAMETERS
from flyball.app.controllers import RatingPoint, RatingPool
from flyball.app.controllers.lineage import Champion, DistributedModel
from flyball.app.controllers.state import WorkerTime
from flyball.app.events import Cause, MatchmakingUpdated, OpponentPick
from flyball.app.status.state import Field
from flyball.app.status.summary import short, show_time

UNSET = frozenset({"training_block", "boost_set_by", "matchmaking", "training", "candidate", "distributed"})
"""Fields whose ``None`` means "none", not "unknown"."""

BRIEF_PICKS = 2
"""Opponents that the table names; ``flyball state KEY matchmaking`` names all."""


def brief(value: Any) -> Any:
    """Return a value as the table shows it. A matchmaking is shown by its likeliest opponents."""
    if not isinstance(value, MatchmakingUpdated) or len(value.picks) <= BRIEF_PICKS + 1:
        return value
    likeliest = sorted(value.picks, key=lambda pick: -pick.probability)[:BRIEF_PICKS]
    return f"{_picks(likeliest)}, {len(value.picks) - BRIEF_PICKS} more"


def _picks(picks: Sequence[OpponentPick]) -> str:
    return ", ".join(f"{value_text(pick.agent)} {pick.probability:.0%}" for pick in picks)


def shown(name: str, value: Any, field: Field) -> str:
    """Return a field's value as text, with its owner if taken over; "as configured" for an undecided parameter."""
    text = value_text(value)
    if value is None and name in PARAMETERS:
        text = f"as configured; {field.fixed}" if field.fixed else "as configured"
    elif value is None and name in UNSET:
        text = "none"
    return f"{text}; owned by {field.owner}" if field.owner else text


def value_text(value: Any) -> str:  # noqa: C901 - one case a kind of value
    """Return one value as text."""
    match value:
        case None:
            return "unknown"
        case datetime():
            return show_time(value)
        case float():
            return f"{value:.4g}"
        case tuple():
            return f"{len(value)} in all"
        case RatingPoint() | RatingPool():
            return f"{value_text(value.time)}  {value.elo:+.0f} ± {value.stderr:.0f} Elo"
        case WorkerTime():
            share = value.evaluation / value.total if value.total else 0.0
            return f"{value.total:,.0f} s, {share:.0%} of it evaluation"
        case Champion():
            rating = "" if value.elo is None else f"  {value.elo:+.0f} ± {value.elo_stderr:.0f} Elo"
            return f"{short(value.model)}  step {value.step}{rating}"
        case DistributedModel():
            return f"{short(value.model)}  step {value.step}"
        case MatchmakingUpdated():
            return _picks(value.picks)
        case Cause():
            return short(value.id)
    return short(value) if isinstance(value, str) and len(value) in {32, 64} else str(value)
