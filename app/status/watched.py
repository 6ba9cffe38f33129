"""Lines of text about the values that controllers' rules watch."""

from datetime import datetime

from flyball.app.controllers.controller import Watched
from flyball.app.status.summary import UNKNOWN, show_age

FULL, EMPTY = "#", "."


def bar(rule: Watched, width: int) -> str:
    """Return how near a rule is to acting as a bar of characters; dashes where that is unknown."""
    if rule.progress is None:
        return f"[{'-' * width}]"
    full = int(rule.progress * width)
    return f"[{FULL * full}{EMPTY * (width - full)}]"


def amount(value: float | None, rule: Watched) -> str:
    """Return a value in a rule's unit; a dash if it is unknown."""
    match value, rule.unit:
        case None, _:
            return UNKNOWN
        case share, "%":
            return f"{share:.0%}"
        case number, "rows":
            return f"{number:,.0f} rows"
        case gain, "Elo":
            return f"{gain:+.1f} Elo"
    return f"{value:.3g}"


def acts_text(rule: Watched) -> str:
    """Return what a rule does, at which threshold, and from which side the value comes to it."""
    return f"{rule.effect} once it {'rises' if rule.acts == 'above' else 'falls'} to {amount(rule.threshold, rule)}"


def waits_text(rule: Watched, now: datetime) -> str:
    """Return what a rule waits for, and in about how long it decides; empty if it waits for nothing that is known."""
    left = 0.0 if rule.until is None else (rule.until - now).total_seconds()
    return ", ".join(filter(None, (rule.waits, f"decides in about {show_age(left)}" if left > 0 else "")))


def watched_text(rule: Watched, now: datetime) -> str:
    """Return what a rule compares, what it does at its threshold, the setting, and what it waits for."""
    text = f"{rule.what}: {amount(rule.value, rule)} ({acts_text(rule)}"
    text += f", {rule.setting})" if rule.setting else ")"
    waits = waits_text(rule, now)
    return f"{text}; {waits}" if waits else text
