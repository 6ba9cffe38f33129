"""Stall detection: slow improvement over the whole window brings an exploration boost.

A stall is declared only when the *upper* confidence bound of the slope lies below the threshold and the history covers
the window. Where the ratings of a window are too few or too noisy, it is widened until they suffice, and no further,
because old ratings say nothing about the present. None of the narrower windows may look like improvement, which may
have begun at any time, and none may show a decline: a line over a sudden drop is flat or falls, whatever was learned
before it and since. Boosts have a cap, a time to live, and decay step by step.

A configuration whose training is paused for the quality of its data is boosted too. While it pauses its model stays
what it is, and so do its games: without other moves the data would stay poor, and the pause would last for ever.

Each boost names the event that it follows from: the last evaluation, the shard that pauses training, or the boost that
ends.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from app.config.feedback import StallSettings
from app.controllers.trend import SECONDS_PER_HOUR, RatingPoint, Slope, latest_slopes
from app.events import Cause, Emission, ExplorationBoost, PlateauDetected, Row

US = 1_000_000


class BoostRow(Row, frozen=True):
    """The exploration boost in force, with the times of the last change and check.

    Attributes:
        lasts_seconds: how long an operator's boost lasts; ``None``: as long as those that are set here.
        set_by: the event that set it, once it is recorded.
    """

    multiplier: float = 1.0
    set_us: int = 0
    checked_us: int = 0
    lasts_seconds: float | None = None
    set_by: Cause | None = None


class Look(NamedTuple):
    """One configuration at one sweep.

    Attributes:
        now: the time.
        now_us: the same, microseconds since 1970.
        history: ratings, oldest first; empty where evaluations are overdue.
        evaluated: the last evaluation.
        paused_by: the shard whose quality pauses training; ``None`` when training is not paused.
    """

    now: datetime
    now_us: int
    history: Sequence[RatingPoint]
    evaluated: Cause | None
    paused_by: Cause | None


Change = tuple[BoostRow, tuple[Emission, ...]]


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


def check_stall(row: BoostRow, look: Look, settings: StallSettings) -> Change:
    """Look for a stall or a pause, at most once per ``check_seconds``; boost, renew, or let a boost decay."""
    if look.now_us - row.checked_us < settings.check_seconds * US:
        return row, ()
    row = row.replace(checked_us=look.now_us)
    lasts = settings.boost_hours * SECONDS_PER_HOUR if row.lasts_seconds is None else row.lasts_seconds
    if row.set_us > 0 and look.now_us - row.set_us < lasts * US:
        return row, ()
    if (stall := stalled(look.history, settings, look.now)) is not None:
        upper = stall.slope.upper(settings.confidence)
        plateau = PlateauDetected(velocity=stall.slope.velocity, upper_bound=upper, window_hours=stall.hours)
        reason = f"velocity at most {upper:.1f} Elo/h, below {settings.velocity:g}, for {stall.hours:.3g} h"
        boosted, boost = _set(row, row.multiplier * settings.boost, settings, look.now_us, reason)
        return boosted, (Emission(plateau, evidence=look.evaluated), Emission(boost, evidence=look.evaluated))
    if look.paused_by is not None:
        reason = "the quality of its data pauses training"
        boosted, boost = _set(row, row.multiplier * settings.boost, settings, look.now_us, reason)
        return boosted, (Emission(boost, evidence=look.paused_by),)
    if row.multiplier > 1:
        reason = "no stall and no pause any more"
        boosted, boost = _set(row, row.multiplier / settings.boost, settings, look.now_us, reason)
        return boosted, (Emission(boost, evidence=row.set_by),)
    return row, ()


def adopt_boost(row: BoostRow, boost: ExplorationBoost, now_us: int) -> BoostRow:
    """Go on from a boost that somebody else set; when one was lifted, the next is due as late as usual."""
    lasts = boost.lasts_seconds if boost.multiplier > 1 else None
    return row.replace(multiplier=boost.multiplier, set_us=now_us, lasts_seconds=lasts)


def _set(
    row: BoostRow, wanted: float, settings: StallSettings, now_us: int, reason: str
) -> tuple[BoostRow, ExplorationBoost]:
    multiplier = min(settings.boost_cap, max(1.0, wanted))
    lasts = settings.boost_hours * SECONDS_PER_HOUR if multiplier > 1 else 0.0
    boost = ExplorationBoost(multiplier=multiplier, lasts_seconds=lasts, reason=reason)
    return row.replace(multiplier=multiplier, set_us=now_us, lasts_seconds=None), boost
