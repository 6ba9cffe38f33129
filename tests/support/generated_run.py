"""A generated run: real controllers with a stand-in for all workers.

The stand-in is seeded, and the clock is virtual. The journal is what a run of so many events would leave: requests are
answered after a while, the broker ticks, data is now and then bad, models now and then worse. As the decisions in it
are the controllers' own, it replays without a difference. It does not model how strong models get;
flyball.app.simulation does.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from heapq import heappop, heappush
from itertools import count, islice
from math import exp
from pathlib import Path
from random import Random
from typing import Any

from driving import folded, match_of, rated

from flyball.app.config import GAMES, LAPTOP, PROFILES, RunSettings
from flyball.app.controllers.fold import Fold
from flyball.app.core import BROKER, RANDOM, Elo, expected_score
from flyball.app.events import (
    ClockTick,
    DaemonReady,
    DaemonStarted,
    Envelope,
    EvaluationFailed,
    EvaluationRequested,
    Event,
    MatchesRequested,
    MatchResult,
    ModelDistributed,
    ModelPromoted,
    ModelRolledBack,
    NodeProbed,
    ParityChecked,
    Payload,
    QualityDegraded,
    QualityScoreUpdated,
    RollCall,
    RollEntry,
    RunConfigured,
    SelfplayComplete,
    SelfplayFailed,
    SelfplayRequested,
    ShardRef,
    TrainingCompleted,
    TrainingFailed,
    TrainingProgress,
    TrainingRequested,
    TrainingStarted,
    follow,
    originate,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.events.frames import Frame, frame_of, seal
from flyball.app.journal import SqliteJournal
from flyball.app.replay.replaying import controllers
from flyball.daemons.registry import DAEMONS

START_US = 1_770_000_000 * 10**6
LATENCY = 0.002
"""Seconds from an event to the events that follow from it."""

WORKER = "selfplay_worker"
HOSTS = {controller.name: name for name, spec in DAEMONS.items() for controller in spec.controllers}
Asked = EvaluationRequested | MatchesRequested
Fact = tuple[float, str, Payload]
"""Seconds from now, the producer, and its payload."""


def laptop(**changes: Any) -> RunSettings:
    """Return the laptop's settings with some changes."""
    return RunSettings.model_validate({"configs": [GAMES[key].model_dump() for key in LAPTOP]} | changes)


def cluster(nodes: int = 36) -> RunSettings:
    """Return the settings of a cluster.

    It has all configurations, a worker on each node, and more rows for each training.
    """
    configs = [game.replace(rows_per_training=40_960) for game in map(GAMES.__getitem__, PROFILES["full"])]
    return RunSettings(configs=tuple(configs), selfplay_workers=tuple(f"{WORKER}@node-{n:02}" for n in range(nodes)))


def hasty() -> RunSettings:
    """Return settings that turn the hours of a run into minutes. Controllers check, act and cool down sooner."""
    soon = {"cooldown_hours": 0.01}
    return laptop(
        selfplay_workers=(f"{WORKER}@laptop", f"{WORKER}@other"),
        feedback={
            "stall": {"check_seconds": 5, "window_hours": 0.02, "boost_hours": 0.01, "confidence": 1.0}
            | dict.fromkeys(("velocity", "precision"), 4000.0),
            "gauntlet": soon,
            "learning_rate": soon,
            "curriculum": {"rebalance_seconds": 20},
            "intensity": {"cooldown_seconds": 5},
            "anomaly": {"warm_up": 3, "deviations": 3.0},
            "nodes": {"pause_seconds": 1, "longest_pause_seconds": 5, "quarantine_seconds": 5},
        },
    )


