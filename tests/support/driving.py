"""Driving one controller as its host does, and payloads for it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from rotations import rotations

from flyball.app.config import GAMES, FeedbackSettings, RunSettings
from flyball.app.controllers import Controller, FeedbackState, Lineage
from flyball.app.controllers.fold import Fold, Outcome
from flyball.app.controllers.state import state_of
from flyball.app.core import Rate, derive_id
from flyball.app.events import (
    Envelope,
    EvaluationCompleted,
    Event,
    Evidence,
    MatchResult,
    ModelDistributed,
    ModelPromoted,
    ParityChecked,
    Payload,
    QualityScoreUpdated,
    RunConfigured,
    SelfplayComplete,
    ShardRef,
    TrainingCompleted,
    originate,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.job_specs import JobContext
from flyball.app.play.gauntlet import GauntletResult, OpponentResult
from flyball.daemons.jobs import Job, Worker, WorkerIdentity

KEY, OTHER_KEY = "tic_tac_toe_2p", "connect_four_2p"
NEED = GAMES[KEY].rows_per_training
OLD, NEW = "a" * 64, "b" * 64
HOUR = 3600.0


def run_settings(*keys: str, **feedback: Any) -> RunSettings:
    """Return the settings of a run. Keyword arguments are parts of the feedback settings, as nested dictionaries."""
    configs = tuple(GAMES[key] for key in keys or (KEY,))
    return RunSettings(configs=configs, feedback=FeedbackSettings.model_validate(feedback))


def folded(fold: Fold, event: Event[Payload]) -> Outcome:
    """Fold one event without an error, into valid states."""
    outcome = fold.feed([event])
    assert outcome.failures == []
    for row in outcome.changed.values():
        if isinstance(row, FeedbackState):
            row.validate()
    return outcome


class Driven:
    """A controller in a Fold, fed with payloads at given times.

    Times are in seconds. The controller's decisions are recorded at once, unless ``late``.
    """

    def __init__(
        self, controller: type[Controller], settings: RunSettings | None = None, *, late: bool = False
    ) -> None:
        self.settings, self.late = settings or run_settings(), late
        self.name, self.emits = controller.name, controller.emits
        self.fold = Fold((controller,))
        self.events: list[Event[Payload]] = []
        self.configured = self.feed(
            RunConfigured(run_id="run", settings=self.settings.model_dump(mode="json")), key=None, at=0
        )

    def feed(self, *payloads: Payload, key: str | None = KEY, at: float = 0.0) -> list[Any]:
        """Record payloads at a time; return the payloads of the decisions."""
        return [envelope.data for envelope in self.envelopes(*payloads, key=key, at=at)]

    def envelopes(self, *payloads: Payload, key: str | None = KEY, at: float = 0.0) -> list[Any]:
        """Record payloads at a time; return the envelopes of the decisions."""
        found = []
        for data in payloads:
            position = len(self.events) + 1
            subject = key if data.scope == "config" else None
            time = EPOCH + timedelta(seconds=at)
            envelope = originate(data, event_id=derive_id("test", position), time=time, subject=subject)
            event = Event(envelope, position, round(at * 1e6), "broker@laptop")
            self.events.append(event)
            decided = folded(self.fold, event).envelopes
            if not self.late:
                assert self.record(*decided) == []  # a controller does not react to its own decisions
            found += decided
        return found

    def settle(self, model: str = OLD, step: int = 0, *, key: str = KEY, at: float = 0.0) -> list[Any]:
        """Distribute a new current model, with nothing under way. Returns the resulting decisions."""
        return self.feed(*settled(self.state(key).lineage, model, step), key=key, at=at)

    def record(self, *envelopes: Envelope[Payload]) -> list[Any]:
        """Record the controller's events; return the payloads of further decisions."""
        found = []
        for envelope in envelopes:
            event = Event(envelope, len(self.events) + 1, self.events[-1].recorded_us, "broker@laptop")
            self.events.append(event)
            found += folded(self.fold, event).envelopes
        return [envelope.data for envelope in found]

    def state(self, key: str = KEY) -> FeedbackState:
        """Return the FeedbackState of a configuration."""
        return state_of(self.fold.states, key)

    def row(self, key: str = KEY) -> Any:
        """Return the controller's row."""
        return self.fold.rows(self.name)[key]


class DrivenWorker:
    """A worker in a Fold, fed with one fact at a time. Its jobs are only listed, and never run."""

    def __init__(self, worker: type[Worker[Any]], settings: RunSettings | None = None, *, node: str = "laptop") -> None:
        identity = WorkerIdentity(f"{worker.name}@{node}", node, JobContext(store="store"))
        self.fold = Fold((partial(worker, identity=identity),))
        self.position = 0
        configured = (settings or run_settings()).model_dump(mode="json")
        self.feed(RunConfigured(run_id="run", settings=configured), key=None)

    @property
    def worker(self) -> Any:
        """The worker itself."""
        return self.fold.reducers[-1]

    @property
    def rows(self) -> dict[str, Any]:
        """The worker's rows."""
        return self.fold.rows(self.worker.name)

    def feed(self, data: Payload, key: str | None = KEY) -> Event[Payload]:
        """Record a payload one second after the one before; return its event."""
        self.fed(data, key)
        return self.event

    def fed(self, data: Payload, key: str | None = KEY) -> list[Payload]:
        """Record a payload; return the payloads that the worker emits."""
        self.position += 1
        time = EPOCH + timedelta(seconds=self.position)
        envelope = originate(data, event_id=derive_id("test", self.position), time=time, subject=key)
        self.event = Event(envelope, self.position, self.position * 10**6, "broker@laptop")
        return [envelope.data for envelope in folded(self.fold, self.event).envelopes]

    def state(self, key: str = KEY) -> FeedbackState:
        """Return the FeedbackState of a configuration."""
        return state_of(self.fold.states, key)

    def jobs(self) -> Sequence[Job[Any]]:
        """Return the jobs that should run now. As in the host, only rows that have a cause count."""
        return tuple(self.worker.jobs({key: row for key, row in self.rows.items() if row.cause}, self.fold.states))


