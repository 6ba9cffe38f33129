"""The closed loop of controllers and modelled cluster on a virtual clock."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import cast

from flyball.app.config import RunSettings
from flyball.app.controllers.fold import Factory, Failure, Fold
from flyball.app.core import derive_id
from flyball.app.core.clock import SECOND_US
from flyball.app.events import ClockTick, Envelope, Event, Payload, RunConfigured, originate
from flyball.app.events.envelope import EPOCH
from flyball.app.simulation.agenda import Agenda
from flyball.app.simulation.arms import Arm, arm_settings
from flyball.app.simulation.cluster import BROKER, Cluster
from flyball.app.simulation.settings import PlantSettings
from flyball.app.simulation.world import START_US, World

CONTROLLERS = "feedback@cluster"
Listener = Callable[[Event[Payload]], None]
"""Receives every event as it is recorded."""


class VirtualBroker:
    """Records envelopes with new ids as the broker does: gapless positions from 1, times that never decrease."""

    def __init__(self) -> None:
        self.head = 0
        self.recorded_us = 0
        self._recorded_ids: set[str] = set()

    def record(self, envelopes: Sequence[Envelope[Payload]], now_us: int, source: str) -> list[Event[Payload]]:
        """Record the envelopes with new ids, and return them as events."""
        events = []
        self.recorded_us = max(self.recorded_us, now_us)
        for envelope in envelopes:
            if envelope.id not in self._recorded_ids:
                self._recorded_ids.add(envelope.id)
                self.head += 1
                events.append(Event(envelope, self.head, self.recorded_us, source))
        return events


class Simulation:
    """One run of the closed loop over ``seconds`` of virtual time.

    The setting ``selfplay_workers`` names the machines that play. All random numbers derive from the seed, so equal
    arguments give equal events.
    """

    def __init__(self, settings: RunSettings, plant: PlantSettings, arm: Arm, seed: int, seconds: float) -> None:
        self.end_us = START_US + round(seconds * SECOND_US)
        self.settings = arm_settings(settings, arm, seed)
        self.agenda, self.broker = Agenda(), VirtualBroker()
        self.world = World(plant, seed, self.end_us)
        self.cluster = Cluster(self.settings, self.world, self.agenda)
        self.fold = Fold(cast("tuple[Factory, ...]", (*arm, *self.cluster.factories)))
        self.failures: list[Failure] = []
        self.listeners: list[Listener] = []

    def run(self) -> None:
        """Run from the start to ``end_us``."""
        self.start()
        self.continue_until(self.end_us)

    def start(self) -> None:
        """Schedule the first events: the event with the settings, the first tick and the nodes' starts."""
        self.agenda.enter(0, BROKER, self._configure)
        self.agenda.enter(self.settings.tick_seconds, BROKER, self._tick)
        self.cluster.boot()

    def continue_until(self, end_us: int) -> None:
        """Run up to a virtual time, microseconds since 1970."""
        while (appointment := self.agenda.next_until(end_us)) is not None:
            envelopes = appointment.happening(appointment.at_us)
            for event in self.broker.record(envelopes, appointment.at_us, appointment.source) if envelopes else ():
                self._observe(event)

    def _observe(self, event: Event[Payload]) -> None:
        outcome = self.fold.feed((event,))
        self.cluster.observe(event, outcome.changed, self.fold.states)
        for listener in self.listeners:
            listener(event)
        self.failures += outcome.failures
        if concluded := outcome.envelopes:
            self.agenda.enter(self.world.plant.time.latency, CONTROLLERS, lambda _: concluded)

    def _configure(self, now_us: int) -> Sequence[Envelope[Payload]]:
        run_id, settings = derive_id("simulation", self.settings.seed), self.settings.model_dump(mode="json")
        return self._envelope(RunConfigured(run_id=run_id, settings=settings), now_us)

    def _tick(self, now_us: int) -> Sequence[Envelope[Payload]]:
        self.agenda.enter(self.settings.tick_seconds, BROKER, self._tick)
        return self._envelope(ClockTick(period_seconds=self.settings.tick_seconds), now_us)

    def _envelope(self, data: Payload, now_us: int) -> Sequence[Envelope[Payload]]:
        time = EPOCH + timedelta(microseconds=now_us)
        return (originate(data, event_id=derive_id(BROKER, data.event_name, now_us), time=time),)
