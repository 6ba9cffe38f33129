"""Refusals of contradictory thresholds, with both names and a remedy."""

import pytest
from driving import run_settings
from pydantic import ValidationError


@pytest.mark.parametrize(
    ("part", "values", "said"),
    [
        (
            "stall",
            {"boost": 2.0, "boost_cap": 1.5},
            "boost_cap 1.5 must not lie below boost 2: raise boost_cap, or lower",
        ),
        (
            "quality",
            {"lift_at": 0.3},
            "lift_at 0.3 must lie above penalty_below 0.3: raise lift_at, or lower penalty_below",
        ),
        ("intensity", {"reduced": 0.7}, "normal 0.65 must not lie below reduced 0.7"),
        ("intensity", {"hot_path": 0.7}, "hot_path 0.7 must not lie below accelerated 0.8"),
        ("learning_rate", {"minimum": 1.0}, "maximum 0.001 must not lie below minimum 1"),
        ("learning_rate", {"raise_at_elo": -10}, "raise_at_elo -10 must lie above lower_at_elo -10"),
        ("curriculum", {"minimum": 1.1}, "less than or equal to 1"),
        ("curriculum", {"maximum": 0.9}, "greater than or equal to 1"),
        ("watchdog", {"severity_elo": (20, 50, 35, 75)}, "must ascend from minor to critical"),
        ("lifecycle", {"elo0": 0, "elo1": -40}, "elo1 -40 must lie above elo0 0: raise elo1, or lower elo0"),
        ("lifecycle", {"elo0": 0, "elo1": 0}, "elo1 0 must lie above elo0 0"),
        ("trigger", {"hot_path": 3.0}, "accelerated 1 must not lie below hot_path 3"),
        ("gauntlet", {"min_temperature": 11.0}, "less than or equal to 10"),
    ],
)
def test_contradictory_settings_are_refused(part, values, said):
    with pytest.raises(ValidationError) as refused:
        run_settings(**{part: values})
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("stall", {"boost": 2.0, "boost_cap": 2.0}),
        ("intensity", {"reduced": 0.65}),
        ("learning_rate", {"minimum": 1e-3}),
        ("curriculum", {"minimum": 1.0, "maximum": 1.0}),
    ],
)
def test_limits_may_be_equal_where_that_makes_sense(part, values):
    """No second boost, no reduced level, fixed learning rate, fixed weights."""
    run_settings(**{part: values})
