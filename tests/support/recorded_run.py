"""A short run as recorded events. It trains two models, of which one is promoted and one is rejected."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from driving import match_of, promoted, rated

from flyball.app.config import RunSettings
from flyball.app.core import Elo, EventId, ModelHash, ShardKey
from flyball.app.events import (
    CheckpointAdded,
    DaemonHeartbeat,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    EvaluationCompleted,
    EvaluationRequested,
    Event,
    Evidence,
    MatchResult,
    ModelPromoted,
    Payload,
    PromotionRejected,
    RunConfigured,
    SelfplayComplete,
    SelfplayRequested,
    ShardRef,
    TrainingCompleted,
    TrainingRequested,
    follow,
    originate,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.events.frames import Frame, frame_of, seal
from flyball.app.journal import SqliteJournal

KEY = "tic_tac_toe_2p"
OLD, NEW = ModelHash("a" * 64), ModelHash("b" * 64)
SHARD = ShardRef(worker="selfplay_worker@laptop", key=ShardKey("c" * 64), rows=9000, games=600, model=OLD, seed=1)
START = datetime.fromisoformat("2026-01-31T12:00:00+00:00")


@dataclass
class Recording:
    """Events, each recorded a second after the one before."""

    events: list[Event[Any]]

    def add(self, data: Payload, cause: Event[Any] | None = None, subject: str | None = None) -> Event[Any]:
        position = len(self.events) + 1
        time = START + timedelta(seconds=position)
        if cause is None:
            envelope = originate(data, event_id=f"{position:04d}-root", time=time, subject=subject)
        else:
            envelope = follow(data, cause.cause, by="test", index=position, subject=subject, time=time)
        event = Event(envelope, position, (time - EPOCH) // timedelta(microseconds=1), "broker@laptop")
        self.events.append(event)
        return event


def match(score: int, games: int, opponent: str = "random") -> MatchResult:
    return match_of(score, 0, games - score, opponent, model=None if opponent == "random" else OLD)


def trained(model: ModelHash, step: int, request: str = "r") -> TrainingCompleted:
    return TrainingCompleted(
        request_id=EventId(request), model=model, parent=None, step=step, rows=9000 * step, metrics=None, seconds=1.0
    )


def evaluated(model: ModelHash, step: int, elo: float, wins: int) -> EvaluationCompleted:
    results = (match(wins, 200), match(40, 100, "champion"))
    return rated(elo, *results, model=model, step=step).replace(request_id=EventId("r"))


def evidence(elo: float) -> Evidence:
    return promoted(elo=elo).evidence.replace(value=0.4)


def recording() -> Recording:
    """Return the run's events."""
    run = Recording([])
    settings = RunSettings().model_dump(mode="json")
    root = run.add(RunConfigured(run_id="1", settings=settings))
    who = {"daemon": "training", "node": "laptop"}
    run.add(DaemonStarted(**who, pid=7, version="0.1.0"))
    run.add(DaemonReady(**who, position=2, capacity=1))
    ask = TrainingRequested(base_model=None, shards=(), step=0, seed=1, learning_rate=1e-3, epochs=3)
    asked = run.add(ask, root, KEY)
    first = run.add(trained(OLD, 0, asked.id), asked)
    wanted = run.add(EvaluationRequested(purpose="rating", model=OLD, step=0, seed=1), first)
    judged = run.add(evaluated(OLD, 0, 5.0, 100), wanted)
    promoted = ModelPromoted(model=OLD, previous=None, step=0, elo=Elo(5.0), evidence=evidence(5.0))
    current = run.add(promoted, judged)
    play = SelfplayRequested(
        worker="selfplay_worker@laptop", model=OLD, lineups=(), games=600, seed=1, temperature=1, probe=False
    )
    playing = run.add(play, current)
    played = SelfplayComplete(
        request_id=playing.id,
        probe=False,
        shard=SHARD,
        opponents=(),
        temperature=1.0,
        mean_length=7.5,
        truncated_games=0,
        seconds=2.0,
    )
    rows = run.add(played, playing)
    again = TrainingRequested(base_model=OLD, shards=(SHARD,), step=0, seed=2, learning_rate=1e-3, epochs=3)
    asked = run.add(again, rows)
    second = run.add(trained(NEW, 1, asked.id), asked)
    run.add(DaemonHeartbeat(**who, position=11, lag=2, jobs=1, requests=()))
    judged = run.add(evaluated(NEW, 1, -12.5, 90), second)
    run.add(PromotionRejected(model=NEW, current=OLD, step=1, evidence=evidence(-12.5)), judged)
    run.add(DaemonStopped(**who, position=15))
    return run


def write_journal(path: Path, events: Sequence[Event[Any]]) -> None:
    """Write events into a journal, one record each."""
    with closing(SqliteJournal(path)) as journal:
        for event in events:
            record(journal, event)


def record(journal: SqliteJournal, event: Event[Any]) -> None:
    """Append an event to a journal, as the broker does."""
    frame = Frame.parse(frame_of([event.envelope], producer="broker@laptop", epoch=1, base=event.sequence - 1))
    journal.append([seal(frame, first=event.sequence, recorded_us=event.recorded_us, source="broker@laptop")])


def write_league(
    path: Path,
    members: Sequence[tuple[ModelHash, float]] = (),
    *,
    current: ModelHash | None = None,
    key: str = KEY,
    settings: RunSettings | None = None,
) -> None:
    """Write the journal of a run whose league has these models, each with its Elo, in the order of their steps."""
    run = Recording([])
    root = run.add(RunConfigured(run_id="1", settings=(settings or RunSettings()).model_dump(mode="json")))
    if current is not None:
        run.add(ModelPromoted(model=current, previous=None, step=0, elo=Elo(5.0), evidence=evidence(5.0)), root, key)
    for step, (model, elo) in enumerate(members):
        entry = {"model": model, "parent": None, "step": step, "elo": Elo(elo), "elo_stderr": 9.0, "games": 100}
        run.add(CheckpointAdded(**entry, roles=("recent",)), root, key)
    path.unlink(missing_ok=True)
    write_journal(path, run.events)
