"""Stall detection: improvement below the threshold for the whole window brings more exploration (seed 003 §3).

A stall is declared only when the *upper* confidence bound of the slope lies below the threshold and the history covers
the window (ERRATA 003). Boosts have a cap, a time to live, and decay step by step on recovery.
"""

from datetime import datetime

from app.config.feedback import StallSettings
from app.events import ExplorationBoost, Payload, PlateauDetected, Value
from app.feedback.state import FeedbackState
from app.feedback.trend import SECONDS_PER_HOUR, Slope, slope_per_hour

US = 1_000_000


class BoostRow(Value):
    """The exploration boost in force, when it was last set, when a stall was last looked for."""

    multiplier: float = 1.0
    set_us: int = 0
    checked_us: int = 0


def stalled_slope(state: FeedbackState, settings: StallSettings, now: datetime) -> Slope | None:
    """Return the slope when it says that improvement has stalled, else ``None``."""
    history = state.elo_history
    if not history or (now - history[0].time).total_seconds() < settings.window_hours * SECONDS_PER_HOUR:
        return None
    slope = slope_per_hour(history)
    return slope if slope and slope.upper(settings.confidence) < settings.velocity else None


def check_stall(
    row: BoostRow, state: FeedbackState, settings: StallSettings, now: datetime, now_us: int
) -> tuple[BoostRow, tuple[Payload, ...]]:
    """Look for a stall, at most once per ``check_seconds``; boost, renew, or let a boost decay."""
    if now_us - row.checked_us < settings.check_seconds * US:
        return row, ()
    row = row.model_copy(update={"checked_us": now_us})
    alive = now_us - row.set_us < settings.boost_hours * SECONDS_PER_HOUR * US and row.set_us > 0
    slope = stalled_slope(state, settings, now)
    if slope is not None:
        return (row, ()) if alive else _boosted(row, slope, settings, now_us)
    if row.multiplier > 1 and not alive:
        return _decayed(row, settings, now_us)
    return row, ()


def _boosted(row: BoostRow, slope: Slope, settings: StallSettings, now_us: int) -> tuple[BoostRow, tuple[Payload, ...]]:
    upper = slope.upper(settings.confidence)
    multiplier = min(settings.boost_cap, row.multiplier * settings.boost)
    plateau = PlateauDetected(velocity=slope.velocity, upper_bound=upper, window_hours=settings.window_hours)
    reason = f"velocity at most {upper:.1f} Elo/h, below {settings.velocity:g}, for {settings.window_hours:g} h"
    boost = _boost(multiplier, settings, reason)
    return row.model_copy(update={"multiplier": multiplier, "set_us": now_us}), (plateau, boost)


def _decayed(row: BoostRow, settings: StallSettings, now_us: int) -> tuple[BoostRow, tuple[Payload, ...]]:
    multiplier = max(1.0, row.multiplier / settings.boost)
    boost = _boost(multiplier, settings, "no stall any more")
    return row.model_copy(update={"multiplier": multiplier, "set_us": now_us}), (boost,)


def _boost(multiplier: float, settings: StallSettings, reason: str) -> ExplorationBoost:
    lasts = settings.boost_hours * SECONDS_PER_HOUR if multiplier > 1 else 0.0
    return ExplorationBoost(multiplier=multiplier, lasts_seconds=lasts, reason=reason)
