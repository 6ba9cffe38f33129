"""The status follows from the events, however they are batched."""

from datetime import timedelta

import pytest
from builders import configured, intensity, training_failed, training_of, unrated
from driving import scored
from event_strategies import events as any_events
from hypothesis import given
from hypothesis import strategies as st
from recorded_run import KEY, NEW, OLD, START, Recording, evaluated, evidence, match, recording, trained
from rich.console import Console

from flyball.app.api.following import is_shown
from flyball.app.bus.ports import Present, Sign
from flyball.app.cli.up_screen import daemons_text
from flyball.app.config import GAMES, PROFILES, RunSettings
from flyball.app.core import MeanOutcome, ModelHash
from flyball.app.events import (
    CATALOGUE,
    CurriculumRebalanced,
    DaemonFailed,
    DaemonHeartbeat,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    DistributionFailed,
    DistributionLate,
    Event,
    ExplorationBoost,
    MatchmakingUpdated,
    ModelCached,
    ModelDistributed,
    ModelPromoted,
    ModelRolledBack,
    NodeDegraded,
    NodeQuarantined,
    NodeRecovered,
    NodeReleased,
    OpponentPick,
    Payload,
    PromotionRejected,
    TrainingBlockedByQuality,
    TrainingCompleted,
    TrainingUnblocked,
)
from flyball.app.status.status import READS, Board, ConfigStatus, DaemonStatus, LastDecision, Status
from flyball.app.status.summary import show_outcome, show_progress, summarise
from flyball.app.status.tables import daemons_table, status_table

SIGN = Sign(position=11, lag=2, jobs=1, requests=3)
ALIVE = Present(daemon="training", node="laptop", heard_seconds_ago=1.5, lost=False, sign=SIGN)


def status_of(run: Recording, after_seconds: float = 0.0, *present: Present) -> Status:
    board = Board()
    board.feed(run.events)
    now = START + timedelta(seconds=len(run.events) + after_seconds)
    presence = {f"{one.daemon}@{one.node}": one for one in present} if present else None
    return board.status(now, presence, running=True)


def daemon_of(run: Recording, *present: Present) -> DaemonStatus:
    (daemon,) = status_of(run, 0.0, *present).daemons
    return daemon


def config_of(run: Recording, after_seconds: float = 0.0) -> ConfigStatus:
    (config,) = [one for one in status_of(run, after_seconds).configs if one.key == KEY]
    return config


def recorded(events: int) -> Recording:
    """Return the first events of the recorded run: 8 until its first champion, 13 until its daemon is ready."""
    run = recording()
    run.events = run.events[:events]
    return run


def back(from_model: str, to_model: str) -> ModelRolledBack:
    return ModelRolledBack(from_model=ModelHash(from_model), to_model=ModelHash(to_model), step=1, reason="worse")


STARTED = DaemonStarted(daemon="training", node="laptop", pid=8, version="0.1.0")


def test_a_configuration_is_known_by_its_events() -> None:
    config = config_of(recording())
    assert (config.games, config.rows, config.step, config.loops) == (600, 9000, 1, 1)
    assert (config.elo, config.elo_stderr, config.model) == (5.0, 20.0, OLD), "the champion's, not the refused model's"
    assert (config.promotions, config.rejections) == (0, 1), "the first model was not trained"
    assert config.win_rate_random is not None
    assert (config.win_rate_random.mean, config.win_rate_random.n) == (0.45, 200)
    assert config.win_rate_random.lower < 0.45 < config.win_rate_random.upper
    assert config.last_decision is not None
    assert (config.last_decision.name, config.last_decision.age_seconds) == ("PROMOTION_REJECTED", 1.0)
    run = recording()
    pick = OpponentPick(agent=OLD, category="mirror", probability=1.0)
    run.add(MatchmakingUpdated(model=OLD, picks=(pick,)), subject=KEY)
    assert config_of(run).last_decision == LastDecision("PROMOTION_REJECTED", config.last_decision.id, 2.0), (
        "no routine"
    )
    other = next(one for one in status_of(recording()).configs if one.key != KEY)
    assert (other.games_per_second, other.step, other.elo, other.win_rate_random, other.model) == (None,) * 5
    assert other.last_decision is None


