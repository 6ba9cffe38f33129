"""Thinned curves of the dashboard."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_run import KEY, recording

from flyball.app.dashboard.curves import ConfigCurves, elo_axis, thin
from flyball.app.dashboard.model import RunModel

finite = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(finite, finite), max_size=400), st.integers(3, 60))
def test_thin_keeps_ends_order_and_limit(points, most):
    xs, ys = sorted(x for x, _ in points), [y for _, y in points]
    kept = thin(xs, ys, most)
    assert len(kept) == min(len(xs), most)
    assert list(kept) == sorted(set(kept))
    if xs:
        assert (kept[0], kept[-1]) == (0, len(xs) - 1)


def test_thin_keeps_a_spike_among_thousands_of_points():
    ys = np.sin(np.arange(20_000) / 500)
    ys[12_345] = 50.0
    assert 12_345 in thin(range(20_000), ys, 240)


def test_curves_of_a_run_are_over_the_training_step():
    model = RunModel()
    for event in recording().events:
        model.take(event)
    curves = model.curves[KEY]
    found = curves.ratings(100)
    assert (found["elo"], found["step"]) == ([5.0, -12.5], [0, 1])
    assert found["high"][0] - found["elo"][0] == round(1.96 * 20, 1)
    assert [mark["what"] for mark in found["marks"]] == ["promotion"]
    found = curves.metric_curves(50)
    assert (found["evaluation/elo"]["x"], found["train/rows"]["y"]) == ([0, 1], [0.0, 9000.0])


@pytest.mark.parametrize(
    ("elo", "errors", "axis"),
    [
        ((600.0, 640.0), (70.0, 70.0), (530.0, 710.0)),  # ordinary bands fit
        ((0.0, 600.0), (1500.0, 70.0), (-150.0, 750.0)),  # a wide one is cut off at a quarter of the ratings' span
        ((0.0, 600.0), (150.0, 150.0), (-150.0, 750.0)),
        ((0.0, 600.0), (149.0, 150.5), (-149.0, 750.0)),
        ((10.0, 30.0), (1500.0, 40.0), (-90.0, 130.0)),  # or at 100 Elo
        ((5.0,), (1500.0,), (-95.0, 105.0)),
        ((5.0,), (0.0,), (5.0, 6.0)),
        ((), (), (0.0, 1.0)),
    ],
)
def test_elo_axis_cuts_off_bands_that_would_flatten_lines(elo, errors, axis):
    assert elo_axis(elo, errors) == axis


@given(st.lists(st.tuples(st.floats(-3000, 3000), st.floats(0, 3000)), min_size=2))
def test_elo_axis_holds_all_ratings_on_most_of_its_length(points):
    elo, errors = zip(*points, strict=True)
    low, high = elo_axis(elo, errors)
    assert low <= min(elo) <= max(elo) <= high
    assert max(elo) - min(elo) >= (high - low) * 2 / 3 - 1e-9 or high - low <= 600


def test_curves_name_the_axis_of_what_is_shown():
    curves = ConfigCurves()
    assert (curves.ratings(10)["x"], curves.ratings(10)["axis"]) == ([], [0.0, 1.0])
    curves.elo.add(1.0, 0, 300.0)
    curves.errors.append(800.0)
    assert curves.ratings(10)["axis"] == [200.0, 400.0]
