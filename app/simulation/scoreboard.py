"""Scoreboard of a simulated run: its events compared with the truth. Controllers never see the truth."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from flyball.app.config import FrozenModel, RunSettings
from flyball.app.config.feedback import StallSettings
from flyball.app.controllers import fixed_match
from flyball.app.controllers.fold import Failure
from flyball.app.core import ModelHash
from flyball.app.core.clock import SECOND_US
from flyball.app.events import (
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
from flyball.app.simulation.world import HOUR_US, START_US, ModelTruth, World

HOURS_PER_DAY = 24

DECLINE_ELO = 20.0
"""Decline since the best model, apart from luck, from which an alarm is justified."""


@dataclass(slots=True)
class Case:
    """A planted regression that became current.

    Attributes:
        before: strength of the model that it replaced, apart from luck.
        games: rated games, until the alarm, of models with this regression; repeated games count.
        noticed: an alarm was raised while the regression was current.
        over: a rollback or a promotion replaced it by a model without it, or the loss was regained.
    """

    number: int
    before: float
    games: int = 0
    noticed: bool = False
    rolled_back: bool = False
    over: bool = False


@dataclass(slots=True)
class Account:
    """One configuration's entries on the scoreboard.

    Attributes:
        current: the current model.
        initial: strength of the first current model, with its luck.
        best: strength of the best current model since the last rollback, apart from luck.
        strength: strength of the current model at the end of each hour, apart from luck.
        node_seconds: worker time spent on the configuration's self-play, by hour.
        alarms_us: times of stall alarms.
        rated_games: games of current models against the fixed opponent.
        evaluated_us: time of the latest evaluation.
        false_regressions: regression alarms although the current model was no worse.
        rollback_seconds: time from the latest evaluation to each rollback.
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
        """The planted regressions that are not over."""
        return [case for case in self.cases if not case.over]

    def rate(self, games: int) -> None:
        """Count rated games of the current model."""
        self.rated_games += games
        for case in self.open_cases:
            case.games += 0 if case.noticed else games


class Scoreboard:
    """Compares a run's events with the truth, by configuration."""

    def __init__(self, world: World, keys: Iterable[str]) -> None:
        self._world = world
        self.accounts = {key: Account() for key in keys}
        self._waiting_games: dict[ModelHash, int] = {}

    def truth(self, model: ModelHash | None) -> ModelTruth:
        """Return a model's true strength; 0 without a model."""
        return self._world.models[model] if model else ModelTruth()

    def observe(self, event: Event[Payload]) -> None:
        """Enter an event into the accounts."""
        hour = (event.recorded_us - START_US) // HOUR_US
        if event.subject:
            self._enter(self.accounts[event.subject], event, hour)
        elif isinstance(event.data, ClockTick):
            for account in self.accounts.values():
                if len(account.strength) < hour:
                    account.strength.append(self.truth(account.current).trend)

    def _enter(  # noqa: C901 - one case an event
        self, account: Account, event: Event[Payload], hour: int
    ) -> None:
        match event.data:
            case SelfplayComplete(seconds=seconds):
                account.node_seconds[hour] = account.node_seconds.get(hour, 0.0) + (seconds or 0.0)
            case TrainingCompleted():
                account.trainings += 1
            case PlateauDetected():
                account.alarms_us.append(event.recorded_us)
            case EvaluationCompleted() as data:
                account.evaluated_us = event.recorded_us
                played = fixed_match(data)
                if played and data.model == account.current:
                    account.rate(played.games)
                elif played and data.purpose == "rating":
                    self._waiting_games[data.model] = played.games
            case RegressionDetected():
                decline = account.best - self.truth(account.current).trend
                account.false_regressions += not account.open_cases and decline < DECLINE_ELO
                for case in account.open_cases:
                    case.noticed = True
            case ModelPromoted(model=model):
                self._enter_promotion(account, model)
            case ModelRolledBack(to_model=model):
                account.rollback_seconds.append((event.recorded_us - account.evaluated_us) / SECOND_US)
                truth = self.truth(model)
                account.current, account.best = model, truth.trend
                for case in account.open_cases:
                    case.rolled_back = case.over = case.number not in truth.planted

    def _enter_promotion(self, account: Account, model: ModelHash) -> None:
        before, truth = self.truth(account.current), self.truth(model)
        if account.current is None:
            account.initial = truth.skill
        account.current, account.best = model, max(account.best, truth.trend)
        numbers = {case.number for case in account.cases}
        account.cases += [Case(number, before.trend) for number in truth.planted if number not in numbers]
        account.rate(self._waiting_games.pop(model, 0))
        for case in account.open_cases:
            case.over = case.number not in truth.planted or truth.trend >= case.before


class StallFigures(FrozenModel):
    """Stall alarms against the truth.

    Attributes:
        alarms: number of alarms.
        healthy_days: number of healthy hours / 24. In a healthy hour, a configuration's strength apart from luck grew
            at least at the rule's threshold velocity, over the rule's window.
        false_days: configuration-days with an alarm in a healthy hour.
    """

    alarms: int
    healthy_days: float
    false_days: int