def loops(run: Recording, *steps: int) -> None:
    """Add a loop for each step, in which its model wins."""
    for step in steps:
        before = run.events[-1].data.model
        met = {"champion": before, "recent": OLD}
        results = tuple(match(60, 100, role).replace(opponent_model=met[role]) for role in met)
        model = ModelHash(f"{step:064x}")
        judged = run.add(evaluated(model, step, 10.0, 100).replace(results=results), subject=KEY)
        run.add(ModelPromoted(model=model, previous=before, step=step, elo=10.0, evidence=evidence(10.0)), judged)


def test_second_rejection_of_a_model_counts_as_one() -> None:
    run = recording()
    rejected = next(event for event in run.events if isinstance(event.data, PromotionRejected))
    run.add(rejected.data, rejected)
    assert config_of(run).rejections == 1


def test_progress_counts_champions_that_are_not_withdrawn() -> None:
    run = recorded(8)
    config = config_of(run)
    assert (config.promotions, config.loops, config.model) == (0, 0, OLD), "the initial model is no loop"
    loops(run, 1)
    assert config_of(run).progress is None, "the first champion was the current one"
    loops(run, 2, 3, 4)
    progress = config_of(run).progress
    assert progress is not None
    assert (progress.score.mean, progress.loops) == (0.6, 3)
    assert show_progress(progress) == "60% [50%, 69%], 3 loops ago"
    run = recorded(8)
    loops(run, 1, 2, 3)
    run.add(back(f"{3:064x}", f"{1:064x}"), run.events[-1])
    board = Board()
    board.feed(run.events)
    assert [champion.model for champion in board.configs[KEY].champions] == [OLD, f"{1:064x}"]
    run = recording()
    for _ in range(2):  # reported twice, but counted once
        run.add(back(OLD, NEW), run.events[7])
    config = config_of(run)
    assert (config.promotions, config.rejections, config.rollbacks, config.model) == (0, 1, 1, NEW)


def test_status_says_what_is_unusual_about_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    run = recording()

    def shown(decision: Payload, after_seconds: float = 0.0) -> list[str]:
        run.add(decision, run.events[7])
        Console(width=200).print(status_table(status_of(run, after_seconds)))
        row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(KEY))
        return row.removeprefix(KEY).split("600")[0].split()

    boost = ExplorationBoost(multiplier=1.5, lasts_seconds=60, reason="stalled")
    assert shown(TrainingBlockedByQuality(reason="parity failed")) == ["blocked"]
    assert shown(intensity("paused")) == ["blocked,", "paused"]
    assert shown(TrainingUnblocked(reason="clean")) == ["paused"]
    assert shown(boost) == ["paused,", "boosted", "1.5"]
    assert shown(intensity("normal", "paused")) == ["boosted", "1.5"]
    assert shown(boost.replace(multiplier=1.0)) == []
    assert shown(boost, after_seconds=61) == [], "it has lapsed"


def test_plateau_is_shown_until_another_rebalancing_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    run = recording()
    for plateaued in ((KEY,), ()):
        rebalanced = CurriculumRebalanced(weights={KEY: 0.2}, plateaued=plateaued, reason="r")
        assert is_shown(rebalanced), "flyball up has a line for it"
        run.add(rebalanced)
        assert config_of(run).plateaued == bool(plateaued)
        Console(width=200).print(status_table(status_of(run)))
        assert ("plateaued" in capsys.readouterr().out) == bool(plateaued)


def test_status_counts_trainings_that_diverged_in_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    run = recording()
    failed = training_failed("r", "diverged")
    done = next(event.data for event in run.events if isinstance(event.data, TrainingCompleted))
    counts = []
    for data in (failed, failed, training_failed("r"), failed, done):
        run.add(data, run.events[7])
        counts.append(config_of(run).diverged)
        Console(width=200).print(status_table(status_of(run)))
        assert ("diverged 2 x" in capsys.readouterr().out) == (counts[-1] == 2)
    assert counts == [1, 2, 0, 1, 0]


