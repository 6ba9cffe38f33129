"""The observer: publishes facts from the files of an observed loop (ADR-039).

It keeps no state. At its start it reads the files from their beginning, and the journal for what it published earlier.
The ids of facts derive from the rule, the file and the record, so that a record is published once.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from heapq import merge
from os import getpid
from typing import Any, NamedTuple

import structlog

from flyball.app.bus import Bus, ZmqBus
from flyball.app.bus.ports import Sign
from flyball.app.config import RunFolder
from flyball.app.config.loading import Loaded
from flyball.app.config.observing import ObservedFact
from flyball.app.core import (
    NAME_LENGTH,
    OBSERVER,
    Elo,
    EventId,
    FlyballError,
    ModelHash,
    ShardKey,
    derive_id,
    is_observer,
)
from flyball.app.events import (
    DaemonFact,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    EloUpdated,
    Envelope,
    EvaluationCompleted,
    Event,
    Evidence,
    ModelPromoted,
    Payload,
    QualityScoreUpdated,
    SelfplayComplete,
    ShardRef,
    TrainingCompleted,
    originate,
)
from flyball.app.events.payload import Purpose
from flyball.app.league.pool import Pool
from flyball.app.league.ratings import LEAST_ERROR, Estimate
from flyball.app.league.totals import totals_of
from flyball.app.observing.following import FollowedFile, Problem, Record
from flyball.app.observing.mapping import (
    AnyObserved,
    ObservedEvaluation,
    ObservedPromotion,
    ObservedRule,
    ObservedSelfplay,
    ObservedTraining,
)
from flyball.daemons.clock import SystemClock, boot_id
from flyball.daemons.evaluation import RECENT, rated_together
from flyball.daemons.process import PATIENCE_SECONDS
from flyball.daemons.rights import client_keys
from flyball.daemons.run_folder import bus_endpoint
from flyball.daemons.saved_state import program_version

LOOK_SECONDS = 1.0
"""Pause between looks at the files."""

MOST_AT_ONCE = 256
"""Facts that are published together."""

MOST_OPPONENTS = 64
"""Latest opponents of a configuration whose games are remembered for ratings."""

ORDER: tuple[ObservedFact, ...] = ("selfplay", "training", "evaluation", "promotion")
"""Order of the facts of a step."""

PUBLISHED: frozenset[type[Payload]] = frozenset(
    {SelfplayComplete, QualityScoreUpdated, TrainingCompleted, EvaluationCompleted, EloUpdated, ModelPromoted}
)
"""Types of the facts that an observer publishes."""


class Rating(NamedTuple):
    """A model's latest rating: the evaluation, and the games that it rests on."""

    evaluation: EventId
    estimate: Estimate
    games: int


class ObservedConfig:
    """A configuration as the observer knows it: games that rate its models, and the current one."""

    def __init__(self) -> None:
        self.current: ModelHash | None = None
        self.ratings: dict[str, Rating] = {}
        self.published: dict[str, Estimate | None] = {}
        self._pool = Pool()
        self._evaluated: set[tuple[ModelHash, int]] = set()
        self._opponents: dict[str, None] = {}  # in order of their latest games
        self._champions: dict[str, None] = {}

    def purpose(self, observed: ObservedEvaluation) -> Purpose:
        """Return what a result is for.

        A model's first result rates it. Further ones against the current model decide about it, and others refine
        ratings.
        """
        evaluated = (observed.model, observed.step)
        if evaluated not in self._evaluated:
            self._evaluated.add(evaluated)
            return "rating"
        return "gate" if observed.opponent == self.current else "tournament"

    def remember(self, data: EvaluationCompleted, bots: Sequence[str]) -> None:
        """Add a result to the games that rate models."""
        for match in data.results:
            self._opponents.pop(match.player, None)
            self._opponents[match.player] = None
        for old in list(self._opponents)[:-MOST_OPPONENTS]:
            del self._opponents[old]
        members = {*bots, *self._opponents, *self._champions}
        self._pool = self._pool.after(totals_of(data.model, data.results), members, data.model)

    def rated(self, data: EvaluationCompleted, bots: Sequence[str]) -> tuple[EvaluationCompleted, EloUpdated | None]:
        """Return a result with the ratings fitted to all games, and the ratings of others that changed."""
        published = {agent: self.published.get(agent) for agent in (*bots, *self._champions) if agent != data.model}
        rated = rated_together(data.model, data.results, self._pool, published)
        results = tuple(match.replace(opponent_elo=rated.opponents.get(match.player)) for match in data.results)
        complete = data.replace(results=results, elo=rated.hero.elo, elo_stderr=rated.hero.stderr)
        return complete, EloUpdated(ratings=rated.changed) if rated.changed else None

    def note(self, event_id: EventId, data: Payload) -> None:
        """Note ratings that are published, the model's own or those of others."""
        match data:
            case EvaluationCompleted():
                games = sum(match.games for match in data.results)
                self.ratings[data.model] = Rating(event_id, Estimate(data.elo, data.elo_stderr), games)
            case EloUpdated(ratings=ratings):
                self.published |= {rating.agent: Estimate(rating.elo, rating.elo_stderr or 0.0) for rating in ratings}

    def promote(self, model: ModelHash) -> None:
        """Note that a model is current."""
        self.current = model
        self._champions.pop(model, None)
        self._champions[model] = None
        for old in list(self._champions)[:-RECENT]:
            del self._champions[old]


