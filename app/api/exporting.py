"""Exports of a recorded run to experiment trackers."""

from collections import defaultdict
from collections.abc import Callable
from hashlib import sha256

from flyball.app.api.runs import RunLocation, check_played, open_run
from flyball.app.core import ConfigKey, FlyballError
from flyball.app.events.frames import DeadLetter
from flyball.app.journal import history
from flyball.app.journal.history import first_configured, last_settings, voided_events
from flyball.app.replay.replaying import all_settings
from flyball.app.replay.run_points import RunPoints
from flyball.app.telemetry.trackers import Identity, TrackedPoint, Tracker


class NothingRecorded(FlyballError, code="unknown"):
    """The run has recorded no settings yet."""


def export_run(
    location: RunLocation, tracker: Tracker, config_key: str | None, on_dead: Callable[[DeadLetter], None]
) -> dict[str, int]:
    """Write what is recorded so far into a tracker, whether or not the run is running.

    Args:
        location: the run.
        tracker: receives one run for each configuration that the run plays.
        config_key: only this configuration.
        on_dead: called for each event that can't be read.

    Returns the number of events with values that were written, by configuration. Raises ``UnknownConfig`` or
    ``NothingRecorded``.
    """
    with open_run(location) as reader:
        first, settings = first_configured(reader), last_settings(reader)
        if first is None or settings is None:
            raise NothingRecorded(f"The run in {location.folder.path} has not begun yet.")
        if config_key is not None:
            check_played(reader, location, config_key)
        voided = voided_events(reader)
        folded = RunPoints(all_settings(reader), voided.keys(), first.recorded_us)
        events = (event for event in history(reader, on_dead=on_dead) if event.sequence not in voided)
        points = defaultdict[ConfigKey, list[TrackedPoint]](list)
        for event in events:
            for key, point in folded.take(event):
                points[key].append(point)
    run_id = sha256(f"{first.id} {first.recorded_us}".encode()).hexdigest()[:16]
    name, start_ms = location.folder.path.absolute().name, first.recorded_us // 1000
    written = {}
    for key in (config.key for config in settings.configs if config_key in (None, config.key)):
        run = tracker.open(Identity(run_id, name, key, start_ms, folded.settings(key)))
        new = [point for point in points[key] if point.position > run.after]
        for point in new:
            run.log(point)
        run.close(folded.summary(key))
        written[str(key)] = len({point.position for point in new})
    return written
