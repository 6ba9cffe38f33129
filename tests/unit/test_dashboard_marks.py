"""Marks and bands on the dashboard's Elo charts."""

from typing import Any

from driving import promoted
from recorded_run import KEY, NEW, OLD, START, Recording

from flyball.app.config import RunSettings
from flyball.app.dashboard.marks import MOST, ConfigMarks
from flyball.app.dashboard.model import RunModel
from flyball.app.events import (
    CurriculumRebalanced,
    ExplorationBoost,
    HyperparameterUpdated,
    MatchmakingUpdated,
    ModelPromoted,
    ModelRolledBack,
    OpponentPick,
    PlateauDetected,
    RunConfigured,
    TrainingBlockedByQuality,
    TrainingIntensityChanged,
    TrainingUnblocked,
)

BEGAN = START.timestamp() + 1  # when the first event, RUN_CONFIGURED, was recorded
STALLED = PlateauDetected(velocity=0.0, upper_bound=1.0, window_hours=0.001, least_gain=30.0)  # 3.6 s


def boost(before: float, after: float) -> ExplorationBoost:
    return ExplorationBoost(multiplier=after, lasts_seconds=60.0, reason=f"{before:g} → {after:g} because of a test")


def weights(weight: float, *plateaued: Any) -> CurriculumRebalanced:
    return CurriculumRebalanced(weights={KEY: weight, "connect_four_2p": 1.0}, plateaued=plateaued, reason="it gains")


def marks_of(*payloads: Any, key: str = KEY) -> ConfigMarks:
    """Return the marks of a configuration after these events, recorded a second after each other."""
    run = Recording([])
    run.add(RunConfigured(run_id="1", settings=RunSettings().model_dump(mode="json")))
    for data in payloads:
        run.add(data, subject=None if isinstance(data, CurriculumRebalanced) else KEY)
    model = RunModel()
    for event in run.events:
        model.take(event)
    return model.curves[key].marks


def bands(marks: ConfigMarks) -> list[tuple[str, float, float | None]]:
    """Return the bands, in seconds since the beginning."""
    found = sorted(marks.to_json()["bands"], key=lambda band: band["begin"])
    return [(one["what"], one["begin"] - BEGAN, one["end"] and one["end"] - BEGAN) for one in found]


def kinds(marks: ConfigMarks) -> list[str]:
    return [mark["what"] for mark in sorted(marks.to_json()["marks"], key=lambda mark: mark["time"])]


def test_lowered_boost_is_a_change_and_not_another_band():
    """The boost is raised twice, lasts longer, is lowered, and is lifted."""
    marks = marks_of(boost(1, 1.5), boost(1.5, 2.25), boost(2.25, 2.25), boost(2.25, 1.5), boost(1.5, 1))
    assert bands(marks) == [("boost", 1, 5)]
    texts = [mark["text"] for mark in marks.to_json()["marks"]]
    assert [text.partition(": ")[2].split(" because")[0] for text in texts] == [
        "1 → 1.5",
        "1.5 → 2.25",
        "2.25 → 1.5",
        "1.5 → 1",
    ]
    (band,) = marks.to_json()["bands"]
    assert "1 → 1.5 because" in band["text"]
    assert "1.5 → 1 because" in band["ended"]


def test_stall_covers_its_window_and_ends_with_the_plateau():
    marks = marks_of(STALLED, boost(1, 1.5), STALLED, weights(0.2, KEY), boost(1.5, 1), weights(1.0))
    assert [(what, round(begin, 1), end) for what, begin, end in bands(marks)] == [
        ("stall", -2.6, 4),
        ("boost", 2, 5),
        ("plateau", 4, 6),
    ]


def test_stall_ends_when_its_boost_falls():
    marks = marks_of(STALLED, boost(1, 2.25), boost(2.25, 1.5))
    assert [(what, end) for what, _, end in bands(marks)] == [("stall", 3), ("boost", None)]


def test_block_is_a_band_with_both_reasons():
    marks = marks_of(TrainingBlockedByQuality(reason="bad games"), TrainingUnblocked(reason="good games"))
    (band,) = marks.to_json()["bands"]
    assert (band["what"], band["end"] - band["begin"]) == ("block", 1)
    assert "bad games" in band["text"]
    assert "good games" in band["ended"]


def test_weights_are_marked_where_they_change():
    marks = marks_of(weights(1.3), weights(1.32), weights(1.36))
    texts = [mark["text"] for mark in marks.to_json()["marks"]]
    assert [text.partition(":")[0] for text in texts] == ["weight 1.00 → 1.30", "weight 1.30 → 1.36"]
    assert marks_of(weights(1.3), key="connect_four_2p").to_json() == {"marks": [], "bands": []}


def test_mark_says_what_changed_why_and_by_whom():
    rate = HyperparameterUpdated(parameter="learning_rate", value=8e-4, previous=1e-3, reason="it gains nothing")
    (mark,) = marks_of(rate).to_json()["marks"]
    assert mark["text"] == "learning_rate 0.001 → 0.0008 because it gains nothing  by operator (broker@laptop)"
    intensity = TrainingIntensityChanged(intensity="reduced", previous="normal", quality_score=None)
    (mark,) = marks_of(intensity).to_json()["marks"]
    assert mark["text"] == "training_intensity normal → reduced  by operator (broker@laptop)"


def test_models_and_knobs_are_marked_and_routine_is_not():
    pick = OpponentPick(agent=OLD, category="mirror", probability=1.0)
    first = ModelPromoted(model=OLD, previous=None, step=0, elo=5.0, evidence=promoted().evidence)
    marks = marks_of(
        first,
        MatchmakingUpdated(model=OLD, picks=(pick,)),
        first.replace(model=NEW, previous=OLD, step=1),
        ModelRolledBack(from_model=NEW, to_model=OLD, step=1, reason="worse"),
    )
    assert kinds(marks) == ["promotion", "promotion", "rollback"]


def test_latest_marks_are_kept_and_listed_first():
    rates = [
        HyperparameterUpdated(parameter="learning_rate", value=1e-3 + n * 1e-6, previous=1e-3, reason=str(n))
        for n in range(MOST + 5)
    ]
    marks = marks_of(*rates, TrainingBlockedByQuality(reason="bad games"))
    assert len(marks.to_json()["marks"]) == MOST
    rows = marks.rows(3)
    assert [row.name for row in rows] == ["block of training", "change of a knob", "change of a knob"]
    assert [row.lasts for row in rows] == [True, False, False]
    assert f"because {MOST + 4}" in rows[1].text