class Complaint(NamedTuple):
    """A record that cannot be used: its rule, its file, its place there, and what is wrong."""

    rule: str
    file: str
    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.place}: {self.what} (rule {self.rule})"


class NewFact(NamedTuple):
    """A fact to publish: its id, its configuration and its content."""

    id: EventId
    config_key: str
    data: Payload


class _Read(NamedTuple):
    """A record that was read: its rule, its file, where it stands, its id, and what it says."""

    rule: ObservedRule
    file: str
    place: str
    id: EventId
    observed: AnyObserved

    @property
    def request(self) -> EventId:
        """The record's origin, in place of a request that nobody made."""
        return EventId(f"{self.file}: {self.place} ({self.rule.name})"[-NAME_LENGTH:])

    def order(self) -> tuple[int, int]:
        """Return the sort key among records of all files: the step, then ``ORDER`` within a step."""
        return getattr(self.observed, "step", 0), ORDER.index(self.observed.fact)


class Observer:
    """Follows the files of all rules. Every look returns the facts that are new."""

    def __init__(self, rules: Sequence[ObservedRule]) -> None:
        self._rules = rules
        self._files: dict[tuple[str, str], FollowedFile] = {}
        self._known: dict[str, ObservedConfig] = {rule.config.key: ObservedConfig() for rule in rules}
        self._recorded: set[str] = set()
        self._taken: set[str] = set()
        self._promoted: dict[tuple[str, str], ModelHash] = {}  # the last of each file

    def recorded(self, event: Event[Any]) -> None:
        """Note a fact that an observer published before."""
        if is_observer(event.source):
            self._recorded.add(event.id)
            if known := self._known.get(event.envelope.subject or ""):
                known.note(event.id, event.data)

    def look(self) -> Iterator[NewFact | Complaint]:
        """Iterate over what cannot be used, and over the new facts.

        Records of several files come in the order of their steps, as the loop made them, because many are read at once
        at a start. Those of one file keep their order.
        """
        read = list[list[_Read]]()
        for rule in self._rules:
            for path in rule.paths():
                shown = rule.shown(path)
                file = self._files.setdefault((rule.name, shown), rule.open(path))
                of_file = list[_Read]()
                for found in file.read():
                    record = found if isinstance(found, Problem) else self._read(rule, shown, found)
                    if isinstance(record, Problem):
                        yield Complaint(rule.name, shown, record.place, record.what)
                    elif record is not None:
                        of_file.append(record)
                read.append(self._changes((rule.name, shown), of_file))
        for record in merge(*read, key=_Read.order):
            yield from self._facts_of(record)

    def _changes(self, file: tuple[str, str], read: Sequence["_Read"]) -> list["_Read"]:
        """Return a file's new records without promotions of the model that is current already.

        A file may name the current model in many lines; only the first is published. A restart reads these lines
        again, perhaps without the first. An unpublished promotion before a published record of the file is
        therefore dropped, because it would be published late and make an old model current.
        """
        published = [number for number, record in enumerate(read) if derive_id(record.id, 0) in self._recorded]
        kept = list[_Read]()
        for number, record in enumerate(read):
            if isinstance(record.observed, ObservedPromotion):
                again = self._promoted.get(file) == record.observed.model
                self._promoted[file] = record.observed.model
                if number not in published and (again or number < max(published, default=0)):
                    continue
            kept.append(record)
        return kept

    def _read(self, rule: ObservedRule, shown: str, found: Record) -> "_Read | Problem | None":
        """Return what a record says; None if it was read before, or if the rule is not about it."""
        record_id = derive_id(OBSERVER, rule.config.key, rule.name, shown, found.key)
        if record_id in self._taken:
            return None  # the file was rewritten, and this is in it again
        self._taken.add(record_id)
        try:
            observed = rule.observed(found)
        except ValueError as error:
            return Problem(found.place, " ".join(str(error).split()))
        return None if observed is None else _Read(rule, shown, found.place, record_id, observed)

    def _facts_of(self, record: "_Read") -> Iterator[NewFact | Complaint]:
        key = record.rule.config.key
        try:
            facts = self._facts(record)
        except ValueError as error:
            yield Complaint(record.rule.name, record.file, record.place, " ".join(str(error).split()))
            return
        for number, data in enumerate(facts):
            event_id = derive_id(record.id, number)
            if event_id not in self._recorded:
                self._known[key].note(event_id, data)
                yield NewFact(event_id, key, data)

    def _facts(self, record: "_Read") -> Sequence[Payload]:
        """Return the facts of a record. Raises ``ValueError`` for values that an event cannot have."""
        known = self._known[record.rule.config.key]
        match record.observed:
            case ObservedSelfplay() as observed:
                return _selfplay(observed, record)
            case ObservedTraining() as observed:
                return (_training(observed, record.request),)
            case ObservedEvaluation() as observed:
                return self._evaluation(known, observed, record)
            case ObservedPromotion() as observed:
                return _promotion(known, observed, record.id)

    def _evaluation(self, known: ObservedConfig, observed: ObservedEvaluation, record: "_Read") -> Sequence[Payload]:
        config = record.rule.config
        match, bots = observed.result(config.players), config.builtins
        if observed.opponent == observed.model:
            raise ValueError("a model is its own opponent")
        data = EvaluationCompleted(
            request_id=record.request,
            purpose=known.purpose(observed),
            model=observed.model,
            step=observed.step,
            results=(match,),
            elo=Elo(observed.elo or 0.0),
            elo_stderr=observed.elo_stderr or LEAST_ERROR,
            lost_games=None,
            undecided_games=None,
            seconds=observed.seconds,
        )
        changed: EloUpdated | None = None
        if observed.elo is None and derive_id(record.id, 0) not in self._recorded:  # a fit takes milliseconds
            data, changed = known.rated(data, bots)
        known.remember(data, bots)
        return (data, changed) if changed else (data,)


