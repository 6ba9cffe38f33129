"""The observer: publishes facts from the files of an observed loop (ADR-039).

It keeps no state. At its start it reads the files from their beginning, and the journal for what it published earlier.
The ids of facts derive from the rule, the file and the record, so that a record is published once.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from heapq import merge
from itertools import islice
from os import getpid
from pathlib import Path
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
    MatchResult,
    ModelPromoted,
    Payload,
    QualityScoreUpdated,
    SelfplayComplete,
    ShardRef,
    TrainingCompleted,
    originate,
)
from flyball.app.league.ratings import LEAST_ERROR, Estimate
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
from flyball.daemons.observed_config import LatestEvaluation, ObservedConfig
from flyball.daemons.process import PATIENCE_SECONDS
from flyball.daemons.rights import client_keys
from flyball.daemons.run_folder import bus_endpoint
from flyball.daemons.saved_state import program_version

LOOK_SECONDS = 1.0
"""Pause between looks at the files."""

MOST_AT_ONCE = 64
"""Records that are read, rated and published together; a fit's time grows faster than the number of its models."""

ORDER: tuple[ObservedFact, ...] = ("selfplay", "training", "evaluation", "promotion")
"""Order of the facts of a step."""

PUBLISHED: frozenset[type[Payload]] = frozenset(
    {SelfplayComplete, QualityScoreUpdated, TrainingCompleted, EvaluationCompleted, EloUpdated, ModelPromoted}
)
"""Types of the facts that an observer publishes."""


class Complaint(NamedTuple):
    """Content that cannot be used: its rule, its file, its place there, and what is wrong."""

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
        self._known: dict[str, ObservedConfig] = {
            rule.config.key: ObservedConfig(rule.config.builtins) for rule in rules
        }
        self._recorded: set[str] = set()  # facts whose records are still to be read
        self._promoted: dict[tuple[str, str], ModelHash] = {}  # the last of each file
        self._unusable: set[tuple[str, str, str]] = set()  # rules, files and metrics that are reported already
        self._complaints: list[Complaint] = []

    def recorded(self, event: Event[Any]) -> None:
        """Note a fact that an observer published before."""
        if is_observer(event.source):
            self._recorded.add(event.id)
            if known := self._known.get(event.envelope.subject or ""):
                known.note(event.id, event.data)

    def look(self) -> Iterator[Sequence[NewFact | Complaint]]:
        """Iterate over what cannot be used and the new facts, in pieces, because the past of a loop may be long.

        Records of several files come in the order of their steps, as the loop made them, because many are read at once
        at a start. Those of one file keep their order.
        """
        files = [(rule, path) for rule in self._rules for path in rule.paths()]
        records = merge(*(self._records(rule, path) for rule, path in files), key=_Read.order)
        while batch := list(islice(records, MOST_AT_ONCE)):
            self._fit(batch)
            facts = [found for record in batch for found in self._facts_of(record)]
            yield [*self._take_complaints(), *facts]
        yield [*self._take_complaints(), *self._changed_ratings()]

    def _records(self, rule: ObservedRule, path: Path) -> Iterator["_Read"]:
        """Iterate over a file's new records, and note complaints."""
        shown = rule.shown(path)
        file = self._files.setdefault((rule.name, shown), rule.open(path))
        read = self._read(rule, shown, file)
        return iter(self._changes((rule.name, shown), read)) if rule.fact == "promotion" else read

    def _read(self, rule: ObservedRule, shown: str, file: FollowedFile) -> Iterator["_Read"]:
        for found in file.read():
            if isinstance(found, Problem):
                self._complaints.append(Complaint(rule.name, shown, *found))
                continue
            try:
                observed = rule.observed(found)
            except ValueError as error:
                self._complaints.append(Complaint(rule.name, shown, found.place, " ".join(str(error).split())))
                continue
            self._complaints += self._unusable_metrics(rule, shown, found)
            record_id = derive_id(OBSERVER, rule.config.key, rule.name, shown, found.key)
            yield _Read(rule, shown, found.place, record_id, observed)

    def _changes(self, file: tuple[str, str], read: Iterator["_Read"]) -> list["_Read"]:
        """Return a file's promotions without those of the model that is current already.

        A file may name the current model in many lines; only the first is published. A restart reads these lines
        again, perhaps without the first. An unpublished promotion before a published record of the file is
        therefore dropped, because it would be published late and make an old model current.
        """
        published, since = list[_Read](), list[_Read]()
        for record in read:
            again = self._promoted.get(file) == record.observed.model
            self._promoted[file] = record.observed.model
            if derive_id(record.id, 0) in self._recorded:
                published.append(record)
                since.clear()
            elif not again:
                since.append(record)
        return published + since

    def _fit(self, batch: Sequence["_Read"]) -> None:
        """Rate the models of each configuration with results that are to be rated."""
        for key, known in self._known.items():
            results, is_new = list[tuple[ModelHash, MatchResult]](), False
            for record in batch:
                observed = record.observed
                if record.rule.config.key == key and isinstance(observed, ObservedEvaluation):
                    is_new = is_new or self._is_unrated(record, observed)
                    with suppress(ValueError):  # which ``_facts`` reports
                        results.append((observed.model, observed.result(record.rule.config.players)))
            if is_new:
                known.fit(results)

    def _is_unrated(self, record: "_Read", observed: ObservedEvaluation) -> bool:
        return observed.elo is None and derive_id(record.id, 0) not in self._recorded

    def _take_complaints(self) -> Sequence[Complaint]:
        """Return the complaints since the last call."""
        complaints, self._complaints = self._complaints, []
        return complaints

    def _changed_ratings(self) -> Iterator[NewFact]:
        """Iterate over the changed ratings of bots and champions, one fact for each configuration with new results.

        Its id follows from the latest of them. After a kill before this fact, a restart reads the results again, and
        publishes it.
        """
        for key, known in self._known.items():
            if known.unsettled is None:
                continue
            event_id, known.unsettled = derive_id(known.unsettled, 1), None
            if event_id not in self._recorded and (changed := known.changed()):
                yield self._fact(event_id, key, EloUpdated(ratings=changed))

    def _unusable_metrics(self, rule: ObservedRule, shown: str, found: Record) -> Iterator[Complaint]:
        """Iterate over the first complaint about each metric of a file, because a loss may stay NaN."""
        for metric in rule.unusable_metrics(found):
            if (subject := (rule.name, shown, metric)) not in self._unusable:
                self._unusable.add(subject)
                value = str(found.values[metric])[:40]
                what = f"{metric} is {value!r}, not a finite number, and left out here and further on"
                yield Complaint(rule.name, shown, found.place, what)

    def _facts_of(self, record: "_Read") -> Iterator[NewFact | Complaint]:
        try:
            facts = self._facts(record)
        except ValueError as error:
            yield Complaint(record.rule.name, record.file, record.place, " ".join(str(error).split()))
            return
        for number, data in enumerate(facts):
            event_id = derive_id(record.id, number)
            if event_id in self._recorded:
                self._recorded.remove(event_id)  # it is needed no more, because no record is read twice
            else:
                yield self._fact(event_id, record.rule.config.key, data)

    def _fact(self, event_id: EventId, key: str, data: Payload) -> NewFact:
        self._known[key].note(event_id, data)
        return NewFact(event_id, key, data)

    def _facts(self, record: "_Read") -> Sequence[Payload]:
        """Return the facts of a record. Raises ``ValueError`` for values that an event cannot have."""
        known = self._known[record.rule.config.key]
        match record.observed:
            case ObservedSelfplay() as observed:
                return _selfplay(observed, record)
            case ObservedTraining() as observed:
                return (_training(observed, record.request),)
            case ObservedEvaluation() as observed:
                return (self._evaluation(known, observed, record),)
            case ObservedPromotion() as observed:
                return _promotion(known, observed, record.id)

    def _evaluation(self, known: ObservedConfig, observed: ObservedEvaluation, record: "_Read") -> EvaluationCompleted:
        match = observed.result(record.rule.config.players)
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
        if observed.elo is None:
            known.unsettled = record.id
        if self._is_unrated(record, observed):
            data = known.rated(data)
        known.remember(data)
        return data


