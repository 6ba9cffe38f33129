"""Trees of causes and effects: complete, bounded, and safe with cycles."""

from typing import Any

import pytest
from driving import promoted
from event_strategies import events as any_events
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from recorded_run import Recording, recording

from flyball.app.cli.trace import trace_json, trace_tree
from flyball.app.core import ConfigKey, Elo, ModelHash
from flyball.app.events import (
    AgentRating,
    ClockTick,
    CurriculumRebalanced,
    EloUpdated,
    EvaluationCompleted,
    Event,
    ExplorationBoost,
    HyperparameterUpdated,
    Lineup,
    MatchmakingUpdated,
    ModelRolledBack,
    NodeQuarantined,
    NodeReleased,
    OpponentPick,
    Payload,
    PlateauDetected,
    QualityDegraded,
    QualityPenaltyApplied,
    RegressionDetected,
    SelfplayRequested,
    TrainingBlockedByQuality,
    TrainingCompleted,
    TrainingIntensityChanged,
)
from flyball.app.status.summary import summarise
from flyball.app.status.trace import AmbiguousEvent, Trace, UnknownEvent, trace

MANY = 1 << 40


def names(found: Trace) -> list[str]:
    return [node.event.data.event_name for node in found.nodes]


def test_causes_and_effects_are_complete_or_bounded() -> None:
    run = recording()
    found = trace(lambda: run.events, run.events[8].id, causes=MANY, effects=MANY)
    assert names(found) == [
        *("RUN_CONFIGURED", "TRAINING_REQUESTED", "TRAINING_COMPLETED", "EVALUATION_REQUESTED", "EVALUATION_COMPLETED"),
        *("MODEL_PROMOTED", "SELFPLAY_REQUESTED", "SELFPLAY_COMPLETE", "TRAINING_REQUESTED", "TRAINING_COMPLETED"),
        *("EVALUATION_COMPLETED", "PROMOTION_REJECTED"),
    ]
    assert [node.level for node in found.nodes] == list(range(12))
    assert found.earlier == 0
    found = trace(lambda: run.events, run.events[8].id, causes=2, effects=1)
    assert names(found) == ["EVALUATION_COMPLETED", "MODEL_PROMOTED", "SELFPLAY_REQUESTED", "SELFPLAY_COMPLETE"]
    assert (found.earlier, found.nodes[-1].hidden) == (4, 1)
    run.add(ClockTick(period_seconds=1.0), run.events[7])
    assert "CLOCK_TICK" not in names(trace(lambda: run.events, run.events[8].id)), "an effect of a cause"
    assert "CLOCK_TICK" in names(trace(lambda: run.events, run.events[7].id))


def test_long_traces_are_found_by_prefix() -> None:
    run = recording()
    wanted = run.events[10]
    assert trace(lambda: run.events, wanted.id[:10]).id == wanted.id
    assert trace(lambda: run.events, "11").id == wanted.id, "its position"
    with pytest.raises(UnknownEvent, match="no event at position 1,000"):
        trace(lambda: run.events, "1000")
    with pytest.raises(AmbiguousEvent, match="bcc2e689"):
        trace(lambda: run.events, "b")
    with pytest.raises(UnknownEvent, match="xyz"):
        trace(lambda: run.events, "xyz")
    made = next(event for event in run.events if isinstance(event.data, TrainingCompleted))
    assert trace(lambda: run.events, made.data.model[:8]).id == made.id, "the training of a model"
    run = Recording([])
    run.add(ClockTick(period_seconds=1.0))
    for _ in range(3000):
        run.add(ClockTick(period_seconds=1.0), run.events[-1])
    assert len(trace(lambda: run.events, run.events[0].id, effects=MANY).nodes) == 3001
    assert trace(lambda: run.events, run.events[-1].id).earlier == 3000 - 8


