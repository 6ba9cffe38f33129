"""The ledger: what really happened in a simulated run, noted as it happens. Controllers never see it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.controllers import fixed_match
from app.core import ModelHash
from app.events import (
    ClockTick,
    EvaluationCompleted,
    Event,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    PlateauDetected,
    RegressionDetected,
    SelfplayComplete,
    TrainingCompleted,
)
from app.simulation.agenda import HOUR_US, SECOND_US, START_US
from app.simulation.strength import ModelTruth
from app.simulation.world import World

DECLINE_ELO = 20.0
"""A model is worse than the best one was when its strength apart from luck is so much less."""


@dataclass(slots=True)
class Case:
    """A planted regression that became current.

    Attributes:
        number: which one it is.
        before: strength of the model that it replaced, apart from luck.
        games: rated games of the models that have it until it was noticed, those played once more included.
        noticed: an alarm was raised while it was current.
        rolled_back: it was rolled back.
        over: it was rolled back or replaced by a model without it, or what was lost has been learned again.
    """

    number: int
    before: float
    games: int = 0
    noticed: bool = False
    rolled_back: bool = False
    over: bool = False


@dataclass(slots=True)
class Account:
    """One configuration's account.

    Attributes:
        current: the current model.
        initial: strength of the first one, its luck included.
        best: strength of the best current one since the last rollback, apart from luck.
        strength: that of the current one at the end of each hour, apart from luck.
        node_seconds: worker time spent on it, by hour.
        alarms_us: when a stall was declared.
        rated_games: games of current models against the opponent that stays the same.
        evaluated_us: when the latest evaluation was recorded.
        false_regressions: alarms although the current model was no worse.
        rollback_seconds: from the evidence to the decision.
    """

    current: ModelHash | None = None
    initial: float = 0.0
    best: float = float("-inf")
    strength: list[float] = field(default_factory=list)
    node_seconds: dict[int, float] = field(default_factory=dict)
    alarms_us: list[int] = field(default_factory=list)
    rated_games: int = 0
    evaluated_us: int = 0
    trainings: int = 0
    false_regressions: int = 0
    rollback_seconds: list[float] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)

    @property
    def open_cases(self) -> list[Case]:
        """The regressions that are current."""
        return [case for case in self.cases if not case.over]


class Ledger:
    """Watches the events of a run beside the truth."""

    def __init__(self, world: World, keys: Iterable[str]) -> None:
        self._world = world
        self.accounts = {key: Account() for key in keys}
        self._waiting_games: dict[ModelHash, int] = {}
        self._see: Mapping[type[Payload], Callable[[Account, Event[Any]], None]] = {
            EvaluationCompleted: self._evaluated,
            ModelPromoted: self._promoted,
            ModelRolledBack: self._rolled_back,
            PlateauDetected: lambda account, event: account.alarms_us.append(event.recorded_us),
            RegressionDetected: self._alarmed,
            SelfplayComplete: _played,
            TrainingCompleted: _trained,
        }

    def observe(self, event: Event[Payload]) -> None:
        """Note what an event means."""
        data = event.envelope.data
        if (see := self._see.get(type(data))) is not None:
            see(self.accounts[event.subject], event)
        elif type(data) is ClockTick:
            self._sample((event.recorded_us - START_US) // HOUR_US)

    def _sample(self, hours: int) -> None:
        for account in self.accounts.values():
            if len(account.strength) < hours:
                account.strength.append(self._truth(account.current).trend)

    def _truth(self, model: ModelHash | None) -> ModelTruth:
        return self._world.models[model] if model else ModelTruth()

    def _evaluated(self, account: Account, event: Event[EvaluationCompleted]) -> None:
        account.evaluated_us = event.recorded_us
        played = fixed_match(event.data)
        if played and event.data.model == account.current:
            _count(account, played.games)
        elif played and event.data.purpose == "rating":
            self._waiting_games[event.data.model] = played.games

    def _promoted(self, account: Account, event: Event[ModelPromoted]) -> None:
        before, truth = self._truth(account.current), self._truth(event.data.model)
        if account.current is None:
            account.initial = truth.skill
        account.current, account.best = event.data.model, max(account.best, truth.trend)
        known = {case.number for case in account.cases}
        account.cases += [Case(number, before.trend) for number in truth.planted if number not in known]
        _count(account, self._waiting_games.pop(event.data.model, 0))
        for case in account.open_cases:
            case.over = case.number not in truth.planted or truth.trend >= case.before

    def _alarmed(self, account: Account, event: Event[RegressionDetected]) -> None:  # noqa: ARG002 - as the others
        if not account.open_cases and account.best - self._truth(account.current).trend < DECLINE_ELO:
            account.false_regressions += 1
        for case in account.open_cases:
            case.noticed = True

    def _rolled_back(self, account: Account, event: Event[ModelRolledBack]) -> None:
        account.current = event.data.to_model
        truth = self._truth(account.current)
        account.best = truth.trend
        account.rollback_seconds.append((event.recorded_us - account.evaluated_us) / SECOND_US)
        for case in account.open_cases:
            case.rolled_back = case.over = case.number not in truth.planted


def _count(account: Account, games: int) -> None:
    """Count rated games of the current model."""
    account.rated_games += games
    for case in account.open_cases:
        case.games += 0 if case.noticed else games


def _played(account: Account, event: Event[SelfplayComplete]) -> None:
    hour = (event.recorded_us - START_US) // HOUR_US
    account.node_seconds[hour] = account.node_seconds.get(hour, 0.0) + event.data.seconds


def _trained(account: Account, event: Event[TrainingCompleted]) -> None:  # noqa: ARG001 - as the others
    account.trainings += 1
