"""The obstacle that a configuration waits for an operator to remove, with a remedy."""

from flyball.app.config import RunSettings
from flyball.app.events import EvaluationOverdue
from flyball.app.status.configs import ConfigRow
from flyball.app.status.summary import one_line, short

MOST_SHOWN = 240
"""Characters of an error that are shown."""

MANY_FAILURES = 3
"""Failures in a row after which a configuration's status names them."""


def on_one_line(error: str) -> str:
    """Return an error in one line, at most about ``MOST_SHOWN`` characters.

    A longer error keeps its beginning, which says what failed, and its end, which a command wrote last.
    """
    text = one_line(error).rstrip(".")
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN // 2]} … {text[-MOST_SHOWN // 2 :]}"


def waiting_for(row: ConfigRow, settings: RunSettings) -> str | None:
    """Return the obstacle that a configuration waits for, with a remedy. ``None`` without an obstacle."""
    if (failed := row.undistributed) is not None:
        return f"model {short(failed.model)} cannot be distributed (attempt {failed.attempt}): {failed.error}"
    if row.blocked is not None:
        clean = settings.feedback.quality.parity_clear_checks
        return (
            f"training is blocked: {row.blocked}. {clean} shards in a row without a difference lift a block for "
            "parity. To lift any block: "
            f'flyball emit TRAINING_UNBLOCKED \'{{"reason": "WHY"}}\' --config-key {row.key}'
        )
    if row.paused:
        quality = "" if row.quality is None else f" {row.quality:.2f}"
        limit = f"{settings.feedback.intensity.reduced:g}"
        name, least = row.weakest or ("", 1.0)
        why = f", above all by {name} {least:.2f}" if least < 1 else ""
        return (
            f"training is paused: the quality{quality} of its data is below {limit}{why}. "
            "Games go on with more exploration. To train on such data, lower feedback.intensity.reduced, and "
            "min_quality to at most as much"
        )
    for noun, failing in row.failing.items():
        if failing.times >= MANY_FAILURES:
            return (
                f"{noun} failed {failing.times} times in a row, at last by {on_one_line(failing.error)}. "
                f"Traceback: logs/{noun}.jsonl. Failures: flyball tail {noun.upper()}_FAILED --config-key {row.key}"
            )
    return None if row.overdue is None else _overdue_text(row, row.overdue, settings)


def _overdue_text(row: ConfigRow, overdue: EvaluationOverdue, settings: RunSettings) -> str:
    """Return what an operator can do about an evaluation that does not come."""
    if settings.advises:
        return (
            f"no result came for {overdue.hours:.1f} h. Does the loop run, and write its files? What is read of them: "
            "flyball observe --check"
        )
    if overdue.model is None:
        return (
            f"no evaluation for {overdue.hours:.1f} h, and no training that asked for one. Look for failures: "
            f"flyball tail --config-key {row.key}"
        )
    times = "once" if overdue.attempts == 1 else f"{overdue.attempts} times"
    return (
        f"no evaluation for {overdue.hours:.1f} h, though that of {short(overdue.model)} was asked for {times}. "
        f"Look at the evaluation daemon, its log, and: flyball tail EVALUATION_FAILED --config-key {row.key}"
    )