def match_of(
    wins: int,
    draws: int,
    losses: int,
    opponent: str = "random",
    elo: float = 0.0,
    model: str | None = None,
    players: int = 2,
) -> MatchResult:
    """Return a match of untruncated, distinct games."""
    games = wins + draws + losses
    return MatchResult(
        opponent=opponent,
        opponent_model=model,
        opponent_elo=elo,
        games=games,
        wins=wins,
        draws=draws,
        losses=losses,
        truncated=0,
        distinct_games=games,
        score=Rate.of(wins + draws / 2, games),
        outcome=None,
        rotations=rotations(wins, draws, losses, players),
        graded=None,
    )


def match(score: float, games: int = 100, opponent: str = "random", **more: Any) -> MatchResult:
    """Return a match without draws, but for half a game."""
    wins = int(score * games + 1e-9)  # 0.29 * 100 is less than 29
    return match_of(wins, 0, games - wins, opponent, **more).replace(score=Rate.of(score * games, games))


def gauntlet_result(matches: Iterable[Mapping[str, Any]]) -> GauntletResult:
    """Return a gauntlet's result with only the statistics that the evaluator reads."""
    results = tuple(OpponentResult.model_construct(**one) for one in matches)
    return GauntletResult.model_construct(results=results, lost_games=0, seconds=1.0)


def rated(
    elo: float = 0.0, *matches: MatchResult, model: str = NEW, stderr: float = 20.0, step: int = 1
) -> EvaluationCompleted:
    """Return a gauntlet's result."""
    return EvaluationCompleted(
        request_id="e",
        purpose="rating",
        model=model,
        step=step,
        results=matches or (match(0.9),),
        elo=elo,
        elo_stderr=stderr,
        lost_games=0,
        undecided_games=0,
        seconds=1,
    )


def gated(wins: int, draws: int, losses: int, model: str = NEW, champion: str = OLD) -> EvaluationCompleted:
    """Return a round of gate games."""
    played = match_of(wins, draws, losses, "champion", model=champion)
    return rated(0.0, played, model=model, stderr=9.0).replace(request_id="g", purpose="gate")


def trained(model: str = NEW, parent: str | None = OLD, step: int = 1, **metrics: float) -> TrainingCompleted:
    """Return a finished training."""
    usual = dict.fromkeys(("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "seconds"), 0.1)
    figures = {**usual, "explained_variance": 0.5, **metrics}
    return TrainingCompleted(
        request_id="t", model=model, parent=parent, step=step, rows=100, metrics=figures, seconds=1.0
    )


def scored(
    score: float = 0.9, *, model: str = OLD, rows: int = NEED, request: str = "q", shard: str = "c" * 64
) -> QualityScoreUpdated:
    """Return an inspected shard."""
    inspected = ShardRef(worker="selfplay_worker@laptop", key=shard, rows=rows, games=10, model=model, seed=1)
    return QualityScoreUpdated(request_id=request, shard=inspected, score=score, components={}, seconds=0.1)


def played(number: int = 1, *, shard: str = "c" * 64, model: str = OLD) -> SelfplayComplete:
    """Return the answer to the ``number``-th request for games."""
    return SelfplayComplete(
        request_id=f"r{number}",
        probe=False,
        shard=ShardRef(worker="selfplay_worker@laptop", key=shard, rows=9, games=1, model=model, seed=number),
        opponents=(),
        temperature=1.0,
        mean_length=9.0,
        truncated_games=0,
        seconds=1.0,
    )


def distributed(model: str = OLD, step: int = 0) -> ModelDistributed:
    """Return a distributed model."""
    return ModelDistributed(model=model, step=step, nodes=("laptop",))


def promoted(model: str = OLD, elo: float = 400.0, step: int = 5) -> ModelPromoted:
    """Return a promoted model."""
    evidence = Evidence(
        evaluation_id="e", statistic="score", value=0.6, threshold=0.5, games=100, elo=elo, elo_stderr=20
    )
    return ModelPromoted(model=model, previous=None, step=step, elo=elo, evidence=evidence)


def settled(lineage: Lineage, model: str = OLD, step: int = 0) -> tuple[Payload, ...]:
    """Return facts that make a model current and distributed.

    Nothing is under way after them. If a training is under way before them, the model is its result.
    """
    result = trained(model, lineage.current_model, step)
    ended = (result.replace(request_id=lineage.training),) if lineage.training else ()
    return (*ended, promoted(model, step=step), distributed(model, step))


def parity(failures: int, worker: str | None = "selfplay_worker@laptop", checked: int = 16) -> ParityChecked:
    """Return games of a shard played over by the rules."""
    return ParityChecked(
        request_id="q", worker=worker, shard="c" * 64, against=None, checked=checked, failures=failures
    )