def _promotion(known: ObservedConfig, observed: ObservedPromotion, record_id: EventId) -> Sequence[Payload]:
    previous = known.current
    known.promote(observed.model)
    rating = known.ratings.get(observed.model) or Rating(record_id, Estimate(Elo(0.0), LEAST_ERROR), 0)
    evidence = Evidence(
        evaluation_id=rating.evaluation,
        statistic="the observed loop took it",
        value=0.0,
        threshold=0.0,
        games=rating.games,
        elo=rating.estimate.elo,
        elo_stderr=rating.estimate.stderr,
    )
    promoted = ModelPromoted(
        model=observed.model, previous=previous, step=observed.step, elo=evidence.elo, evidence=evidence
    )
    return (promoted,)


def _selfplay(observed: ObservedSelfplay, record: _Read) -> Sequence[Payload]:
    rows = observed.rows or max(1, round(observed.games * (observed.mean_length or 0)))
    length = rows / observed.games if observed.mean_length is None else observed.mean_length
    shard = ShardRef(
        key=ShardKey(sha256(record.id.encode()).hexdigest()),
        worker=None,
        rows=rows,
        games=observed.games,
        model=observed.model,
        seed=None,
    )
    played = SelfplayComplete(
        request_id=record.request,
        probe=False,
        shard=shard,
        opponents=(),
        temperature=observed.temperature,
        mean_length=length,
        truncated_games=observed.truncated,
        seconds=observed.seconds,
    )
    if observed.quality is None:
        return (played,)
    scored = QualityScoreUpdated(
        request_id=record.request, shard=shard, score=observed.quality, components={}, seconds=None
    )
    return played, scored


