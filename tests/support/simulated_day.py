"""A simulated day of a cluster, and the same day repeated. The cluster has 36 nodes and 12 configurations."""

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import accumulate, pairwise
from pathlib import Path

from generated_run import _sealed

from flyball.app.api.runs import locate_run
from flyball.app.config import GAMES, RunSettings, nest
from flyball.app.events import Event, id_in
from flyball.app.events.envelope import EPOCH
from flyball.app.events.frames import Draft, Frame, FrameBuilder, Record, hash_id, seal
from flyball.app.simulation import Simulation, load_plant, simulated
from flyball.app.simulation.arms import CONTROLLERS

NODES = 36
DAY_SECONDS = 86_400
SETTINGS = simulated(NODES, tuple(GAMES)) | {"tick_seconds": 10.0}
"""The settings of `flyball simulate`, with the ticks of a real run."""


def settings() -> RunSettings:
    """Return the cluster's settings."""
    return locate_run("no run").load(nest(SETTINGS)).run


def simulated_day(seed: int = 0, days: float = 1.0) -> list[Event]:
    """Simulate with all controllers; return the events."""
    simulation = Simulation(settings(), load_plant(), CONTROLLERS, seed, days * DAY_SECONDS)
    events = list[Event]()
    simulation.listeners.append(events.append)
    simulation.run()
    return events


def records_of(events: Sequence[Event]) -> Iterator[Record]:
    """Seal events as the broker does. The events that one source publishes at one moment are one record."""
    waiting = list[Event]()
    for event in events:
        if waiting and (waiting[-1].source, waiting[-1].recorded_us) != (event.source, event.recorded_us):
            yield _sealed(waiting)
            waiting = []
        waiting.append(event)
    yield _sealed(waiting)


class RepeatedDay:
    """The records of a day, repeated on later days. Days are counted from 0."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._bodies = b"".join(body for record in records for body in record.frame.bodies())
        lengths = (length for record in records for length in record.frame.lengths)
        self._cuts = list(pairwise(accumulate(lengths, initial=0)))
        self.events = len(self._cuts)
        self.start = EPOCH + timedelta(microseconds=records[0].recorded_us)

    def stamped(self, day: int) -> Iterator[Record]:
        """Iterate over the records of a later day, with unchanged events.

        Only the records' positions and times of recording are those of the later day.
        """
        for record in self._records:
            yield self._sealed(record, record.frame, day)

    def records(self, day: int) -> Iterator[Record]:
        """Iterate over the records of a later day, with changed events.

        The events' ids and times are those of the later day, too.
        """
        date = (self.start + timedelta(days=day)).strftime("%Y-%m-%d").encode()
        bodies = re.sub(rb'"time":"\d{4}-\d\d-\d\d', b'"time":"' + date, self._bodies)
        bodies = re.sub(rb'"[0-9a-f]{3}([0-9a-f]{29})"', b'"%03x\\1"' % day, bodies)
        assert len(bodies) == len(self._bodies)
        cuts = iter(self._cuts)
        for record in self._records:
            frame, builder = record.frame, FrameBuilder(record.frame.producer)
            for kind, subject in zip(frame.type_refs, frame.subject_refs, strict=True):
                begin, end = next(cuts)
                body = bodies[begin:end]
                builder.add([Draft(hash_id(id_in(body) or ""), frame.types[kind], frame.subjects[subject], body)])
            yield self._sealed(record, Frame.parse(builder.build(frame.epoch + day * self.events, 0)), day)

    def _sealed(self, record: Record, frame: Frame, day: int) -> Record:
        first, recorded_us = record.first + day * self.events, record.recorded_us + day * DAY_SECONDS * 10**6
        return seal(frame, first=first, recorded_us=recorded_us, source=record.source)


def write_toml(folder: Path) -> None:
    """Write the cluster's settings into a run folder."""
    import json

    lines = (f"{key} = {json.dumps(value)}\n" for key, value in SETTINGS.items())
    (folder / "flyball.toml").write_text("".join(lines))