def test_summary_of_a_searched_training_tells_its_divergence() -> None:
    metrics = {"divergence": 0.25, "entropy": 1.0, "policy_loss": 2.0, "seconds": 3.0}
    done = TrainingCompleted(request_id="r", model=NEW, parent=OLD, step=2, rows=10, metrics=metrics, seconds=1.0)
    assert summarise(done).endswith("from 10 rows, divergence 0.2500, entropy 1.000, 3.0 s")


@pytest.mark.parametrize(
    ("failed", "done"),
    [
        (training_failed("r", error="no gradient"), trained(NEW, 2)),
        (unrated().replace(error="no gradient"), evaluated(NEW, 2, 10.0, 120)),
    ],
)
def test_failures_in_a_row_are_named_until_a_success(failed: Payload, done: Payload) -> None:
    run = recording()
    noun = failed.event_name.partition("_")[0].lower()

    def waits(data: Payload) -> str | None:
        run.add(data, run.events[7])
        return status_of(run).configs[0].waiting_for

    assert [waits(failed), waits(failed)] == [None, None]
    assert waits(failed).startswith(f"{noun} failed 3 times in a row, at last by no gradient. Traceback: logs/")
    assert waits(failed).startswith(f"{noun} failed 4 times")
    assert [waits(done), waits(failed)] == [None, None]


@pytest.mark.parametrize(("after", "rate"), [(0, 600 / 15), (44, 600 / 59), (45, 600 / 60), (54, 0.0), (500, 0.0)])
def test_the_rate_is_that_of_the_last_minute(after: float, rate: float) -> None:
    assert config_of(recording(), after).games_per_second == pytest.approx(rate)


def test_a_daemon_is_known_by_what_it_says() -> None:
    assert daemon_of(recording()).state == "stopped"
    run, board = recorded(13), Board()
    daemon = daemon_of(run)
    assert (daemon.state, daemon.lag, daemon.jobs, daemon.capacity, daemon.pid) == ("ready", None, None, 1, 7)
    board.feed(run.events)
    (daemon,) = board.status(START, None, running=False).daemons
    assert daemon.state == "gone", "the run has ended"


def test_daemon_status_shows_what_the_broker_knows_of_it() -> None:
    run = recorded(13)
    daemon = daemon_of(run, ALIVE)
    assert (daemon.state, daemon.lag, daemon.jobs, daemon.heard_seconds_ago) == ("ready", 2, 1, 1.5)
    assert daemon_of(run, ALIVE.replace(lost=True)).state == "silent"
    unknown = [status_of(run, after, ALIVE.replace(node="elsewhere")).daemons[0].state for after in (4.0, 5.0)]
    assert unknown == ["ready", "silent"], "the broker's table may be older than the daemon's start"
    unheard = daemon_of(run, ALIVE.replace(sign=None))
    assert (unheard.state, unheard.lag, unheard.jobs) == ("ready", None, None)
    alone = Recording([])
    alone.add(DaemonReady(daemon="broker", node="head", position=1, capacity=0))
    (broker,) = status_of(alone, 1e6, ALIVE).daemons
    assert (broker.state, broker.heard_seconds_ago) == ("ready", 0.0), "a broker that answers lives"


def test_restarts_count_after_a_start_without_a_stop() -> None:
    run = recording()
    run.add(STARTED)
    assert (daemon_of(run).restarts, daemon_of(run).state) == (0, "started")
    run.add(STARTED)
    assert daemon_of(run).restarts == 1
    run.add(DaemonFailed(daemon="training", node="laptop", error="no [room]"))
    assert (daemon_of(run).state, daemon_of(run).error) == ("failed", "no [room]")
    run.add(STARTED)
    assert (daemon_of(run).restarts, daemon_of(run).error) == (2, None)
    run = Recording([])
    run.add(DaemonHeartbeat(daemon="training", node="gpu1", position=3, lag=0, jobs=0, requests=()))
    assert (daemon_of(run).state, daemon_of(run).restarts) == ("ready", 0)
    run.add(DaemonStopped(daemon="training", node="gpu1", position=3))
    assert daemon_of(run).state == "stopped"