class RegressionFigures(FrozenModel):
    """Outcomes of planted regressions.

    Attributes:
        planted: number of regressions that became current.
        noticed: number that raised an alarm.
        rolled_back: number that were rolled back.
        regained: number that ended without an alarm: the loss was regained, or a model without the regression
            replaced the current one.
        games: rated games until the alarm, summed over the noticed regressions.
        regained_games: rated games until the end, summed over the regained regressions.
        false_alarms: alarms although the current model was no worse than the best before.
        rated_games: all rated games of models that became current.
        rollback_seconds: the longest time from an evaluation to the rollback that follows.
    """

    planted: int
    noticed: int
    rolled_back: int
    regained: int
    games: int
    regained_games: int
    false_alarms: int
    rated_games: int
    rollback_seconds: float | None


class RunResult(FrozenModel):
    """Figures of one run.

    Attributes:
        gain: strength of the last current model minus that of the first, with luck (``ModelTruth.skill``), Elo, by
            configuration.
        total: sum of the current models' strengths without luck (``ModelTruth.trend``), Elo, at the end of each hour.
        daily_floor: the least share of worker time that a configuration had on any day; 1 is an equal share.
        floor: the same over the whole run.
        unfolded: events that a controller could not fold, with the error.
    """

    arm: str
    seed: int
    events: int
    trainings: int
    gain: dict[str, float]
    total: tuple[float, ...]
    stalls: StallFigures
    regressions: RegressionFigures
    daily_floor: float | None
    floor: float | None
    unfolded: tuple[str, ...]

    @property
    def total_gain(self) -> float:
        """Sum of ``gain`` over all configurations, Elo."""
        return sum(self.gain.values())


def stall_figures(accounts: Iterable[Account], settings: StallSettings) -> StallFigures:
    """Compare stall alarms with true growth, apart from models' luck."""
    alarms, healthy_hours, false_days = 0, 0, set[tuple[int, int]]()
    window = max(1, round(settings.window_hours))
    for number, account in enumerate(accounts):
        healthy = {
            hour
            for hour in range(window, len(account.strength))
            if account.strength[hour] - account.strength[hour - window] >= settings.velocity * window
        }
        hours = [(at_us - START_US) // HOUR_US for at_us in account.alarms_us]
        alarms += len(hours)
        healthy_hours += len(healthy)
        false_days |= {(number, hour // HOURS_PER_DAY) for hour in hours if hour in healthy}
    return StallFigures(alarms=alarms, healthy_days=healthy_hours / HOURS_PER_DAY, false_days=len(false_days))


def regression_figures(accounts: Sequence[Account]) -> RegressionFigures:
    """Sum up the outcomes of planted regressions."""
    cases = [case for account in accounts for case in account.cases]
    regained = [case for case in cases if case.over and not case.noticed]
    seconds = [second for account in accounts for second in account.rollback_seconds]
    return RegressionFigures(
        planted=len(cases),
        noticed=sum(case.noticed for case in cases),
        rolled_back=sum(case.rolled_back for case in cases),
        regained=len(regained),
        games=sum(case.games for case in cases if case.noticed),
        regained_games=sum(case.games for case in regained),
        false_alarms=sum(account.false_regressions for account in accounts),
        rated_games=sum(account.rated_games for account in accounts),
        rollback_seconds=max(seconds, default=None),
    )


def least_share(accounts: Sequence[Account], hours: range) -> float | None:
    """Return the least share of worker time of any account. 1 is an equal share, ``None`` means no work."""
    spent = [sum(account.node_seconds.get(hour, 0.0) for hour in hours) for account in accounts]
    return min(spent) / sum(spent) * len(spent) if sum(spent) else None


def run_result(
    arm: str, settings: RunSettings, events: int, scoreboard: Scoreboard, failures: Sequence[Failure]
) -> RunResult:
    """Return the figures of a run."""
    accounts = list(scoreboard.accounts.values())
    hours = max(len(account.strength) for account in accounts)
    days = [range(start, start + HOURS_PER_DAY) for start in range(0, hours - HOURS_PER_DAY + 1, HOURS_PER_DAY)]
    daily = [share for day in days if (share := least_share(accounts, day)) is not None]
    return RunResult(
        arm=arm,
        seed=settings.seed,
        events=events,
        trainings=sum(account.trainings for account in accounts),
        gain={
            key: scoreboard.truth(account.current).skill - account.initial
            for key, account in scoreboard.accounts.items()
        },
        total=tuple(sum(account.strength[hour] for account in accounts) for hour in range(hours)),
        stalls=stall_figures(accounts, settings.feedback.stall),
        regressions=regression_figures(accounts),
        daily_floor=min(daily, default=None),
        floor=least_share(accounts, range(hours)),
        unfolded=tuple(f"{failure.by} at {failure.event.sequence}: {failure.error}" for failure in failures),
    )
