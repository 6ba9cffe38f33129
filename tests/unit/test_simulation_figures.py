"""The figures of simulated runs, from accounts written by hand."""

from datetime import timedelta

import numpy as np
import pytest
from builders import recorded, rolled_back
from driving import match, promoted, rated

from flyball.app.config.feedback import StallSettings
from flyball.app.core import ModelHash
from flyball.app.core.clock import SECOND_US
from flyball.app.events import (
    ClockTick,
    Payload,
    PlateauDetected,
    RegressionDetected,
    originate,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.simulation import NONE, RunResult, Scoreboard, load_plant, summarise
from flyball.app.simulation.agenda import Agenda
from flyball.app.simulation.comparing import bootstrap
from flyball.app.simulation.scoreboard import (
    Account,
    RegressionFigures,
    StallFigures,
    least_share,
    regression_figures,
    stall_figures,
)
from flyball.app.simulation.simulation import VirtualBroker
from flyball.app.simulation.world import DAY_US, HOUR_US, START_US, ModelTruth, World

KEY = "connect_four_2p"
A, B, C = (ModelHash(letter * 64) for letter in "abc")
GROWING = tuple(10.0 * hour for hour in range(48))
STALL = StallSettings(velocity=5.0, window_hours=6.0)


class Told:
    def __init__(self, **truths: ModelTruth) -> None:
        world = World(load_plant(), seed=1, end_us=START_US + DAY_US)
        world.models.update({ModelHash(name * 64): truth for name, truth in truths.items()})
        self.scoreboard, self._position = Scoreboard(world, [KEY]), 0

    @property
    def account(self) -> Account:
        return self.scoreboard.accounts[KEY]

    def tell(self, data: Payload, at_us: int = START_US) -> None:
        self._position += 1
        subject = None if isinstance(data, ClockTick) else KEY
        self.scoreboard.observe(recorded(data, self._position, subject, seconds=at_us / SECOND_US))

    def promote(self, *models: ModelHash, at_us: int = START_US) -> None:
        for model in models:
            results = (match(1.0, 200), match(1.0, 100, "champion"), match(1.0, 100, "recent"))
            self.tell(rated(1.0, *results, model=model), at_us)
            self.tell(promoted(model, 1.0, 1), at_us)


def alarm(model: ModelHash) -> RegressionDetected:
    return RegressionDetected(
        model=model, last_good=A, elo_drop=100.0, severity="critical", games=300, opponent="random"
    )


def test_planted_regression_is_counted_until_its_rollback() -> None:
    told = Told(a=ModelTruth(trend=300.0), b=ModelTruth(trend=200.0, planted=(1,)))
    told.promote(A)
    told.promote(B, at_us=START_US + SECOND_US)
    told.tell(alarm(B), START_US + 2 * SECOND_US)
    told.tell(rolled_back(B, A, 1), START_US + 3 * SECOND_US)
    figures = regression_figures([told.account])
    assert (figures.planted, figures.noticed, figures.rolled_back, figures.false_alarms) == (1, 1, 1, 0)
    assert figures.games == 200  # those of B's gauntlet against the random bot, which never changes
    assert figures.rated_games == 400
    assert figures.rollback_seconds == 2.0
    assert told.account.current == A


@pytest.mark.parametrize("noticed", [False, True])
def test_regained_strength_ends_an_unnoticed_regression(noticed: bool) -> None:
    told = Told(a=ModelTruth(trend=300.0), b=ModelTruth(trend=200.0, planted=(1,)), c=ModelTruth(301.0, planted=(1,)))
    told.promote(A, B)
    assert [case.number for case in told.account.open_cases] == [1]
    assert regression_figures([told.account]).regained == 0
    if noticed:
        told.tell(alarm(B))
    told.promote(C)
    figures = regression_figures([told.account])
    regained = (0, 0) if noticed else (1, 400)  # B's games and C's
    assert (figures.noticed, figures.regained, figures.regained_games) == (noticed, *regained)
    assert noticed or (told.account.open_cases, figures.games) == ([], 0)


@pytest.mark.parametrize(("trend", "false"), [(300.0, 1), (281.0, 1), (279.0, 0)])
def test_an_alarm_is_false_when_the_current_model_is_no_worse(trend, false) -> None:
    told = Told(a=ModelTruth(trend=300.0), b=ModelTruth(trend=trend))
    told.promote(A, B)
    told.tell(alarm(B))
    assert told.account.false_regressions == false


def test_accounts_record_strength_and_alarms() -> None:
    told = Told(a=ModelTruth(trend=300.0, jitter=50.0))
    told.tell(ClockTick(period_seconds=60), START_US + HOUR_US)
    told.promote(A, at_us=START_US + HOUR_US + 1)
    for minutes in (61, 119, 120):
        told.tell(ClockTick(period_seconds=60), START_US + minutes * 60 * SECOND_US)
    assert told.account.strength == [0.0, 300.0], "every hour"
    told.tell(PlateauDetected(velocity=1.0, upper_bound=2.0, window_hours=6.0, least_gain=30.0), START_US + 2 * HOUR_US)
    assert told.account.alarms_us == [START_US + 2 * HOUR_US]


def test_only_alarms_while_strength_grows_are_false() -> None:
    account = Account(strength=[*GROWING, *[GROWING[-1]] * 48])
    account.alarms_us += [START_US + hour * HOUR_US for hour in (10, 11, 30, 70)]
    figures = stall_figures([account], STALL)
    # Growth of 10 Elo/h is healthy from hour 6 on. Three hours of it in a window of six average 5 Elo/h, the limit.
    assert figures == StallFigures(alarms=4, healthy_days=(47 - 6 + 1 + 3) / 24, false_days=2)


def test_the_least_share_is_a_share_of_an_equal_share() -> None:
    accounts = [Account(node_seconds={0: 10.0, 1: 30.0}), Account(node_seconds={0: 10.0, 1: 10.0})]
    assert least_share(accounts, range(1)) == 1.0
    assert least_share(accounts, range(2)) == pytest.approx(20 / 60 * 2)
    assert least_share(accounts, range(5, 6)) is None


def result(arm: str, seed: int, gain: float) -> RunResult:
    found = {"planted": 4, "noticed": 2, "rolled_back": 1, "regained": 1, "games": 300, "regained_games": 500}
    return RunResult(
        arm=arm,
        seed=seed,
        events=10,
        trainings=2,
        gain={KEY: gain},
        total=(gain,),
        stalls=StallFigures(alarms=2, healthy_days=10.0, false_days=1),
        regressions=RegressionFigures(**found, false_alarms=0, rated_games=900, rollback_seconds=None),
        daily_floor=None,
        unfolded=(),
        floor=0.5 + seed / 10,
    )


def test_arms_are_paired_by_seed() -> None:
    # Gains differ by a factor of ten between seeds, but the ratio between the arms is the same for each seed.
    runs = [
        result(arm, seed, gain)
        for seed, base in enumerate((100, 1000, 300))
        for arm, gain in (("all", base * 1.5), (NONE, base))
    ]
    both, none = summarise(runs)
    assert both.ratio.mean == both.ratio.lower == both.ratio.upper == pytest.approx(1.5)
    assert none.ratio.mean == 1
    assert both.gain.mean == pytest.approx(700)
    assert 150 <= both.gain.lower < 700 < both.gain.upper <= 1500
    assert both.false_stalls == pytest.approx(0.1)
    assert (both.planted, both.noticed, both.games_to_notice) == (12, 0.5, 150.0)
    assert (both.regained, both.games_to_regain) == (0.25, 500.0)
    assert (both.floor, both.daily_floor, both.rollback_seconds) == (0.5, None, None)
    (only,) = summarise([result("all", 0, 5.0)])
    assert (only.gain.mean, only.gain.lower, only.gain.upper, only.ratio) == (5.0, None, None, None), "one seed"


def test_the_bootstrap_covers_the_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    intervals = [bootstrap(list(sample), [1.0] * 30) for sample in rng.normal(10.0, 3.0, size=(200, 30))]
    assert 0.88 <= sum(i.lower <= 10 <= i.upper for i in intervals) / 200 <= 0.99


def test_agenda_and_broker_keep_order_and_events() -> None:
    agenda, said = Agenda(), list[str]()
    for seconds, name in ((2, "late"), (1, "first"), (1, "second"), (5, "never")):
        agenda.enter(seconds, name, lambda _: ())
    while (appointment := agenda.next_until(START_US + 2 * SECOND_US)) is not None:
        said.append(appointment.source)
    assert said == ["first", "second", "late"]
    assert agenda.now_us == START_US + 2 * SECOND_US
    broker, time = VirtualBroker(), EPOCH + timedelta(microseconds=START_US)
    tick = originate(ClockTick(period_seconds=1), event_id="1", time=time)
    other = originate(ClockTick(period_seconds=1), event_id="2", time=time)
    (first,) = broker.record([tick], 100, "broker@cluster")
    (second,) = broker.record([tick, other], 50, "broker@cluster")
    assert (first.sequence, second.sequence, second.recorded_us, second.id) == (1, 2, 100, "2")