def test_status_of_a_node_that_stopped_leaves_it_out() -> None:
    run = Recording([])

    def stopped(name: str, node: str) -> list[tuple[str, str]]:
        run.add(DaemonStopped(daemon=name, node=node, position=3))
        return [(one.node, one.state) for one in status_of(run).daemons]

    for node in ("laptop", "ghost"):
        for name in ("training", "broker"):
            run.add(STARTED.replace(daemon=name, node=node))
    assert [node for node, _ in stopped("training", "ghost")] == ["laptop", "laptop", "ghost", "ghost"]
    assert [node for node, _ in stopped("broker", "ghost")] == ["laptop", "laptop"]
    assert len(stopped("training", "laptop")) == 2
    assert stopped("broker", "laptop") == [("laptop", "stopped")] * 2


def test_broker_that_another_head_replaced_has_stopped() -> None:
    run = Recording([])
    for node, name in (("one", "broker"), ("one", "feedback"), ("two", "broker")):
        run.add(STARTED.replace(daemon=name, node=node))
    heard = Present(daemon="feedback", node="one", heard_seconds_ago=20.0, lost=True, sign=None)
    broker, feedback, serving = status_of(run, 60.0, heard).daemons
    assert (broker.state, feedback.state, serving.state) == ("stopped", "silent", "started")
    assert (broker.heard_seconds_ago, serving.heard_seconds_ago) == (62.0, 0.0)


def test_status_shows_what_the_last_start_plays() -> None:
    run = recording()
    for profile in ("full", "laptop"):
        run.add(configured(RunSettings(configs=tuple(GAMES[key] for key in PROFILES[profile]))))
    assert [one.key for one in status_of(run).configs] == list(PROFILES["laptop"])


def test_only_events_that_are_read_change_anything() -> None:
    run = recording()
    read = [event for event in run.events if type(event.data) in READS]
    assert 0 < len(read) < len(run.events)
    one, other = Board(), Board()
    one.feed(read)
    other.feed(run.events)
    assert one.status(START, None, running=True).configs == other.status(START, None, running=True).configs
    assert set(CATALOGUE) >= READS


@given(st.lists(any_events().filter(lambda event: event.data.event_name != "RUN_CONFIGURED"), max_size=12), st.data())
def test_cutting_a_history_changes_nothing(events: list[Event], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(events)))
    whole, parts = Board(), Board()
    whole.feed(events)
    parts.feed(events[:cut])
    parts.feed(events[cut:])
    now = START + timedelta(days=1)
    status = whole.status(now, None, running=True)
    assert status == parts.status(now, None, running=True)
    assert Status.from_json(status.to_json()) == status
    assert all(config.loops <= config.promotions + config.rejections for config in status.configs)


def test_the_views_say_it(capsys: pytest.CaptureFixture[str]) -> None:
    run = recording()
    run.add(DaemonFailed(daemon="training", node="laptop", error="no [room]"))
    run.add(trained(NEW, 12), run.events[10])
    console = Console(width=200)
    console.print(status_table(status_of(run)), daemons_table(status_of(run)), daemons_text(status_of(run)))
    shown = capsys.readouterr().out
    for part in (KEY, "600", "12", "+5 ± 20", "45.0% [38.3%, 51.9%] n=200", "0/1", "PROMOTION_REJECTED", "no [room]"):
        assert part in shown


@pytest.fixture
def wide() -> Status:
    """Return a status whose table needs some 170 characters of width."""
    run = recording()
    run.add(DaemonFailed(daemon="training", node="laptop", error="the disk is full, " * 20))
    return status_of(run)


@pytest.mark.parametrize(
    ("width", "shown", "left_out"),
    [
        (200, ["configuration", "games/s", "champion's Elo", "last rated v. random", "last decision"], []),
        (
            120,
            ["configuration", "games/s", "champion's Elo", "last rated v. past champion", "+/-"],
            ["last decision", "last rated v. random"],
        ),
        (80, ["configuration", "games/s", "champion's Elo", "+/-"], ["last decision", "last rated v. random"]),
        (32, ["configuration", "champion's Elo"], ["games", "loops"]),
    ],
)
def test_narrow_status_table_omits_columns_and_wraps_no_row(capsys, wide, width, shown, left_out):
    Console(width=width).print(status_table(wide, width))
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert len(lines) == 1 + len(wide.configs)
    assert all(name in lines[0] for name in shown)
    assert not any(name in lines[0] for name in left_out)
    assert "…" not in "".join(lines)


