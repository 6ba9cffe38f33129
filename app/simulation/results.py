"""Figures of a simulated run."""

from collections.abc import Iterable, Mapping, Sequence

from app.config import RunSettings, Settings
from app.config.feedback import StallSettings
from app.controllers.fold import Failure
from app.simulation.agenda import HOUR_US, START_US
from app.simulation.scoreboard import Account

HOURS_PER_DAY = 24


class StallFigures(Settings):
    """How stall alarms fit the truth.

    Attributes:
        alarms: how many there were.
        healthy_days: configuration-days in which strength apart from models' luck grew at least as fast as the rule's
            threshold, over its window; hours are counted and divided by 24.
        false_days: configuration-days with an alarm in such an hour.
    """

    alarms: int
    healthy_days: float
    false_days: int


class RegressionFigures(Settings):
    """How planted regressions fared.

    Attributes:
        planted: those that became current.
        noticed: those of them that raised an alarm.
        rolled_back: those of them that were rolled back.
        regained: those of them that were over before they were noticed: what was lost had been learned again, or
            another model without the trouble had taken their place.
        games: rated games from the first of each noticed one to its alarm, in sum.
        regained_games: rated games from the first of each regained one to the end of its loss, in sum.
        false_alarms: alarms although the current model was no worse than the best before.
        rated_games: all rated games of models that became current.
        rollback_seconds: the longest time from the evidence to the decision.
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


class RunResult(Settings):
    """One run.

    Attributes:
        gain: strength of the current model at the end over that of the first one, their luck included
            (``ModelTruth.skill``), Elo, by configuration.
        total: strength of all current models apart from their luck (``ModelTruth.trend``), Elo, at the end of each
            hour.
        floor: the least share of worker time that a configuration had, as a share of an equal share: on any one day,
            and over the whole time.
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
        """Sum over all configurations, Elo."""
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
    """Sum up what became of planted regressions."""
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
    """Return the least share of worker time in some hours, as a share of an equal share; ``None`` without any work."""
    spent = [sum(account.node_seconds.get(hour, 0.0) for hour in hours) for account in accounts]
    return min(spent) / sum(spent) * len(spent) if sum(spent) else None


def run_result(
    arm: str,
    settings: RunSettings,
    events: int,
    accounts: Mapping[str, Account],
    final: Mapping[str, float],
    *,
    failures: Sequence[Failure] = (),
) -> RunResult:
    """Make the figures of a run from its accounts and the strength of the current models at its end, luck included."""
    every = list(accounts.values())
    hours = max(len(account.strength) for account in every)
    days = [range(start, start + HOURS_PER_DAY) for start in range(0, hours - HOURS_PER_DAY + 1, HOURS_PER_DAY)]
    daily = [share for day in days if (share := least_share(every, day)) is not None]
    return RunResult(
        arm=arm,
        seed=settings.seed,
        events=events,
        trainings=sum(account.trainings for account in every),
        gain={key: final[key] - account.initial for key, account in accounts.items()},
        total=tuple(sum(account.strength[hour] for account in every) for hour in range(hours)),
        stalls=stall_figures(every, settings.feedback.stall),
        regressions=regression_figures(every),
        daily_floor=min(daily, default=None),
        floor=least_share(every, range(hours)),
        unfolded=tuple(f"{one.by} at {one.event.sequence}: {one.error}" for one in failures),
    )
