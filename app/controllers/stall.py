"""Stall detection: slow improvement over the whole window brings an exploration boost.

A window spans as many ratings as six hours bring on a large cluster: minutes on a laptop (``StallSettings``). Its hours
are those of the clock, but the slope is that over worker time, so that a configuration with few workers is not stalled.
A stall is declared only when the *upper* confidence bound of the slope lies below the threshold and the history covers
the window. If a window's ratings are too few or too noisy, the window is widened until they suffice, and no further,
because old ratings say nothing about the present. No narrower window may show improvement, because improvement may
begin at any time. No window may show a decline, because a sudden drop makes a slope flat or negative even if the model
improves before and after it. Boosts are capped, expire, and decay step by step. A configuration that is plateaued has
been boosted in vain, and is not boosted again. A boost lasts until a rating has come since it was set, so that no stall
follows from what was known before the boost.

A configuration is also boosted while poor data pauses its training. During the pause its model stays the same, so
without more exploration its data would stay poor, and the pause would last for ever.

Each boost names its evidence: the last evaluation, the shard that pauses training, or the boost that ends.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from flyball.app.config.feedback import StallSettings
from flyball.app.controllers.controller import Watched
from flyball.app.controllers.state import FeedbackState
from flyball.app.controllers.trend import RatingPool, Slope, latest_slopes
from flyball.app.core import SECOND_US, SECONDS_PER_HOUR
from flyball.app.events import Cause, Emission, ExplorationBoost, PlateauDetected
from flyball.app.events.envelope import EPOCH

LEAST_GAIN = "feedback.stall.velocity x window_hours"
"""The settings whose product is the gain within a window below which there is a stall."""


def stalled(history: Sequence[RatingPool], settings: StallSettings, now: datetime) -> Slope | None:
    """Return the slope that shows a stall in a rating history, oldest first, or ``None``.

    The test uses the slope over the shortest time, at least the window, that fixes it to within ``precision``. This
    slope and those over shorter times, from the window on, must be below the threshold by ``margin`` standard errors.
    A slope that is certainly negative shows a drop, and then no stall is declared.
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
            return slope if slope.upper(settings.confidence) < settings.velocity else None
    return None


def check_stall(
    state: FeedbackState,
    settings: StallSettings,
    now_us: int,
    *,
    rated_by: Cause | None,
    inspected_by: Cause | None,
    overdue: bool,
) -> tuple[Emission, ...]:
    """Boost after a stall or a pause; otherwise let boosts decay.

    Nothing changes while a boost lasts, nor before it has been followed by a rating, unless ratings are overdue.

    Args:
        state: of the configuration.
        settings: of the rule, as configured.
        now_us: the time, microseconds since 1970 UTC.
        rated_by: the last evaluation, evidence of a stall.
        inspected_by: the last inspected shard, evidence of a pause.
        overdue: evaluations are overdue, so that the rating history says nothing about the present.
    """
    settings = settings.at(state.time_scale)
    multiplier, set_by = state.exploration_boost, state.boost_set_by
    lasts = state.boost_lasts_seconds if multiplier > 1 else settings.boost_hours * SECONDS_PER_HOUR
    if set_by is not None and now_us - set_by.recorded_us < lasts * SECOND_US:
        return ()
    now = EPOCH + timedelta(microseconds=now_us)
    unrated = _is_unrated(state)
    history = () if unrated or overdue or state.plateaued else state.elo_pools
    if (slope := stalled(history, settings, now)) is not None:
        plateau = PlateauDetected(
            velocity=slope.velocity,
            upper_bound=slope.upper(settings.confidence),
            window_hours=settings.window_hours,
            least_gain=settings.velocity * settings.window_hours,
        )
        boost = _boost(multiplier, settings.boost, settings, stall_text(plateau))
        return Emission(plateau, evidence=rated_by), Emission(boost, evidence=rated_by)
    if state.training_intensity == "paused":
        why = "the quality of its data pauses training (feedback.intensity.reduced)"
        boost = _boost(multiplier, settings.boost, settings, why)
        return (Emission(boost, evidence=inspected_by),)
    if multiplier > 1 and (not unrated or overdue or state.plateaued):
        why = "boosts did not end its stall" if state.plateaued else "its stall or pause is over"
        boost = _boost(multiplier, 1 / settings.boost, settings, why)
        return (Emission(boost, evidence=set_by),)
    return ()


def _is_unrated(state: FeedbackState) -> bool:
    """Return whether the latest rating is older than the latest change of the boost."""
    rated, set_by = state.last_evaluation_time, state.boost_set_by
    return rated is not None and set_by is not None and rated <= EPOCH + timedelta(microseconds=set_by.recorded_us)


def stall_text(data: PlateauDetected) -> str:
    """Return what showed a stall: the greatest likely gain in a window, and the threshold if it was recorded."""
    most = _elo_text(data.upper_bound * data.window_hours)
    text = f"it gains at most {most} Elo in {_window_text(data.window_hours)}"
    return text if data.least_gain is None else f"{text}, less than {_elo_text(data.least_gain)} ({LEAST_GAIN})"


def _elo_text(elo: float) -> str:
    """Return Elo with one decimal, without it if it is 0; never a power of ten."""
    return f"{elo:.1f}".removesuffix(".0")


def _window_text(hours: float) -> str:
    """Return a window's length with two digits."""
    return f"{hours * 60:.2g} min" if hours < 1.5 else f"{hours:.2g} h"


def watched_gain(state: FeedbackState, settings: StallSettings) -> Watched:
    """Return the gain that decides on a stall, and what the rule waits for."""
    scaled = settings.at(state.time_scale)
    bound = None
    if state.elo_velocity is not None and state.elo_velocity_stderr is not None:
        bound = (state.elo_velocity + settings.confidence * state.elo_velocity_stderr) * scaled.window_hours
    pools, boosted = state.elo_pools, state.boost_set_by
    minutes = (pools[-1].time - pools[0].time).total_seconds() / 60 if pools else 0.0
    window, waits, until = scaled.window_hours * 60, "", None
    if state.plateaued:
        waits = "it is plateaued, so that no boost is added"
    elif minutes < window:
        waits = f"ratings over {minutes:.1f} of {window:.1f} min"
        until = pools[0].time + timedelta(hours=scaled.window_hours) if pools else None
    elif boosted is not None and state.exploration_boost > 1:
        until = EPOCH + timedelta(microseconds=boosted.recorded_us, seconds=state.boost_lasts_seconds)
        waits = "a rating under the boost" if _is_unrated(state) else ""
    return Watched(
        what=f"greatest likely gain in a window of {_window_text(scaled.window_hours)}",
        value=bound,
        threshold=scaled.velocity * scaled.window_hours,
        acts="below",
        effect=f"exploration x {settings.boost:g}",
        setting=LEAST_GAIN,
        unit="Elo",
        waits=waits,
        until=until,
    )


def _boost(before: float, factor: float, settings: StallSettings, reason: str) -> ExplorationBoost:
    """Multiply the boost. The payload has no field for the boost before, so the reason names it.

    At its cap a boost stays as it is, for longer.
    """
    multiplier = min(settings.boost_cap, max(1.0, before * factor))
    lasts = settings.boost_hours * SECONDS_PER_HOUR if multiplier > 1 else 0.0
    changed = "raised from" if multiplier > before else "lowered from" if multiplier < before else "kept at"
    reason = f"the boost is {changed} {before:.3g} because {reason}"
    return ExplorationBoost(multiplier=multiplier, lasts_seconds=lasts, reason=reason)