def test_narrow_daemons_table_wraps_errors_only(capsys, wide):
    Console(width=80).print(daemons_table(wide, 80))
    lines = [line.split() for line in capsys.readouterr().out.rstrip().splitlines()]
    (said,) = (daemon.error for daemon in wide.daemons if daemon.error)
    first, *rest = [line for line in lines[1:] if "training" not in line[0] or "failed" in line]
    assert first[:3] == ["training", "laptop", "failed"]
    assert " ".join([*first[first.index("the") :], *(word for line in rest for word in line)]) == said.strip()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_daemons_side_by_side_keep_their_marks(capsys, wide, width):
    Console(width=width).print(daemons_text(wide))
    assert all(line.count("●") >= 1 for line in capsys.readouterr().out.rstrip().splitlines())


def test_status_says_which_workers_are_left_alone() -> None:
    run, worker = recorded(13), "training@laptop"

    def shown(data: Payload) -> tuple[str, str | None]:
        run.add(data)
        return daemon_of(run).state, daemon_of(run).error

    degraded = NodeDegraded(worker=worker, failures=3, pause_seconds=30, error="no store")
    assert shown(degraded) == ("degraded", "no store")
    quarantined = NodeQuarantined(worker=worker, lasts_seconds=600, reason="3 of 16 games differ")
    assert shown(quarantined) == ("quarantined", "3 of 16 games differ")
    assert shown(NodeReleased(worker=worker, reason="x"))[0] == "degraded"
    assert shown(NodeRecovered(worker=worker)) == ("ready", None)
    assert shown(degraded.replace(worker="selfplay_worker@elsewhere")) == ("ready", None)


def test_late_and_failing_nodes_are_shown_while_they_matter() -> None:
    run = recording()
    for node in ("w1", "w2", "w3"):
        run.add(STARTED.replace(daemon="distribution", node=node))
    run.add(DistributionLate(model=OLD, nodes=("w1", "w2", "w3"), seconds=60.0), subject=KEY)
    run.add(ModelCached(model=OLD, step=0, node="w2"), subject=KEY)
    run.add(DaemonStopped(daemon="distribution", node="w3", position=1))
    assert config_of(run).late == ("w1",)
    run.add(ModelDistributed(model=NEW, step=1, nodes=("laptop",)), subject=KEY)
    assert config_of(run).late == ()
    run, about = recording(), {"model": OLD, "step": 0}
    failed = DistributionFailed(
        **about, node="w1", attempt=1, retry_seconds=30.0, damaged=False, readable=None, error="no route"
    )
    run.add(failed.replace(node="laptop"), subject=KEY)
    assert "cannot be distributed" in str(config_of(run).waiting_for)
    run.add(ModelDistributed(**about, nodes=("laptop",)), subject=KEY)
    run.add(failed, subject=KEY)
    assert config_of(run).waiting_for is None


@pytest.mark.parametrize(
    ("mean", "stderr", "text"),
    [(0.93, 0.237, "+0.93 [+0.47, +1.39]"), (-12.0, 31.0, "-12 [-73, +49]"), (0.25, 0.0, "+0.25")],
)
def test_mean_outcome_has_the_digits_of_its_error(mean: float, stderr: float, text: str) -> None:
    reach = 1.96 * stderr
    outcome = MeanOutcome(mean=mean, stderr=stderr, lower=mean - reach, upper=mean + reach)
    assert show_outcome(outcome) == text


@pytest.mark.parametrize(
    ("models", "shown"), [([NEW, NEW], "20 rows,"), ([OLD, NEW], "20 rows (10 by champions before),")]
)
def test_summary_of_a_training_tells_late_rows(models, shown):
    shards = [scored(rows=10, model=model, shard=key * 64).shard for model, key in zip(models, "cd", strict=True)]
    assert shown in summarise(training_of(*shards).replace(base_model=NEW))
