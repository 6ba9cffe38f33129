"""The nodes that play: each works off its requests one after the other, dies and comes back, and tells of its life."""

from collections import deque
from collections.abc import Sequence
from datetime import timedelta

from app.config import RunSettings
from app.core import FlyballError, derive_id
from app.events import (
    DaemonFact,
    DaemonHeartbeat,
    DaemonReady,
    DaemonStarted,
    Envelope,
    Event,
    Payload,
    SelfplayRequested,
    originate,
)
from app.events.envelope import EPOCH
from app.runtime.work import Job, Json, Place, SelfplayWorker
from app.simulation.agenda import SECOND_US, Agenda, Happening
from app.simulation.play import NodePlay
from app.simulation.stations import told
from app.simulation.troubles import NodeTroubles
from app.simulation.world import World

PLAY = "app.selfplay.job:play"
BEATS_PER_SILENCE = 3
"""Heartbeats in the time after which a silent node counts as lost."""

Said = Sequence[Envelope[Payload]]


class Node:
    """One self-play worker on its node.

    Args:
        name: its name on the bus, ``selfplay_worker@node``.
        settings: of the run.
        world: the truth.
        agenda: what happens when.
        troubles: when it dies, and what else goes wrong on it.
    """

    def __init__(self, name: str, settings: RunSettings, world: World, agenda: Agenda, troubles: NodeTroubles) -> None:
        daemon, _, node = name.partition("@")
        self._name, self._who, self._agenda, self._troubles = name, {"daemon": daemon, "node": node}, agenda, troubles
        self._worker = SelfplayWorker(settings, Place(name, node, store=""))
        self._play = NodePlay(world, settings, node, troubles)
        self._beat_seconds = settings.feedback.scheduler.node_silent_seconds / BEATS_PER_SILENCE
        self._deadline_seconds = settings.deadlines.selfplay_seconds
        self._queue: deque[Event[SelfplayRequested]] = deque()
        self._playing: Event[SelfplayRequested] | None = None
        self._alive = False
        self._lives = self._said = 0

    @property
    def pending(self) -> int:
        """How many requests have no answer yet."""
        return len(self._queue) + (self._playing is not None)

    def boot(self) -> None:
        """Enter its start and its deaths in the agenda."""
        self._agenda.enter(0, self._name, self._start)
        for episode in self._troubles.dead:
            self._agenda.enter((episode.start_us - self._agenda.now_us) / SECOND_US, self._name, self._die)
            self._agenda.enter((episode.end_us - self._agenda.now_us) / SECOND_US, self._name, self._start)

    def request(self, event: Event[SelfplayRequested]) -> None:
        """Take in a request."""
        self._queue.append(event)
        self._play_next()

    def forget_requests(self) -> None:
        """Drop all requests, because the scheduler expects none from a quarantined worker."""
        self._queue.clear()
        self._playing = None

    def _start(self, now_us: int) -> Said:
        self._lives += 1
        self._alive = True
        self._agenda.enter(self._beat_seconds, self._name, self._beating(self._lives))
        self._play_next()
        started = DaemonStarted(**self._who, pid=self._lives, version="simulated")
        return self._say(now_us, started, DaemonReady(**self._who, position=0, capacity=1))

    def _die(self, now_us: int) -> Said:  # noqa: ARG002 - a happening's argument
        """Be gone without a word. What was being played is played anew after the next start."""
        self._alive = False
        if self._playing is not None:
            self._queue.appendleft(self._playing)
            self._playing = None
        return ()

    def _beating(self, life: int) -> Happening:
        def beat(now_us: int) -> Said:
            if not self._alive or life != self._lives:
                return ()
            self._agenda.enter(self._beat_seconds, self._name, beat)
            held = ([self._playing] if self._playing else []) + list(self._queue)
            requests = tuple(event.id for event in held[:2])
            jobs = int(self._playing is not None)
            return self._say(now_us, DaemonHeartbeat(**self._who, position=0, lag=0, jobs=jobs, requests=requests))

        return beat

    def _say(self, now_us: int, *facts: DaemonFact) -> Said:
        self._said += 1
        time = EPOCH + timedelta(microseconds=now_us)
        ids = (derive_id(self._name, self._said, index) for index in range(len(facts)))
        return [originate(fact, event_id=event_id, time=time) for fact, event_id in zip(facts, ids, strict=True)]

    def _play_next(self) -> None:
        if not self._alive or self._playing is not None or not self._queue:
            return
        event = self._playing = self._queue.popleft()
        job = Job(event.cause, event.data, PLAY, (), self._deadline_seconds)
        computed, life = self._play(job, self._agenda.now_us), self._lives

        def finish(now_us: int) -> Said:
            goes_on = self._alive and life == self._lives and self._playing is event
            return self._finish(job, computed.outcome, now_us) if goes_on else ()

        self._agenda.enter(computed.seconds, self._name, finish)

    def _finish(self, job: Job[SelfplayRequested], outcome: Json | FlyballError, now_us: int) -> Said:
        self._playing = None
        self._play_next()
        worker = self._worker
        if isinstance(outcome, FlyballError):
            return told(worker.failed(job, outcome), job, f"{worker.name}.failed", now_us)
        return told(worker.completed(job, outcome), job, f"{worker.name}.completed", now_us)
