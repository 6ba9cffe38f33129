"""What a configuration waits for, and what an operator can do about it."""

from app.config import RunSettings
from app.dashboard.summary import short
from app.events import EvaluationOverdue, Value


class Waiting(Value):
    """Why a configuration does not train, or why nothing is known of what it learns.

    Attributes:
        blocked: the reason of the training block in force.
        paused: training is paused for the quality of data.
        quality: the quality that training was paused at; ``None`` where an operator paused it without saying.
        overdue: no evaluation comes.
    """

    blocked: str | None = None
    paused: bool = False
    quality: float | None = None
    overdue: EvaluationOverdue | None = None


def waiting_for(key: str, waiting: Waiting, settings: RunSettings) -> str | None:
    """Say what a configuration waits for and what an operator can do; ``None`` where it waits for nothing."""
    if waiting.blocked is not None:
        clean = settings.feedback.quality.parity_clear_checks
        return (
            f"training is blocked: {waiting.blocked}. {clean} shards in a row without a difference lift a block for "
            "parity. To lift any block: "
            f'flyball emit TRAINING_UNBLOCKED \'{{"reason": "WHY"}}\' --config-key {key}'
        )
    if waiting.paused:
        least = settings.feedback.intensity.reduced
        quality = "" if waiting.quality is None else f" {waiting.quality:.2f}"
        return (
            f"training is paused: the quality{quality} of its data is below {least:g}. Games go on with more "
            "exploration. To train on such data, lower feedback.intensity.reduced"
        )
    if waiting.overdue is None:
        return None
    overdue = f"no evaluation for {waiting.overdue.hours:.1f} h"
    if waiting.overdue.model is None:
        return f"{overdue}, and no training that asked for one. Look for failures: flyball tail --config-key {key}"
    times = "once" if waiting.overdue.attempts == 1 else f"{waiting.overdue.attempts} times"
    return (
        f"{overdue}, though that of {short(waiting.overdue.model)} was asked for {times}. "
        f"Look at the evaluation daemon, its log, and: flyball tail EVALUATION_FAILED --config-key {key}"
    )