def test_the_tree_shows_times_around_the_event(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    run = recording()
    found = trace(lambda: run.events, run.events[8].id, causes=1, effects=2)
    Console(width=300).print(trace_tree(found))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert "5 earlier causes" in lines[0]
    assert "MODEL_PROMOTED tic_tac_toe_2p" in lines[1]
    assert "-1.0 s" in lines[1]
    assert "▶ SELFPLAY_REQUESTED" in lines[2]
    assert "+0.0 ms" in lines[2]
    assert "+2.0 s" in lines[4]
    assert "… 1 more effect" in lines[4]
    assert [node["level"] for node in trace_json(found)] == [0, 1, 2, 3]


def rewire(run: Recording, causes: list[int | None]) -> list[Event[Any]]:
    ids = [event.id for event in run.events]
    return [
        replace(event, envelope=replace(event.envelope, causationid=None if i is None else ids[i]))
        for event, i in zip(run.events, causes, strict=True)
    ]


@given(st.data())
def test_whatever_causes_what_it_ends(data: st.DataObject) -> None:
    run = recording()
    size = len(run.events)
    indices = data.draw(st.lists(st.none() | st.integers(0, size - 1), min_size=size, max_size=size))
    events = rewire(run, indices)
    wanted = data.draw(st.sampled_from(events))
    causes, effects = data.draw(st.sampled_from([0, 1, 3, MANY])), data.draw(st.sampled_from([0, 1, 3, MANY]))
    found = trace(lambda: events, wanted.id, causes=causes, effects=effects)
    ids = [node.event.id for node in found.nodes]
    assert len(set(ids)) == len(ids)
    assert wanted.id in ids
    trace_tree(found)


def test_summaries_are_one_short_line() -> None:
    shares = dict(zip(("a" * 64, "b" * 64, "random", "c" * 64, "d" * 64, "e" * 64), (5, 1, 4, 2, 1, 1), strict=True))
    picks = [OpponentPick(agent=one, category="peers", probability=share / 20) for one, share in shares.items()]
    mirror = OpponentPick(agent="f" * 64, category="mirror", probability=0.2)
    again = OpponentPick(agent="random", category="baselines", probability=0.1)
    line = summarise(MatchmakingUpdated(model=ModelHash("f" * 64), picks=(mirror, *picks, again)))
    shares_text = "30% random, 25% aaaaaaaa, 20% itself, 10% cccccccc and 3 more"
    assert line == f"ffffffff is matched against {shares_text} (league.matchmaking)"
    rating = AgentRating(agent="a" * 64, elo=Elo(100.0), elo_stderr=9.0, games=50, bound=None)
    line = summarise(EloUpdated(ratings=tuple(rating.replace(agent=f"{step:064x}") for step in range(30))))
    assert line.endswith(" and 26 more")
    assert line.count("elo=100") == 4
    word = promoted().evidence.replace(statistic="no model before it", value=0.0, threshold=0.0)
    line = summarise(promoted().replace(evidence=word))
    assert "no model before it; +400 " in line
    assert "needed" not in line
    decided = word.replace(statistic="gate passed, log of the likelihood ratio", value=4.54, threshold=2.944)
    line = summarise(promoted().replace(evidence=decided))
    assert "gate passed, log of the likelihood ratio: 4.54, 2.94 needed; " in line
    line = summarise(CurriculumRebalanced(weights={ConfigKey("hex\n7"): 1.5}, plateaued=(), reason="r"))
    assert line == "r; all weights: hex 7 1.50"
    evaluated = next(event.data for event in recording().events if isinstance(event.data, EvaluationCompleted))
    purposes = [summarise(evaluated.replace(purpose=purpose)).split(",")[0] for purpose in ("rating", "gate")]
    assert purposes == ["rating", "gate"]


@given(any_events())
def test_every_event_has_a_line(event: Event[Payload]) -> None:
    line = summarise(event.data)
    assert "\n" not in line


THRESHOLD = "the threshold (feedback.quality."


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (
            HyperparameterUpdated(parameter="learning_rate", value=5e-4, previous=1e-3, reason="r"),
            "learning_rate 0.001 → 0.0005 because r",
        ),
        (ExplorationBoost(multiplier=1.5, lasts_seconds=90.0, reason="r"), "temperature x 1.5 for 90 s: r"),
        (ExplorationBoost(multiplier=1.0, lasts_seconds=0.0, reason="r"), "temperature x 1: r"),
        (
            QualityPenaltyApplied(rate_multiplier=0.5, quality_score=0.25, threshold=0.3),
            f"rate of self-play x 0.5 because data quality 0.25 is below {THRESHOLD}penalty_below = 0.3)",
        ),
        (
            QualityPenaltyApplied(rate_multiplier=1.0, quality_score=0.4, threshold=0.4),
            f"rate of self-play x 1 because data quality 0.40 is at least {THRESHOLD}lift_at = 0.4)",
        ),
        (
            TrainingIntensityChanged(intensity="reduced", previous="accelerated", quality_score=0.6),
            "accelerated → reduced because data quality 0.60 is below feedback.intensity.normal",
        ),
        (TrainingIntensityChanged(intensity="reduced", previous="normal", quality_score=None), "normal → reduced"),
        (
            ModelRolledBack(from_model=ModelHash("a" * 64), to_model=ModelHash("b" * 64), step=3, reason="r"),
            "aaaaaaaa → bbbbbbbb, step 3, because r",
        ),
        (
            NodeQuarantined(worker="w@n", lasts_seconds=600.0, reason="r"),
            "w@n for 10 min because r; its shards that wait are dropped",
        ),
        (NodeReleased(worker="w@n", reason="r"), "w@n because r"),
        (TrainingBlockedByQuality(reason="r"), "no training because r; the shards that wait are dropped"),
        (
            SelfplayRequested(
                worker="w@n",
                model=ModelHash("a" * 64),
                lineups=(
                    Lineup(opponents=("random",), games=2),
                    Lineup(opponents=("b" * 64,), games=2),
                    Lineup(opponents=("a" * 64,), games=2),
                ),
                games=8,
                seed=0,
                temperature=1.5,
                probe=False,
            ),
            "8 games of aaaaaaaa with 2 other players by w@n, temperature 1.5",
        ),
        (
            QualityDegraded(request_id="r", worker="w@n", shard="c" * 64, reason="word " * 40),
            f"w@n: {'word ' * 29}word…",
        ),
        (
            PlateauDetected(velocity=-20.0, upper_bound=30.0, window_hours=0.1, least_gain=30.0),
            (
                "a stall: it gains at most 3 Elo in 6 min, less than 30 (feedback.stall.velocity x window_hours); "
                "a boost comes before a plateau"
            ),
        ),
        (
            PlateauDetected(velocity=-3.0, upper_bound=200.2, window_hours=6.0, least_gain=None),
            "a stall: it gains at most 1201.2 Elo in 6 h; a boost comes before a plateau",
        ),
        (
            RegressionDetected(
                model="a" * 64, last_good="b" * 64, elo_drop=990.1, severity="critical", games=100, opponent="f" * 64
            ),
            (
                "aaaaaaaa plays 990 Elo worse than good models in 100 games against anchor ffffffff: critical; "
                "bbbbbbbb was the last good one"
            ),
        ),
        (
            RegressionDetected(
                model="a" * 64, last_good=None, elo_drop=25.0, severity="minor", games=100, opponent="random"
            ),
            "aaaaaaaa plays 25 Elo worse than good models in 100 games against random: minor",
        ),
        (
            ExplorationBoost(multiplier=1.5, lasts_seconds=8.0, reason="the boost is lowered from 2.25 because r"),
            "temperature x 1.5 for 8 s: the boost is lowered from 2.25 because r",
        ),
        (
            CurriculumRebalanced(weights={ConfigKey(f"g{n}"): 2.0 - n / 4 for n in range(8)}, plateaued=(), reason="r"),
            "r; all weights: g0 2.00, g1 1.75, g2 1.50, g3 1.25, g4 1.00, 2 more, g7 0.25",
        ),
    ],
)
def test_decisions_say_old_and_new_and_why(data: Payload, line: str) -> None:
    assert summarise(data) == line
