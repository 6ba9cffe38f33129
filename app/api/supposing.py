"""Job that compares a run with decisions under other settings.

A page can wait for the job. ``flyball replay --what-if`` makes the same comparison.
"""

from collections import Counter
from time import monotonic

from pydantic import Field

from flyball.app.api.runs import locate_run, open_run
from flyball.app.config import FrozenModel
from flyball.app.config.loading import parse
from flyball.app.core import BadUsage
from flyball.app.engine import Report
from flyball.app.job_specs import job
from flyball.app.replay.divergences import WORK, divergence_name, divergence_text, read_divergences
from flyball.app.replay.what_if import Change
from flyball.app.status.summary import show_time

MOST_LISTED = 500
"""Most differences that the answer lists; it counts all."""

REPORT_SECONDS = 0.5


class WhatIfSpec(FrozenModel):
    """Arguments of the job: other settings, and the last position.

    ``assignments`` are settings as ``KEY=VALUE``. ``last`` is the last position that is folded.
    """

    run: str
    config_file: str | None = None
    assignments: tuple[str, ...]
    last: int = Field(ge=0)


class Difference(FrozenModel):
    """A conclusion that the settings change.

    Attributes:
        kind: missing, added, replaced or changed.
        config: the configuration that it is about; empty for all configurations.
        name: of the event.
        text: the conclusion, before and after.
        cause: position of the event that caused it.
        time: the cause's, in UTC.
        by: the controller.
        id: of the recorded event; None if the conclusion is added.
    """

    kind: Change
    config: str
    name: str
    text: str
    cause: int
    time: str
    by: str
    id: str | None


class Count(FrozenModel):
    """Number of differences of a kind."""

    config: str
    kind: Change
    name: str
    count: int


class WhatIfAnswer(FrozenModel):
    """Result of the job.

    Attributes:
        last: position of the last event that was folded.
        counts: all differences by configuration, kind and name.
        differences: the first of them, in the journal's order, without requests for work and choices of opponents.
        unlisted: number of further such differences.
    """

    last: int
    counts: tuple[Count, ...]
    differences: tuple[Difference, ...]
    unlisted: int


@job
def what_if(spec: WhatIfSpec, report: Report) -> WhatIfAnswer:
    """Compare, and report the ``position`` (a job).

    Raises ``BadUsage``, ``BadSettings`` or ``NotAJournal``.
    """
    if not spec.assignments:
        raise BadUsage("Say what would be different: KEY=VALUE.")
    values, reported = parse(spec.assignments), monotonic()

    def on_event(position: int) -> None:
        nonlocal reported
        if monotonic() - reported > REPORT_SECONDS:
            report({"position": position})
            reported = monotonic()

    counts: Counter[tuple[str, Change, str]] = Counter()
    listed, unlisted = list[Difference](), 0
    with open_run(locate_run(spec.run, spec.config_file)) as reader:
        last = min(spec.last, reader.head)
        divergences = read_divergences(reader, values, first=1, last=last, on_dead=lambda _: None, on_event=on_event)
        for divergence in divergences:
            config_key = divergence.envelope.subject or ""
            counts[config_key, divergence.kind, divergence_name(divergence)] += 1
            if not {type(envelope.data) for envelope in divergence.envelopes} - WORK:
                continue
            if len(listed) == MOST_LISTED:
                unlisted += 1
                continue
            listed.append(
                Difference(
                    kind=divergence.kind,
                    config=config_key,
                    name=divergence_name(divergence),
                    text=divergence_text(divergence),
                    cause=divergence.position,
                    time=show_time(divergence.time),
                    by=divergence.by,
                    id=divergence.before.id if divergence.before else None,
                )
            )
    return WhatIfAnswer(
        last=last,
        counts=tuple(
            Count(config=config_key, kind=kind, name=name, count=count)
            for (config_key, kind, name), count in sorted(counts.items())
        ),
        differences=tuple(listed),
        unlisted=unlisted,
    )
