"""Stall detection: improvement below the threshold for the whole window brings more exploration (seed 003 §3).

A stall is declared only when the *upper* confidence bound of the slope lies below the threshold and the history covers
the window (ERRATA 003). Boosts have a cap, a time to live, and decay step by step on recovery.

A configuration whose training is paused for the quality of its data is boosted too. While it pauses its model stays
what it is, and so do its games: without other moves the data would stay poor, and the pause would last for ever.
"""

from datetime import datetime

from app.config.feedback import StallSettings
from app.events import ExplorationBoost, Payload, PlateauDetected, Row
from app.feedback.state import FeedbackState
from app.feedback.trend import SECONDS_PER_HOUR, Slope, slope_per_hour

US = 1_000_000


class BoostRow(Row, frozen=True):
    """The exploration boost in force, when it was last set, when a stall was last looked for."""

    multiplier: float = 1.0
    set_us: int = 0
    checked_us: int = 0


Change = tuple[BoostRow, tuple[Payload, ...]]


def stalled_slope(state: FeedbackState, settings: StallSettings, now: datetime) -> Slope | None:
    """Return the slope when it says that improvement has stalled, else ``None``."""
    history = state.elo_history
    if not history or (now - history[0].time).total_seconds() < settings.window_hours * SECONDS_PER_HOUR:
        return None
    slope = slope_per_hour(history)
    return slope if slope and slope.upper(settings.confidence) < settings.velocity else None


def check_stall(
    row: BoostRow, state: FeedbackState, settings: StallSettings, now: datetime, now_us: int, *, paused: bool
) -> Change:
    """Look for a stall or a pause, at most once per ``check_seconds``; boost, renew, or let a boost decay."""
    if now_us - row.checked_us < settings.check_seconds * US:
        return row, ()
    row = row.model_copy(update={"checked_us": now_us})
    if row.set_us > 0 and now_us - row.set_us < settings.boost_hours * SECONDS_PER_HOUR * US:
        return row, ()
    if (slope := stalled_slope(state, settings, now)) is not None:
        plateau, reason = _plateau(slope, settings)
        row, boosts = _set(row, row.multiplier * settings.boost, settings, now_us, reason)
        return row, (plateau, *boosts)
    if paused:
        return _set(row, row.multiplier * settings.boost, settings, now_us, "the quality of its data pauses training")
    if row.multiplier > 1:
        return _set(row, row.multiplier / settings.boost, settings, now_us, "no stall and no pause any more")
    return row, ()


def _plateau(slope: Slope, settings: StallSettings) -> tuple[PlateauDetected, str]:
    upper = slope.upper(settings.confidence)
    plateau = PlateauDetected(velocity=slope.velocity, upper_bound=upper, window_hours=settings.window_hours)
    return plateau, f"velocity at most {upper:.1f} Elo/h, below {settings.velocity:g}, for {settings.window_hours:g} h"


def _set(row: BoostRow, wanted: float, settings: StallSettings, now_us: int, reason: str) -> Change:
    multiplier = min(settings.boost_cap, max(1.0, wanted))
    lasts = settings.boost_hours * SECONDS_PER_HOUR if multiplier > 1 else 0.0
    boost = ExplorationBoost(multiplier=multiplier, lasts_seconds=lasts, reason=reason)
    return row.model_copy(update={"multiplier": multiplier, "set_us": now_us}), (boost,)
