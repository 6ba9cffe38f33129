"""Stall detection: improvement below the threshold for the whole window brings more exploration (seed 003 §3).

A stall is declared only when the *upper* confidence bound of the slope lies below the threshold and the history covers
the window (ERRATA 003). Where the ratings of a window are too few or too noisy to tell, it is widened until they do,
no further: what was long ago says nothing of now. None of the narrower windows may look like improvement, which may
have begun at any time, and none may show a decline: a line over a sudden drop is flat or falls, whatever was learned
before it and since. Boosts have a cap, a time to live, and decay step by step.

A configuration whose training is paused for the quality of its data is boosted too. While it pauses its model stays
what it is, and so do its games: without other moves the data would stay poor, and the pause would last for ever.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from app.config.feedback import StallSettings
from app.events import ExplorationBoost, Payload, PlateauDetected, Row
from app.feedback.state import FeedbackState
from app.feedback.trend import SECONDS_PER_HOUR, RatingPoint, Slope, latest_slopes

US = 1_000_000


class BoostRow(Row, frozen=True):
    """The exploration boost in force, when it was last set, when a stall was last looked for.

    Attributes:
        lasts_seconds: how long an operator's boost lasts; ``None``: as long as those that are set here.
    """

    multiplier: float = 1.0
    set_us: int = 0
    checked_us: int = 0
    lasts_seconds: float | None = None


Change = tuple[BoostRow, tuple[Payload, ...]]


class Stall(NamedTuple):
    """The slope that says that improvement has stalled, and over which time, hours."""

    slope: Slope
    hours: float


def stalled(history: Sequence[RatingPoint], settings: StallSettings, now: datetime) -> Stall | None:
    """Return the stall that a history of ratings, oldest first, shows; ``None`` when it shows none.

    What counts is the slope over the shortest time, no shorter than the window, in which it is certain to within
    ``precision``. That and all shorter ones must be below the threshold by ``margin`` standard errors too. Where the
    slope is certainly negative a drop lies within: looking back ends there, and what came since has to tell by itself.
    """
    for first, slope in latest_slopes(history):
        if slope.upper(settings.confidence) < 0:
            return None
        hours = (now - first.time).total_seconds() / SECONDS_PER_HOUR
        if hours < settings.window_hours:
            continue
        if slope.upper(settings.margin) >= settings.velocity:
            return None
        if settings.confidence * slope.stderr <= settings.precision:
            return Stall(slope, hours) if slope.upper(settings.confidence) < settings.velocity else None
    return None


def check_stall(
    row: BoostRow, state: FeedbackState, settings: StallSettings, now: datetime, now_us: int, *, paused: bool
) -> Change:
    """Look for a stall or a pause, at most once per ``check_seconds``; boost, renew, or let a boost decay."""
    if now_us - row.checked_us < settings.check_seconds * US:
        return row, ()
    row = row.model_copy(update={"checked_us": now_us})
    lasts = settings.boost_hours * SECONDS_PER_HOUR if row.lasts_seconds is None else row.lasts_seconds
    if row.set_us > 0 and now_us - row.set_us < lasts * US:
        return row, ()
    if (stall := stalled(state.elo_history, settings, now)) is not None:
        plateau, reason = _plateau(stall, settings)
        row, boosts = _set(row, row.multiplier * settings.boost, settings, now_us, reason)
        return row, (plateau, *boosts)
    if paused:
        return _set(row, row.multiplier * settings.boost, settings, now_us, "the quality of its data pauses training")
    if row.multiplier > 1:
        return _set(row, row.multiplier / settings.boost, settings, now_us, "no stall and no pause any more")
    return row, ()


def adopt_boost(row: BoostRow, boost: ExplorationBoost, now_us: int) -> BoostRow:
    """Go on from a boost that somebody else set; when one was lifted, the next is due as late as usual."""
    lasts = boost.lasts_seconds if boost.multiplier > 1 else None
    return row.model_copy(update={"multiplier": boost.multiplier, "set_us": now_us, "lasts_seconds": lasts})


def _plateau(stall: Stall, settings: StallSettings) -> tuple[PlateauDetected, str]:
    upper = stall.slope.upper(settings.confidence)
    plateau = PlateauDetected(velocity=stall.slope.velocity, upper_bound=upper, window_hours=stall.hours)
    return plateau, f"velocity at most {upper:.1f} Elo/h, below {settings.velocity:g}, for {stall.hours:.3g} h"


def _set(row: BoostRow, wanted: float, settings: StallSettings, now_us: int, reason: str) -> Change:
    multiplier = min(settings.boost_cap, max(1.0, wanted))
    lasts = settings.boost_hours * SECONDS_PER_HOUR if multiplier > 1 else 0.0
    boost = ExplorationBoost(multiplier=multiplier, lasts_seconds=lasts, reason=reason)
    return row.model_copy(update={"multiplier": multiplier, "set_us": now_us, "lasts_seconds": None}), (boost,)
