"""Shares of worker time on the dashboard."""

from itertools import pairwise

import pytest
from generated_run import cluster, generated, laptop

from flyball.app.controllers.state import FeedbackState, WorkerTime
from flyball.app.core import ConfigKey
from flyball.app.dashboard.model import RunModel
from flyball.app.dashboard.shares import MOST_MOMENTS, MOST_SHOWN, WorkerShares

A, B = ConfigKey("a"), ConfigKey("b")


def states(**spent: tuple[float, float]) -> dict[str, FeedbackState]:
    """Return states with seconds of self-play and of evaluation."""
    return {
        key: FeedbackState(config_key=ConfigKey(key), worker_time=WorkerTime(selfplay=selfplay, evaluation=evaluation))
        for key, (selfplay, evaluation) in spent.items()
    }


def test_shares_are_of_the_time_spent_in_the_window():
    """In the first minute A has all workers, a quarter of them evaluates; in the second, both have as many."""
    shares = WorkerShares()
    shares.take(0, {})
    shares.take(60_000_000, states(a=(30, 10)))
    shares.take(120_000_000, states(a=(50, 10), b=(10, 10)))
    found = shares.to_json((A, B))
    a, b = found["groups"]
    assert found["x"] == [60, 120]
    assert (a["share"], a["evaluation"]) == ([1, 0.5], [0.25, 0])
    assert (b["share"], b["evaluation"]) == ([0, 0.5], [0, 0.25])
    assert (a["mean_share"], a["mean_evaluation"]) == (0.75, 0.125)


def test_time_without_work_has_no_shares():
    shares = WorkerShares()
    for minute in range(3):
        shares.take(minute * 60_000_000, states(a=(5, 0)))
    assert shares.to_json((A,))["groups"][0]["share"] == [0, 0]
    assert WorkerShares().to_json((A,)) == {"x": [], "groups": []}


@pytest.mark.parametrize("events", [2, 240, 241, 5000])
def test_moments_are_few_and_evenly_spread(events):
    shares = WorkerShares()
    for number in range(events):
        shares.take(6_000_000 * number, states(a=(number, 0)))
    times = shares.to_json((A,))["x"]
    gaps = {after - before for before, after in pairwise(times)}
    assert min(events - 1, MOST_MOMENTS / 2 - 1) <= len(times) < MOST_MOMENTS
    assert max(gaps, default=0) <= 1.5 * min(gaps, default=0)
    assert times[-1] > 6 * (events - 1) - max(gaps, default=6)


@pytest.mark.parametrize("settings", [laptop(), cluster(2)], ids=["few", "many"])
def test_shares_are_those_of_the_report(settings):
    """Of many configurations, those with most time are shown by themselves."""
    model = RunModel()
    for event in generated(1500, seed=2, settings=settings):
        model.take(event)
    keys = [config.key for config in settings.configs]
    groups = model.shares.to_json(keys)["groups"]
    assert sum(group["mean_share"] for group in groups) == pytest.approx(1, abs=0.01)
    report = model.reports.report(None)
    spent = {config.key: config.worker_time.total / report.worker_seconds for config in report.configs}
    shown = {group["name"]: group["mean_share"] for group in groups if group["name"] in spent}
    assert shown == {key: pytest.approx(spent[key], abs=0.05) for key in shown}
    if len(keys) > MOST_SHOWN:
        assert min(spent[key] for key in shown) >= max(spent[key] for key in spent.keys() - shown.keys()) - 0.05
        assert groups[-1]["name"] == f"{len(keys) - len(shown)} others"