class StandIn:
    """A stand-in that answers requests as workers would.

    ``pace`` stretches the time of jobs, which is ``play_seconds`` for self-play; ``trouble`` multiplies failures.
    The troubles: jobs fail, losses spike, data is poor for a while, games break the rules, candidates are worse, and
    promoted models turn out to play worse than their evaluation showed.
    """

    def __init__(self, settings: RunSettings, seed: int, pace: float, trouble: float, play_seconds: float) -> None:
        self._settings, self._random, self._pace, self._trouble = settings, Random(seed), pace, trouble
        self._play_seconds = play_seconds
        self._strength: dict[str | None, float] = {None: 0.0}
        self._champions: dict[str, deque[str]] = {}
        self._free_at: dict[str, float] = {}
        self._bad_until: dict[str, float] = {}
        self._made = count(1)

    def answer(self, event: Event[Payload], now: float) -> Iterable[Fact]:
        """Return the facts with which workers answer an event."""
        match event.data:
            case TrainingRequested() as request:
                return self._train(event, request, now)
            case EvaluationRequested() | MatchesRequested(purpose="retest") as request:
                return self._evaluate(event, request, now)
            case SelfplayRequested() as request:
                return self._play(event, request, now)
            case SelfplayComplete() as played:
                return self._inspect(event, played, now)
            case ModelPromoted(model=model, step=step):
                self._champions.setdefault(event.subject, deque(maxlen=6)).append(model)
                self._strength[model] -= 250 * self._happens(0.005)
                return ((0.05, "distribution@laptop", ModelDistributed(model=model, step=step, nodes=("laptop",))),)
            case ModelRolledBack(to_model=model, step=step):
                self._champions[event.subject].append(model)
                return ((0.05, "distribution@laptop", ModelDistributed(model=model, step=step, nodes=("laptop",))),)
        return ()

    def _busy(self, daemon: str, now: float, seconds: float) -> float:
        """Occupy a daemon for a job; return the seconds to its end."""
        done = max(now, self._free_at.get(daemon, 0.0)) + seconds * self._pace * self._random.uniform(0.7, 1.3)
        self._free_at[daemon] = done
        return done - now

    def _happens(self, probability: float) -> bool:
        return self._random.random() < probability * self._trouble

    def _hash(self) -> str:
        return f"{next(self._made):064x}"

    def _train(self, event: Event[Payload], request: TrainingRequested, now: float) -> Iterable[Fact]:
        rows = sum(shard.rows for shard in request.shards)
        began = self._busy("training@laptop", now, 0.1)
        yield began, "training@laptop", TrainingStarted(request_id=event.id, base_model=request.base_model, rows=rows)
        if request.base_model is None:
            model = self._hash()
            self._strength[model] = 0.0
            first = {"parent": None, "step": 0, "rows": 0, "metrics": None}
            complete = TrainingCompleted(request_id=event.id, model=model, seconds=1.0, **first)
            yield began, "training@laptop", complete
            return
        for epoch in range(1, request.epochs + 1):
            done = self._busy("training@laptop", now, 0.5)
            yield done, "training@laptop", self._progress(event, epoch, request.epochs)
        done = self._busy("training@laptop", now, 0.1)
        if self._happens(0.01):
            reason = self._random.choice(("diverged", "error"))
            yield done, "training@laptop", TrainingFailed(request_id=event.id, reason=reason, error="it failed")
            return
        yield done, "training@laptop", self._trained(event, request, rows)

    def _progress(self, event: Event[Payload], epoch: int, epochs: int) -> TrainingProgress:
        noise = self._random.gauss
        return TrainingProgress(
            request_id=event.id,
            epoch=epoch,
            epochs=epochs,
            metrics={
                "policy_loss": noise(-0.02, 0.005),
                "value_loss": abs(noise(0.3, 0.05)),
                "entropy": abs(noise(1.1, 0.1)),
                "approx_kl": abs(noise(0.01, 0.003)),
                "clip_fraction": abs(noise(0.1, 0.02)),
            },
        )

    def _trained(self, event: Event[Payload], request: TrainingRequested, rows: int) -> TrainingCompleted:
        model, base = self._hash(), self._strength[request.base_model]
        gain = self._random.gauss(60 * exp(-base / 200), 15)
        self._strength[model] = base + (-120 if self._happens(0.02) else gain)
        spike = 20.0 if self._happens(0.01) else 1.0
        metrics = {
            "policy_loss": -0.02,
            "value_loss": abs(self._random.gauss(0.3, 0.05)) * spike,
            "entropy": 1.1,
            "approx_kl": abs(self._random.gauss(0.01, 0.003)),
            "clip_fraction": 0.1,
            "explained_variance": self._random.random(),
            "seconds": 1.0,
        }
        return TrainingCompleted(
            request_id=event.id,
            model=model,
            parent=request.base_model,
            step=request.step + 1,
            rows=rows,
            metrics=metrics,
            seconds=1.0,
        )

    def _evaluate(self, event: Event[Payload], request: Asked, now: float) -> Iterable[Fact]:
        done = self._busy("evaluation@laptop", now, 1.0)
        if self._happens(0.01):
            error = {"purpose": request.purpose, "model": request.model, "error": "it failed"}
            yield done, "evaluation@laptop", EvaluationFailed(request_id=event.id, **error)
            return
        players = self._settings.config(event.subject).players
        met = self._opponents(event.subject, request)
        results = [self._match(request.model, name, other, games, players) for name, other, games in met]
        elo = Elo(self._strength[request.model] + self._random.gauss(0, 20))
        result = rated(elo, *results, model=request.model, step=request.step)
        yield done, "evaluation@laptop", result.replace(request_id=event.id, purpose=request.purpose, seconds=done)

    def _opponents(self, key: str, request: Asked) -> Iterable[tuple[str, str | None, int]]:
        """Iterate over a model's opponents: roles, models and numbers of games."""
        if isinstance(request, MatchesRequested):
            yield from ((name, None if name == RANDOM else name, request.games) for name in request.opponents)
            return
        champions = self._champions.get(key, ())
        if champions and request.purpose == "rating":
            yield "recent", champions[0], 100
        if champions:
            yield "champion", champions[-1], 100
        if request.purpose == "rating":
            yield RANDOM, None, self._settings.config(key).evaluation.random_games

    def _match(self, model: str, name: str, opponent: str | None, games: int, players: int) -> MatchResult:
        expected = expected_score(self._strength[model] - self._strength[opponent])
        wins = sum(self._random.random() < expected for _ in range(games))
        return match_of(wins, 0, games - wins, name, Elo(self._strength[opponent]), opponent, players)

    def _play(self, event: Event[Payload], request: SelfplayRequested, now: float) -> Iterable[Fact]:
        done = self._busy(request.worker, now, self._play_seconds)
        if self._happens(0.005):
            yield done, request.worker, SelfplayFailed(request_id=event.id, worker=request.worker, error="it failed")
            return
        rows = max(1, int(request.games * self._random.gauss(10, 1)))
        shard = ShardRef(
            worker=request.worker,
            key=self._hash(),
            rows=rows,
            games=request.games,
            model=request.model,
            seed=request.seed,
        )
        complete = SelfplayComplete(
            request_id=event.id,
            probe=request.probe,
            shard=shard,
            opponents=tuple({name for lineup in request.lineups for name in lineup.opponents} - {request.model}),
            temperature=request.temperature,
            mean_length=10.0,
            truncated_games=0,
            seconds=self._play_seconds,
        )
        yield done, request.worker, complete

    def _inspect(self, event: Event[Payload], played: SelfplayComplete, now: float) -> Iterable[Fact]:
        done = self._busy("quality_monitor@laptop", now, 0.05)
        about: Any = {"request_id": played.request_id, "worker": played.shard.worker, "shard": played.shard.key}
        if played.probe:
            yield done, "quality_monitor@laptop", NodeProbed(**about, score=0.85, error=None)
            return
        if self._happens(0.002):
            yield done, "quality_monitor@laptop", QualityDegraded(**about, reason="it is damaged")
            return
        if self._happens(0.001):  # a spell of poor data
            self._bad_until[event.subject] = now + 300 * self._pace
        bad = now < self._bad_until.get(event.subject, 0.0)
        failures = int(self._happens(0.001))
        yield done, "quality_monitor@laptop", ParityChecked(**about, against="openspiel", checked=8, failures=failures)
        score = min(1.0, max(0.0, self._random.gauss(0.2 if bad else 0.85, 0.05)))
        components = {"diversity": score, "length": 1.0, "balance": score}
        judged = QualityScoreUpdated(
            request_id=played.request_id, shard=played.shard, score=score, components=components, seconds=0.1
        )
        yield done, "quality_monitor@laptop", judged