def _training(observed: ObservedTraining, request: EventId) -> TrainingCompleted:
    return TrainingCompleted(
        request_id=request,
        model=observed.model,
        parent=observed.parent,
        step=observed.step,
        rows=observed.rows,
        metrics=dict(observed.metrics),
        seconds=observed.seconds,
    )


class NothingToObserve(FlyballError, code="usage"):
    """The settings name no files."""


def mapped_rules(loaded: Loaded) -> tuple[ObservedRule, ...]:
    """Return the rules of the settings. Raises ``NothingToObserve``."""
    if not loaded.observe:
        raise NothingToObserve(
            "The settings name no files of an observed loop.",
            hint="Write a table such as [observe.results] into flyball.toml. See: flyball docs observing",
        )
    configs = loaded.run.configs
    return tuple(
        ObservedRule(name, rule, loaded.run.config(rule.config or configs[0].key), loaded.folder)
        for name, rule in loaded.observe.items()
    )


class Publisher:
    """Publishes an observer's facts, until it is stopped."""

    def __init__(self, observer: Observer, bus: Bus, node: str) -> None:
        self._observer, self._bus = observer, bus
        self._boot, self._announced, self._position = boot_id(), 0, 0
        self._who: Mapping[str, str] = {"daemon": OBSERVER, "node": node}
        self._clock, self._log = SystemClock(), structlog.get_logger(OBSERVER)

    async def run(self, stop: asyncio.Event, beat_seconds: float) -> None:
        """Publish what is new, look by look, until ``stop`` is set."""
        await self._announce(DaemonStarted(**self._who, pid=getpid(), version=program_version(())))
        async with self._bus.subscribe(PUBLISHED) as subscription:
            async for batch in subscription:
                for event in batch.events:
                    self._observer.recorded(event)
                self._position = batch.position
                if batch.position >= batch.head:
                    break
        await self._announce(DaemonReady(**self._who, position=self._position, capacity=0))
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(self._beat(beat_seconds), name="signs of life")
            while not stop.is_set():
                await self._look(stop)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await stop.wait()
            beating.cancel()
        await self._announce(DaemonStopped(**self._who, position=self._position))

    async def _look(self, stop: asyncio.Event) -> None:
        waiting = list[Envelope[Payload]]()
        for found in self._observer.look():
            if isinstance(found, Complaint):
                self._log.warning("a record of an observed file cannot be used", **found._asdict())
                continue
            waiting.append(originate(found.data, event_id=found.id, time=self._clock.now(), subject=found.config_key))
            if len(waiting) >= MOST_AT_ONCE:
                await self._publish(waiting)
                waiting.clear()
                if stop.is_set():
                    return  # the next start goes on
        if waiting:
            await self._publish(waiting)

    async def _publish(self, envelopes: Sequence[Envelope[Payload]]) -> None:
        self._position = max(self._position, *await self._bus.publish_many(envelopes))

    async def _announce(self, fact: DaemonFact) -> None:
        self._announced += 1
        event_id = derive_id(OBSERVER, self._who["node"], self._boot, self._announced)
        await self._publish([originate(fact, event_id=event_id, time=self._clock.now())])

    async def _beat(self, seconds: float) -> None:
        """Send signs of life."""
        while True:
            self._bus.show_life(Sign(position=self._position, lag=0, jobs=0, requests=0))
            await asyncio.sleep(seconds)


async def run_observer(loaded: Loaded, folder: RunFolder, stop: asyncio.Event) -> None:
    """Follow the files that the settings name until ``stop`` is set. Waits for the broker."""
    observer, node = Observer(mapped_rules(loaded)), loaded.deployment.node
    bus = ZmqBus(
        bus_endpoint(folder, loaded.deployment),
        producer=f"{OBSERVER}@{node}",
        deadline_s=PATIENCE_SECONDS,
        keys=client_keys(loaded),
        sole=True,
        patient=True,
        other=loaded.deployment.other_head,
    )
    publisher = Publisher(observer, bus, node)
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(publisher.run(stop, loaded.deployment.heartbeat_seconds), name=OBSERVER)
            stopping = group.create_task(stop.wait(), name="stop")
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            await asyncio.wait((running,), timeout=loaded.deployment.drain_seconds)
            running.cancel()  # the broker is away: the next start publishes what is missing
    finally:
        await bus.close()
