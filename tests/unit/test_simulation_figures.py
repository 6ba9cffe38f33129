"""The figures of simulated runs, from accounts written by hand."""

from datetime import timedelta

import pytest

from app.config.feedback import StallSettings
from app.core import Elo, EventId, ModelHash, Rate
from app.core.clock import SECOND_US
from app.events import (
    ClockTick,
    EvaluationCompleted,
    Event,
    Evidence,
    MatchResult,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    PlateauDetected,
    RegressionDetected,
    originate,
)
from app.events.envelope import EPOCH
from app.simulation import NONE, RunResult, Scoreboard, load_plant, summarise
from app.simulation.agenda import Agenda
from app.simulation.comparing import bootstrap
from app.simulation.scoreboard import (
    Account,
    RegressionFigures,
    StallFigures,
    least_share,
    regression_figures,
    stall_figures,
)
from app.simulation.simulation import VirtualBroker
from app.simulation.world import DAY_US, HOUR_US, START_US, ModelTruth, World

KEY = "connect_four_2p"
A, B, C = (ModelHash(letter * 64) for letter in "abc")
GROWING = tuple(10.0 * hour for hour in range(48))
STALL = StallSettings(velocity=5.0, window_hours=6.0)


def match(opponent: str, games: int) -> MatchResult:
    return MatchResult(
        opponent=opponent,
        opponent_model=None,
        opponent_elo=Elo(0.0),
        games=games,
        wins=games,
        draws=0,
        losses=0,
        truncated=0,
        distinct_games=games,
        score=Rate.of(games, games),
        outcome=None,
        rotations=(0, 0, 0, 0, games // 2),
        graded=None,
    )


class Told:
    """A scoreboard fed by hand."""

    def __init__(self, **truths: ModelTruth) -> None:
        world = World(load_plant(), seed=1, end_us=START_US + DAY_US)
        world.models.update({ModelHash(name * 64): truth for name, truth in truths.items()})
        self.scoreboard, self._position = Scoreboard(world, [KEY]), 0

    @property
    def account(self) -> Account:
        return self.scoreboard.accounts[KEY]

    def tell(self, data: Payload, at_us: int = START_US) -> None:
        self._position += 1
        time, subject = EPOCH + timedelta(microseconds=at_us), None if isinstance(data, ClockTick) else KEY
        envelope = originate(data, event_id=f"e{self._position}", time=time, subject=subject)
        self.scoreboard.observe(Event(envelope, self._position, at_us, "test@laptop"))

    def promote(self, model: ModelHash, at_us: int = START_US) -> None:
        results = (match("random", 200), match("champion", 100), match("recent", 100))
        self.tell(
            EvaluationCompleted(
                request_id=EventId("r"),
                purpose="rating",
                model=model,
                step=1,
                results=results,
                elo=Elo(1.0),
                elo_stderr=20.0,
                lost_games=0,
                undecided_games=0,
                seconds=1.0,
            ),
            at_us,
        )
        evidence = Evidence(
            evaluation_id=EventId("e"), statistic="s", value=0, threshold=0, games=0, elo=1.0, elo_stderr=20.0
        )
        self.tell(ModelPromoted(model=model, previous=None, step=1, elo=Elo(1.0), evidence=evidence), at_us)


def alarm(model: ModelHash) -> RegressionDetected:
    return RegressionDetected(model=model, last_good=A, elo_drop=100.0, severity="critical", games=300)


def test_planted_regression_is_counted_until_its_rollback() -> None:
    told = Told(a=ModelTruth(trend=300.0), b=ModelTruth(trend=200.0, planted=(1,)))
    told.promote(A)
    told.promote(B, START_US + SECOND_US)
    told.tell(alarm(B), START_US + 2 * SECOND_US)
    told.tell(ModelRolledBack(from_model=B, to_model=A, step=1, reason="worse"), START_US + 3 * SECOND_US)
    figures = regression_figures([told.account])
    assert (figures.planted, figures.noticed, figures.rolled_back) == (1, 1, 1)
    assert figures.games == 200  # those of B's gauntlet against the random bot, which never changes
    assert figures.rated_games == 400
    assert figures.false_alarms == 0
    assert figures.rollback_seconds == 2.0
    assert told.account.current == A


def test_regression_ends_when_lost_strength_is_regained() -> None:
    told = Told(a=ModelTruth(trend=300.0), b=ModelTruth(trend=200.0, planted=(1,)), c=ModelTruth(301.0, planted=(1,)))
    for model in (A, B):
        told.promote(model)
    assert [case.number for case in told.account.open_cases] == [1]
    told.promote(C)
    assert not told.account.open_cases
    figures = regression_figures([told.account])
    assert (figures.noticed, figures.games) == (0, 0)
    assert (figures.regained, figures.regained_games) == (1, 400)  # B's games and C's


def test_noticed_or_lasting_regression_is_not_regained() -> None:
    told = Told(a=ModelTruth(trend=300.0), b=ModelTruth(trend=200.0, planted=(1,)), c=ModelTruth(301.0, planted=(1,)))
    for model in (A, B):
        told.promote(model)
    assert regression_figures([told.account]).regained == 0
    told.tell(alarm(B))
    told.promote(C)
    figures = regression_figures([told.account])
    assert (figures.noticed, figures.regained, figures.regained_games) == (1, 0, 0)


@pytest.mark.parametrize(("trend", "false"), [(300.0, 1), (281.0, 1), (279.0, 0)])
def test_an_alarm_is_false_when_the_current_model_is_no_worse(trend, false) -> None:
    told = Told(a=ModelTruth(trend=300.0), b=ModelTruth(trend=trend))
    for model in (A, B):
        told.promote(model)
    told.tell(alarm(B))
    assert told.account.false_regressions == false


def test_strength_is_noted_every_hour() -> None:
    told = Told(a=ModelTruth(trend=300.0, jitter=50.0))
    told.tell(ClockTick(period_seconds=60), START_US + HOUR_US)
    told.promote(A, START_US + HOUR_US + 1)
    for minutes in (61, 119, 120):
        told.tell(ClockTick(period_seconds=60), START_US + minutes * 60 * SECOND_US)
    assert told.account.strength == [0.0, 300.0]


def test_only_alarms_while_strength_grows_are_false() -> None:
    stuck = (*GROWING, *[GROWING[-1]] * 48)
    account = Account(strength=list(stuck))
    account.alarms_us += [START_US + hour * HOUR_US for hour in (10, 11, 30, 70)]
    figures = stall_figures([account], STALL)
    # Growth of 10 Elo/h is healthy from hour 6 on. Three hours of it in a window of six average 5 Elo/h, the limit.
    assert figures == StallFigures(alarms=4, healthy_days=(47 - 6 + 1 + 3) / 24, false_days=2)


def test_plateau_detected_is_recorded_as_an_alarm() -> None:
    told = Told()
    told.tell(PlateauDetected(velocity=1.0, upper_bound=2.0, window_hours=6.0), START_US + HOUR_US)
    assert told.account.alarms_us == [START_US + HOUR_US]


def test_the_least_share_is_a_share_of_an_equal_share() -> None:
    accounts = [Account(node_seconds={0: 10.0, 1: 30.0}), Account(node_seconds={0: 10.0, 1: 10.0})]
    assert least_share(accounts, range(1)) == 1.0
    assert least_share(accounts, range(2)) == pytest.approx(20 / 60 * 2)
    assert least_share(accounts, range(5, 6)) is None


def result(arm: str, seed: int, gain: float) -> RunResult:
    return RunResult(
        arm=arm,
        seed=seed,
        events=10,
        trainings=2,
        gain={KEY: gain},
        total=(gain,),
        stalls=StallFigures(alarms=2, healthy_days=10.0, false_days=1),
        regressions=RegressionFigures(
            planted=4,
            noticed=2,
            rolled_back=1,
            regained=1,
            games=300,
            regained_games=500,
            false_alarms=0,
            rated_games=900,
            rollback_seconds=None,
        ),
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
    assert both.ratio is not None
    assert both.ratio.mean == both.ratio.lower == both.ratio.upper == pytest.approx(1.5)
    assert none.ratio is not None
    assert none.ratio.mean == 1
    assert both.gain.mean == pytest.approx(700)
    assert both.gain.lower is not None
    assert both.gain.upper is not None
    assert 150 <= both.gain.lower < 700 < both.gain.upper <= 1500
    assert both.false_stalls == pytest.approx(0.1)
    assert (both.planted, both.noticed, both.games_to_notice) == (12, 0.5, 150.0)
    assert (both.regained, both.games_to_regain) == (0.25, 500.0)
    assert (both.floor, both.daily_floor, both.rollback_seconds) == (0.5, None, None)


def test_one_seed_has_no_interval() -> None:
    (only,) = summarise([result("all", 0, 5.0)])
    assert (only.gain.mean, only.gain.lower, only.gain.upper, only.ratio) == (5.0, None, None, None)


def test_the_bootstrap_covers_the_mean_about_as_often_as_it_says() -> None:
    import numpy as np

    rng = np.random.default_rng(5)
    samples = rng.normal(10.0, 3.0, size=(200, 30))
    intervals = [bootstrap(list(sample), [1.0] * 30) for sample in samples]
    covered = sum(i.lower is not None and i.upper is not None and i.lower <= 10 <= i.upper for i in intervals)
    assert 0.88 <= covered / 200 <= 0.99


def test_appointments_come_in_order_of_time_then_of_entry() -> None:
    agenda, said = Agenda(), list[str]()
    for seconds, name in ((2, "late"), (1, "first"), (1, "second"), (5, "never")):
        agenda.enter(seconds, name, lambda _: ())
    while (appointment := agenda.next_until(START_US + 2 * SECOND_US)) is not None:
        said.append(appointment.source)
    assert said == ["first", "second", "late"]
    assert agenda.now_us == START_US + 2 * SECOND_US


def test_what_is_published_twice_is_recorded_once() -> None:
    broker, time = VirtualBroker(), EPOCH + timedelta(microseconds=START_US)
    tick = originate(ClockTick(period_seconds=1), event_id="1", time=time)
    other = originate(ClockTick(period_seconds=1), event_id="2", time=time)
    (first,) = broker.record([tick], 100, "broker@cluster")
    (second,) = broker.record([tick, other], 50, "broker@cluster")
    assert (first.sequence, second.sequence, second.recorded_us, second.id) == (1, 2, 100, "2")