class GeneratedRun:
    """An endless run, as an iterable of its events. The same arguments give the same events."""

    def __init__(
        self,
        settings: RunSettings | None = None,
        *,
        seed: int = 0,
        pace: float = 1.0,
        trouble: float = 1.0,
        play_seconds: float = 0.4,
        roll_seconds: float = 60.0,
    ) -> None:
        self._settings = settings or laptop()
        self._stand_in = StandIn(self._settings, seed, pace, trouble, play_seconds)
        self._fold = Fold(controllers())
        self._roll_seconds, self._tick_seconds = roll_seconds, self._settings.tick_seconds
        self._sources = [f"{name}@laptop" for name in DAEMONS if name != WORKER] + [*self._settings.selfplay_workers]
        self._due: list[tuple[int, int, str, Envelope[Payload] | Callable[[], None]]] = []
        self._order, self._spoken = count(), count()
        self._unsaid: dict[str, deque[int]] = {name: deque() for name in DAEMONS}
        self._head, self._us = 0, START_US

    def __iter__(self) -> Iterator[Event[Payload]]:
        """Iterate over all events, without end."""
        settings = self._settings.model_dump(mode="json")
        self._say(0.0, f"{BROKER}@laptop", RunConfigured(run_id="generated", settings=settings))
        for number, source in enumerate(self._sources):
            who, capacity = _who(source), DAEMONS[_daemon(source)].capacity
            self._say(0.01 + number / 1000, source, DaemonStarted(**who, pid=100 + number, version="0"))
            self._say(0.1 + number / 1000, source, DaemonReady(**who, position=0, capacity=capacity))
        self._schedule(1.0, BROKER, self._tick)
        self._schedule(1.0, BROKER, self._call_roll)
        while True:
            self._us, _, source, due = heappop(self._due)
            if callable(due):
                due()
            else:
                yield self._record(source, due)

    def _schedule(self, seconds: float, source: str, due: Envelope[Payload] | Callable[[], None]) -> None:
        heappush(self._due, (self._us + int(seconds * 1e6), next(self._order), source, due))

    def _say(self, seconds: float, source: str, fact: Payload) -> None:
        time = EPOCH + timedelta(microseconds=self._us)
        self._schedule(seconds, source, originate(fact, event_id=f"{source}-{next(self._spoken)}", time=time))

    def _tick(self) -> None:
        self._say(0.0, f"{BROKER}@laptop", ClockTick(period_seconds=self._tick_seconds))
        self._schedule(self._tick_seconds, BROKER, self._tick)

    def _call_roll(self) -> None:
        entries = []
        for source in sorted(self._sources):
            unsaid = self._unsaid[_daemon(source)]
            position = unsaid[0] - 1 if unsaid else self._head
            entries.append(RollEntry(**_who(source), position=position, lost=False))
        self._say(0.0, f"{BROKER}@laptop", RollCall(daemons=tuple(entries)))
        self._schedule(self._roll_seconds, BROKER, self._call_roll)

    def _record(self, source: str, envelope: Envelope[Payload]) -> Event[Payload]:
        self._head += 1
        event = Event(envelope, self._head, self._us, source)
        unsaid = self._unsaid[_daemon(source)]
        if unsaid and envelope.causationid:
            unsaid.popleft()
        for conclusion in folded(self._fold, event).conclusions:
            host = HOSTS[conclusion.by]
            self._unsaid[host].append(conclusion.position)
            self._schedule(LATENCY, f"{host}@laptop", conclusion.envelope)
        for number, (seconds, by, fact) in enumerate(self._stand_in.answer(event, self._us / 1e6)):
            time = EPOCH + timedelta(microseconds=self._us + int(seconds * 1e6))
            said = follow(fact, event.cause, by=f"{_daemon(by)}.job", index=number, time=time)
            self._schedule(seconds, by, said)
        return event


