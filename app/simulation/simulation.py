"""The closed loop on a virtual clock: controllers decide, the modelled cluster answers."""

from collections.abc import Callable, Sequence
from datetime import timedelta

from app.config import RunSettings
from app.controllers.fold import Failure, Fold
from app.core import derive_id
from app.events import ClockTick, Envelope, Event, Payload, RunConfigured, originate
from app.events.envelope import EPOCH
from app.simulation.agenda import SECOND_US, START_US, Agenda, VirtualBroker
from app.simulation.arms import Arm
from app.simulation.cluster import Cluster
from app.simulation.settings import PlantSettings
from app.simulation.world import World

BROKER, CONTROLLERS = "broker@cluster", "feedback@cluster"
Listener = Callable[[Event[Payload]], None]
"""Receives every event as it is recorded."""


class Simulation:
    """One run of the loop.

    Args:
        settings: of the run; ``selfplay_workers`` names the nodes. The first event holds them.
        plant: the parameters of the modelled cluster.
        arm: the controllers.
        seed: decides everything that is drawn; the same seed gives the same events.
        seconds: how much virtual time there is.
    """

    def __init__(self, settings: RunSettings, plant: PlantSettings, arm: Arm, seed: int, seconds: float) -> None:
        self.end_us = START_US + round(seconds * SECOND_US)
        self.settings = settings.replace(seed=seed)
        self.agenda, self.broker = Agenda(), VirtualBroker()
        self.world = World(plant, seed, self.end_us)
        self.cluster = Cluster(self.settings, self.world, self.agenda, self.end_us)
        self.fold = Fold((*arm.factories, *self.cluster.factories))
        self.failures: list[Failure] = []
        self.listeners: list[Listener] = []

    def run(self) -> None:
        """Run to the end."""
        self.start()
        self.continue_until(self.end_us)

    def start(self) -> None:
        """Record the settings first, then start the clock and the nodes."""
        self.agenda.enter(0, BROKER, self._configured)
        self.agenda.enter(self.settings.tick_seconds, BROKER, self._tick)
        self.cluster.boot()

    def continue_until(self, end_us: int) -> None:
        """Run up to a time."""
        while (appointment := self.agenda.next_until(end_us)) is not None:
            envelopes = appointment.happening(appointment.at_us)
            if envelopes:
                self._record(envelopes, appointment.at_us, appointment.source)

    def _record(self, envelopes: Sequence[Envelope[Payload]], now_us: int, source: str) -> None:
        for event in self.broker.record(envelopes, now_us, source):
            outcome = self.fold.feed((event,))
            self.cluster.observe(event, outcome.changed, self.fold.states)
            for listener in self.listeners:
                listener(event)
            self.failures += outcome.failures
            if concluded := outcome.envelopes:
                latency = self.world.plant.time.latency
                self.agenda.enter(latency, CONTROLLERS, lambda _, concluded=concluded: concluded)  # type: ignore[misc]

    def _configured(self, now_us: int) -> Sequence[Envelope[Payload]]:
        settings = self.settings.model_dump(mode="json")
        return self._envelope(
            RunConfigured(run_id=derive_id("simulation", self.settings.seed), settings=settings), now_us
        )

    def _tick(self, now_us: int) -> Sequence[Envelope[Payload]]:
        self.agenda.enter(self.settings.tick_seconds, BROKER, self._tick)
        return self._envelope(ClockTick(period_seconds=self.settings.tick_seconds), now_us)

    def _envelope(self, data: Payload, now_us: int) -> Sequence[Envelope[Payload]]:
        time = EPOCH + timedelta(microseconds=now_us)
        return (originate(data, event_id=derive_id(BROKER, data.event_name, now_us), time=time),)
