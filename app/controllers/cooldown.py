"""Cooldowns of rules: the least time between two changes, which enough ratings end sooner."""

from datetime import datetime, timedelta
from typing import NamedTuple

from flyball.app.config.feedback import GauntletSettings, LearningRateSettings
from flyball.app.controllers.state import FeedbackState
from flyball.app.core import SECOND_US, SECONDS_PER_HOUR
from flyball.app.events.envelope import EPOCH


class Wait(NamedTuple):
    """Reason and probable end of a rule's wait, as in ``Watched``."""

    waits: str = ""
    until: datetime | None = None


NOTHING = Wait()


def is_cooling(now_us: int, changed_us: int, ratings: int, limits: GauntletSettings | LearningRateSettings) -> bool:
    """Return whether a rule may not act yet.

    Args:
        now_us: the time, microseconds since 1970 UTC.
        changed_us: when it acted last; 0: never.
        ratings: number of ratings since then.
        limits: its settings.
    """
    cooldown_us = limits.cooldown_hours * SECONDS_PER_HOUR * SECOND_US
    return changed_us > 0 and now_us - changed_us < cooldown_us and ratings < limits.cooldown_ratings


def cooldown_wait(
    state: FeedbackState, changed_us: int, ratings: int, limits: GauntletSettings | LearningRateSettings
) -> Wait:
    """Return the cooldown that a rule waits for, at the latest check of the configuration. See ``is_cooling``."""
    changed = EPOCH + timedelta(microseconds=changed_us)
    checked = max(state.last_urgency_update or changed, changed)
    if not is_cooling((checked - EPOCH) // timedelta(microseconds=1), changed_us, ratings, limits):
        return NOTHING
    ends = changed + timedelta(hours=limits.cooldown_hours)
    rated = state.rating_expected(limits.cooldown_ratings - ratings)
    return Wait(
        f"cooldown, {ratings} of {limits.cooldown_ratings} ratings since its last change",
        ends if rated is None else min(ends, rated),
    )