def _daemon(source: str) -> str:
    return source.partition("@")[0]


def _who(source: str) -> dict[str, str]:
    daemon, _, node = source.partition("@")
    return {"daemon": daemon, "node": node}


def generated(events: int, **how: Any) -> Iterator[Event[Payload]]:
    """Iterate over the first events of a run."""
    return islice(GeneratedRun(**how), events)


def write_generated(path: Path, events: Iterable[Event[Payload]]) -> None:
    """Write events into a journal as the broker does.

    The events that one producer publishes at one moment are one record.
    """
    journal = SqliteJournal(path)
    waiting: list[Event[Payload]] = []
    records: list[Any] = []
    for event in events:
        if waiting and (waiting[-1].source, waiting[-1].recorded_us) != (event.source, event.recorded_us):
            records.append(_sealed(waiting))
            waiting = []
        if len(records) >= 1000:
            journal.append(records)
            records = []
        waiting.append(event)
    journal.append([*records, _sealed(waiting)])
    journal.maintain()
    journal.close()


def _sealed(events: Sequence[Event[Payload]]) -> Any:
    first = events[0]
    frame = frame_of([event.envelope for event in events], producer=first.source, epoch=first.sequence, base=0)
    return seal(Frame.parse(frame), first=first.sequence, recorded_us=first.recorded_us, source=first.source)