def _promotion(known: ObservedConfig, observed: ObservedPromotion, record_id: EventId) -> Sequence[Payload]:
    previous = known.current
    known.promote(observed.model)
    evaluation = known.evaluations.get(observed.model, LatestEvaluation(record_id, 0))
    elo, stderr = known.estimates.get(observed.model, Estimate(Elo(0.0), LEAST_ERROR))
    evidence = Evidence(
        evaluation_id=evaluation.id,
        statistic="the observed loop took it",
        value=0.0,
        threshold=0.0,
        games=evaluation.games,
        elo=elo,
        elo_stderr=stderr,
    )
    promoted = ModelPromoted(model=observed.model, previous=previous, step=observed.step, elo=elo, evidence=evidence)
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
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(self._beat(beat_seconds), name="signs of life")
            await self._remember()
            await self._announce(DaemonReady(**self._who, position=self._position, capacity=0))
            while not stop.is_set():
                await self._look(stop)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await stop.wait()
            beating.cancel()
        await self._announce(DaemonStopped(**self._who, position=self._position))

    async def _remember(self) -> None:
        """Read what was published before."""
        async with self._bus.subscribe(PUBLISHED, after=0) as subscription:
            async for batch in subscription:
                for event in batch.events:
                    self._observer.recorded(event)
                self._position = batch.position
                if batch.position >= batch.head:
                    return

    async def _look(self, stop: asyncio.Event) -> None:
        """Publish what is new, piece by piece; the next start goes on after a stop."""
        pieces = self._observer.look()
        while not stop.is_set() and (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            now, envelopes = self._clock.now(), list[Envelope[Payload]]()
            for item in piece:
                if isinstance(item, Complaint):
                    self._log.warning("content of an observed file cannot be used", **item._asdict())
                else:
                    envelopes.append(originate(item.data, event_id=item.id, time=now, subject=item.config_key))
            if envelopes:
                await self._publish(envelopes)

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
