"""Participants in processes of their own, and what a journal counts twice."""

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from running_loop import RunningLoop

from flyball.app.events import (
    EvaluationCompleted,
    EvaluationFailed,
    ModelPromoted,
    QualityScoreUpdated,
    SelfplayComplete,
    SelfplayFailed,
    TrainingCompleted,
    TrainingFailed,
    TrainingRequested,
)

BRISK = "\n[deployment]\nheartbeat_seconds = 0.5\nnode_silent_seconds = 3.0\ndrain_seconds = 3.0\n"
"""Settings by which a loop soon notices that a participant is gone."""

RESULTS = (
    (SelfplayComplete, SelfplayFailed),
    (TrainingCompleted, TrainingFailed),
    (EvaluationCompleted, EvaluationFailed),
)


@contextmanager
def participant(folder: Path, *words: str, stderr: Any = None) -> Iterator[subprocess.Popen[bytes]]:
    """Start a participant in the run folder; end it as its supervisor would."""
    process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stderr=stderr)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        finally:
            process.kill()
            process.wait()


def promoted(loop: RunningLoop, after: int = 0) -> list[int]:
    """Return the steps of trained models that were promoted."""
    return [event.data.step for event in loop.events(ModelPromoted, after=after) if event.data.step > 0]


def twice(loop: RunningLoop) -> list[str]:
    """Return the requests that have two results, and the shards that were judged or learned from twice."""
    faults = []
    for kinds in RESULTS:
        counts = Counter(event.data.request_id for event in loop.events(*kinds))
        faults += [f"{kinds[0].event_name} {request}: {count}" for request, count in counts.items() if count > 1]
    judged = Counter(event.data.shard.key for event in loop.events(QualityScoreUpdated))
    completed = {event.data.request_id for event in loop.events(TrainingCompleted)}
    requests = [event for event in loop.events(TrainingRequested) if event.id in completed]
    learned = Counter(ref.key for event in requests for ref in event.data.shards)
    faults += [f"judged {key}: {count}" for key, count in judged.items() if count > 1]
    return faults + [f"learned {key}: {count}" for key, count in learned.items() if count > 1]
