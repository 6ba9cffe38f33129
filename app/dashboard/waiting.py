"""What a configuration waits for, and what an operator can do about it."""

from app.config import RunSettings
from app.dashboard.configs import ConfigRow
from app.dashboard.summary import short


def waiting_for(row: ConfigRow, settings: RunSettings) -> str | None:
    """Say what a configuration waits for and what an operator can do; ``None`` where it waits for nothing."""
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
        return (
            f"training is paused: the quality{quality} of its data is below {settings.feedback.intensity.reduced:g}. "
            "Games go on with more exploration. To train on such data, lower feedback.intensity.reduced"
        )
    if (overdue := row.overdue) is None:
        return None
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
