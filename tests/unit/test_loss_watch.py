"""LossWatch: warm-up, deviations, and its count of trainings in a row."""

from math import inf, nextafter
from typing import Any

import pytest
from driving import KEY, NEW, OLD, OTHER_KEY, Driven, run_settings, trained
from recorded_run import evidence

from flyball.app.controllers import LossWatch
from flyball.app.core import Elo
from flyball.app.events import LossAnomalyDetected, ModelPromoted, Payload
from flyball.app.events.codec import lift

USUAL = (0.9, 1.1)
"""Value losses of trainings without anomalies, in turns."""


def driven(trainings: int, **anomaly: Any) -> Driven:
    """Return a watch that has seen so many usual trainings."""
    watch = Driven(LossWatch, run_settings(KEY, OTHER_KEY, anomaly=anomaly))
    for number in range(trainings):
        assert not watch.feed(usual(number))
    return watch


def usual(number: int = 0) -> Payload:
    return trained(value_loss=USUAL[number % 2], approx_kl=USUAL[number % 2] / 100)


def loss_at(watch: Driven, deviations: float) -> float:
    """Return the value loss some standard deviations above the usual mean."""
    figure = watch.row().usual["value_loss"]
    return figure.mean + deviations * figure.variance**0.5


@pytest.mark.parametrize(("trainings", "found"), [(9, 0), (10, 1)])
def test_nothing_is_unusual_before_10_trainings(trainings, found):
    assert len(driven(trainings).feed(trained(value_loss=50.0, approx_kl=0.01))) == found


@pytest.mark.parametrize(("deviations", "found"), [(5.999, 0), (6.001, 1), (-100.0, 0)])
def test_6_standard_deviations_above_the_mean_are_unusual(deviations, found):
    watch = driven(10)
    said = watch.feed(trained(value_loss=loss_at(watch, deviations), approx_kl=0.01))
    assert [anomaly.metric for anomaly in said] == ["value_loss"] * found


def test_the_threshold_itself_is_unusual():
    (anomaly,) = driven(10).feed(trained(value_loss=2.0, approx_kl=0.01))
    exact = anomaly.deviations
    assert driven(10, deviations=exact).feed(trained(value_loss=2.0, approx_kl=0.01)) == [anomaly]
    assert not driven(10, deviations=nextafter(exact, inf)).feed(trained(value_loss=2.0, approx_kl=0.01))


def test_unusual_figures_are_named_and_become_usual():
    watch = driven(12)
    mean = watch.row().usual["value_loss"].mean
    loss, kl = watch.feed(trained(value_loss=50.0, approx_kl=0.5))
    assert (loss.metric, loss.value, loss.expected) == ("value_loss", 50.0, mean)
    assert mean == pytest.approx(1.0, abs=0.1)
    assert loss.deviations == pytest.approx((50 - mean) / 0.1, rel=0.2)
    assert (kl.metric, kl.value) == ("approx_kl", 0.5)
    watch = driven(10)
    said = [len(watch.feed(trained(value_loss=50.0, approx_kl=0.01))) for _ in range(5)]
    assert said == [1, 0, 0, 0, 0]


def test_figures_without_variance_or_elsewhere_are_not_unusual():
    watch = Driven(LossWatch)
    assert not [said for _ in range(20) for said in watch.feed(trained(value_loss=1.0, approx_kl=0.01))]
    assert not watch.feed(trained(value_loss=2.0, approx_kl=0.01))
    watch = driven(10)
    assert not watch.feed(trained(value_loss=50.0), key=OTHER_KEY)
    assert watch.feed(trained(value_loss=50.0))


def test_trainings_without_these_metrics_say_nothing():
    watch = driven(10)
    before = watch.row()
    assert not watch.feed(trained().replace(metrics=None))
    assert watch.row() is before
    watch = driven(10)
    ranges = watch.row().usual
    assert not watch.feed(trained().replace(metrics={"td_error": 50.0}))
    assert watch.row().usual == ranges


def test_metrics_of_a_backend_are_watched_where_declared():
    watch = driven(0, metrics=["td_error"])
    for number in range(10):
        assert not watch.feed(trained().replace(metrics={"td_error": USUAL[number % 2], "value_loss": 1.0}))
    (anomaly,) = watch.feed(trained().replace(metrics={"td_error": 50.0, "value_loss": 50.0}))
    assert anomaly.metric == "td_error"
    assert watch.row().usual.keys() == {"td_error"}


class TestConsecutiveAnomalies:
    """Number of trainings in a row that left the usual range. Anomalies report it, and FeedbackState keeps it."""

    @staticmethod
    def feed(watch: Driven, loss: float, kl: float = 0.01) -> list[LossAnomalyDetected]:
        said = watch.feed(trained(value_loss=loss, approx_kl=kl))
        watch.feed(*said)
        return said

    def test_training_with_several_unusual_figures_counts_once(self):
        watch = driven(10)
        assert [anomaly.consecutive for anomaly in self.feed(watch, 50.0, kl=5.0)] == [1, 1]
        assert watch.state().consecutive_anomalies == 1

    def test_anomalies_count_in_a_row_until_a_usual_training(self):
        watch, found = driven(10), []
        for loss in (50.0, 5000.0, 5e5, 1.0, 5e7):
            self.feed(watch, loss)
            found.append(watch.state().consecutive_anomalies)
        assert found == [1, 2, 3, 0, 1]

    @pytest.mark.parametrize(("growth", "counted"), [(1.0, 1), (1.5, 1), (2.0, 2), (3.0, 3)])
    def test_only_what_grows_on_is_unusual_again(self, growth, counted):
        """An anomaly raises the standard deviation to a third of its deviation."""
        watch, found = driven(10), []
        for training in range(3):
            self.feed(watch, 1.0 + 1000 * growth**training)
            found.append(watch.state().consecutive_anomalies)
        assert max(found) == counted

    def test_a_promotion_is_no_training(self):
        watch = driven(10)
        self.feed(watch, 50.0)
        watch.feed(ModelPromoted(model=NEW, previous=OLD, step=1, elo=Elo(5.0), evidence=evidence(5.0)))
        assert watch.state().consecutive_anomalies == 1


def test_lift_of_an_uncounted_anomaly_makes_it_a_single_one():
    old = {"metric": "value_loss", "value": 9.0, "expected": 1.0, "deviations": 8.0}
    lifted = lift(LossAnomalyDetected.event_type, old, 1, LossAnomalyDetected.dataversion)
    assert LossAnomalyDetected(**lifted).consecutive == 1
