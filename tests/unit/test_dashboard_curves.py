"""Thinned curves of the dashboard."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from recorded_run import KEY, recording

from app.dashboard.curves import thin
from app.dashboard.model import RunModel

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
