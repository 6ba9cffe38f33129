"""GauntletFeedbackController and EvaluationFeedbackHandler: each rule at its threshold and beside it."""

from functools import partial

import pytest
from builders import adapted, rejected, rolled_back, training_failed, tuned
from driving import HOUR, KEY, NEW, OLD, Driven, match, promoted, rated, run_settings, trained
from hypothesis import given
from hypothesis import strategies as st

from flyball.app.config import GAMES
from flyball.app.config.feedback import GauntletSettings
from flyball.app.controllers import EvaluationFeedbackHandler, GauntletFeedbackController
from flyball.app.events import HyperparameterUpdated, LossAnomalyDetected

CONFIG = GAMES[KEY]


@pytest.fixture
def gauntlet():
    return Driven(GauntletFeedbackController)


@pytest.fixture
def handler():
    return Driven(EvaluationFeedbackHandler)


def values(said):
    assert all(isinstance(payload, HyperparameterUpdated) for payload in said)
    return {payload.parameter: payload.value for payload in said}


TRAINED = GauntletSettings().least_trainings
GAMES_ASKED = CONFIG.selfplay.games_per_request
MORE_WORK = {"epochs": int(CONFIG.epochs * 1.5), "games_per_iteration": int(GAMES_ASKED * 1.5)}
LESS_NOISE = {"base_temperature": 0.8 * CONFIG.selfplay.temperature, "quality_threshold": 0.35}


def judged(*matches):
    """Return the rating of a model that was trained often enough."""
    return rated(0, *matches, step=TRAINED)


class TestGauntlet:
    @pytest.mark.parametrize(
        ("before", "judgement", "expected"),
        [
            ([], [match(0.95), match(0.8, opponent="heuristic")], {}),
            ([], [match(0.95), match(0.81, opponent="heuristic")], LESS_NOISE),
            ([], [match(0.7, 200)], {}),
            ([], [match(0.6, 200)], MORE_WORK),
            ([], [match(0.65, 20)], {}),  # a model that wins nine games of ten wins 13 of 20 by chance now and then
            ([match(0.1)], [match(0.7, 200)], {}),
            ([match(0.1)], [match(0.8, 200)], {"epochs": CONFIG.epochs, "games_per_iteration": GAMES_ASKED}),
            ([match(0.1)], [match(0.8, 20)], {}),
            ([match(0.9, opponent="heuristic")], [match(0.8, opponent="heuristic")], {}),
            ([match(0.9, opponent="heuristic")], [match(0.75, opponent="heuristic")], {}),
            (
                [match(0.9, opponent="heuristic")],
                [match(0.6, opponent="heuristic")],
                {"base_temperature": CONFIG.selfplay.temperature, "quality_threshold": 0.3},
            ),
        ],
    )
    def test_scores_certainly_beside_70_or_80_percent_turn_knobs(self, gauntlet, before, judgement, expected):
        if before:
            gauntlet.feed(judged(*before), at=1)
        assert values(gauntlet.feed(judged(*judgement), at=2 * HOUR)) == pytest.approx(expected)

    @pytest.mark.parametrize(
        ("scores", "epochs"),
        [
            ([0.6, 0.6], [4, 3]),
            ([0.6, 0.62, 0.62, 0.61], [4, 3, 3, 3]),  # tried, taken back, and not tried again
            ([0.3, 0.6, 0.6], [4, 6, 4]),  # the first raise may have helped, the second did not
            ([0.6, 0.6, 0.3], [4, 3, 4]),  # it has become weaker since
            ([0.6, 0.9, 0.6], [4, 3, 4]),  # it was strong enough in between
        ],
    )
    def test_work_that_does_not_help_is_taken_back(self, gauntlet, scores, epochs):
        handler, set_to = Driven(EvaluationFeedbackHandler), list[float]()
        for hour, score in enumerate(scores):
            for payload in gauntlet.feed(judged(match(score, 200)), at=1.1 * HOUR * hour + 1):
                gauntlet.feed(*handler.feed(payload, at=1.1 * HOUR * hour + 1), at=1.1 * HOUR * hour + 1)
            set_to.append(gauntlet.state().parameter("epochs", gauntlet.settings))
        assert set_to == epochs

    @pytest.mark.parametrize("step", [0, 1, TRAINED - 1])
    def test_models_of_few_trainings_are_not_judged(self, gauntlet, step):
        """They are all weak, which says nothing of how well trainings work."""
        assert not gauntlet.feed(rated(0, match(0.1), match(0.9, opponent="heuristic"), step=step), at=1)

    def test_an_operators_work_is_not_taken_back(self, gauntlet):
        gauntlet.feed(tuned("epochs", 7, CONFIG.epochs))
        assert not gauntlet.feed(judged(match(0.95)), at=1)

    @pytest.mark.parametrize(
        ("times", "changed"),
        [((1, 0.99 * HOUR, 1.01 * HOUR), [True, False, True]), (range(1, 12), [True, *[False] * 4] * 2 + [True])],
    )
    def test_an_hour_or_five_ratings_end_the_cooldown(self, gauntlet, times, changed):
        strong = judged(match(0.99, opponent="heuristic"))
        assert [bool(gauntlet.feed(strong, at=at)) for at in times] == changed

    @given(scores=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=40))
    def test_as_many_steps_back_restore_what_was_configured(self, scores):
        gauntlet, handler = Driven(GauntletFeedbackController), Driven(EvaluationFeedbackHandler)
        limits = gauntlet.settings.feedback.gauntlet
        for number, (random, heuristic) in enumerate([*scores, *[(0.99, 0.01)] * len(scores)]):
            now, matches = 1.1 * HOUR * (number + 1), (match(random), match(heuristic, opponent="heuristic"))
            for payload in gauntlet.feed(judged(*matches), at=now):
                gauntlet.feed(*handler.feed(payload, at=now), at=now)  # which passes on parameters of training
            value = partial(gauntlet.state().parameter, settings=gauntlet.settings)
            assert CONFIG.epochs <= value("epochs") <= limits.max_epochs
            assert GAMES_ASKED <= value("games_per_iteration") <= limits.max_games_factor * GAMES_ASKED
            assert value("base_temperature") <= CONFIG.selfplay.temperature
        assert (value("epochs"), value("games_per_iteration")) == (CONFIG.epochs, GAMES_ASKED)
        assert value("base_temperature") == pytest.approx(CONFIG.selfplay.temperature)
        assert value("quality_threshold") == pytest.approx(gauntlet.settings.min_quality)


class TestLearningRate:
    @staticmethod
    def gains(handler, gain, count=6, start=0.0, stderr=5.0):
        ratings = (rated(start + gain * n, stderr=stderr) for n in range(count))
        return [p for n, one in enumerate(ratings) for p in handler.feed(one, at=1 + n)]

    @pytest.mark.parametrize(("gain", "factor"), [(10.0, 1.1), (9.9, None), (-9.9, None), (-10.0, 0.8)])
    def test_it_follows_the_mean_gain_of_the_last_five(self, gain, factor):
        low = CONFIG.replace(learning_rate=1e-4)
        settings = run_settings().replace(configs=(low,))
        handler = Driven(EvaluationFeedbackHandler, settings)
        said = self.gains(handler, gain)
        assert [p.value for p in said] == pytest.approx([] if factor is None else [1e-4 * factor])
        assert {p.parameter for p in said} <= {"learning_rate"}

    @pytest.mark.parametrize(("stderr", "changes"), [(23.5, 1), (23.6, 0)])
    def test_a_gain_within_three_standard_errors_counts_as_none(self, handler, stderr, changes):
        """Ratings 100 Elo apart, each of the two with this error: 3 * sqrt(2) * 23.57 = 100."""
        assert len(self.gains(handler, -20.0, stderr=stderr)) == changes

    @pytest.mark.parametrize(("gain", "count"), [(-100, 5), (100, 6)])
    def test_four_gains_or_a_rate_of_1e_3_change_nothing(self, handler, gain, count):
        assert not self.gains(handler, gain, count=count)

    def test_rate_stays_at_least_1e_6(self, handler):
        for step in range(60):
            for n in range(6):
                handler.feed(rated(-100.0 * (6 * step + n)), at=1.1 * step * HOUR + n)
        assert handler.state().learning_rate == 1e-6

    def test_a_divergence_lowers_it_at_once(self, handler):
        (said,) = handler.feed(training_failed("t", "diverged"), at=1)
        assert said.value == handler.state().learning_rate == pytest.approx(0.8 * CONFIG.learning_rate)
        assert (said.parameter, said.previous) == ("learning_rate", CONFIG.learning_rate)
        assert not handler.feed(training_failed("t"), at=2)

    @staticmethod
    def anomaly(consecutive, metric="value_loss"):
        return LossAnomalyDetected(metric=metric, value=9.0, expected=1.0, deviations=8.0, consecutive=consecutive)

    @pytest.mark.parametrize(
        ("wanted", "trainings", "lowered"), [(2, 1, False), (2, 2, True), (2, 3, True), (1, 1, True)]
    )
    def test_consecutive_trainings_with_an_anomaly_lower_it(self, wanted, trainings, lowered):
        settings = run_settings(**({} if wanted == 2 else {"learning_rate": {"anomalies": wanted}}))
        said = Driven(EvaluationFeedbackHandler, settings).feed(self.anomaly(trainings), at=1)
        assert [one.value for one in said] == pytest.approx([0.8 * CONFIG.learning_rate] * lowered)

    def test_anomalies_lower_it_once_per_cooldown(self, handler):
        assert len(handler.feed(self.anomaly(2), self.anomaly(2, "approx_kl"), at=1)) == 1
        assert not handler.feed(self.anomaly(3), at=0.99 * HOUR)
        assert len(handler.feed(self.anomaly(4), at=1.01 * HOUR)) == 1
        handler.feed(self.say(1e-6), at=2 * HOUR)
        assert not handler.feed(self.anomaly(5), at=4 * HOUR), "it is at its minimum"
        assert handler.state().learning_rate == 1e-6

    def test_two_anomalies_of_one_training_lower_the_rate_once(self):
        handler = Driven(EvaluationFeedbackHandler, run_settings(learning_rate={"cooldown_hours": 0}))
        for number in range(2):
            handler.feed(trained(step=number), at=2 * number + 1)
            said = handler.feed(self.anomaly(2 + number), at=2 * number + 1.5)
            assert [one.value for one in said] == pytest.approx([0.8 ** (number + 1) * CONFIG.learning_rate])
            assert not handler.feed(self.anomaly(2 + number, "approx_kl"), at=2 * number + 2)

    @staticmethod
    def say(value):
        return tuned("learning_rate", value, 1e-3)

    def test_operators_rate_holds_for_a_cooldown_before_the_rule(self):
        handler = Driven(EvaluationFeedbackHandler, run_settings(learning_rate={"cooldown_ratings": 100}))
        assert not handler.feed(self.say(2e-5), at=1)
        assert handler.state().learning_rate == 2e-5
        assert not self.gains(handler, 100, count=7)
        (said,) = handler.feed(rated(1e4), at=1.1 * HOUR)
        assert said.value == pytest.approx(2.2e-5)

    def test_five_ratings_end_the_cooldown(self, handler):
        self.gains(handler, 0)
        handler.feed(self.say(2e-5), at=10)
        said = [handler.feed(rated(100.0 * n, stderr=5.0), at=11 + n) for n in range(1, 6)]
        assert [bool(one) for one in said] == [False] * 4 + [True]

    def test_three_rejections_in_a_row_halve_it_each_time(self, handler):
        """A far too high rate makes bad candidates of a good champion, whose rating never falls then."""
        said = [handler.feed(rejected(step=step), at=step) for step in range(1, 8)]
        rates = [one.value for each in said for one in each]
        assert rates == pytest.approx([CONFIG.learning_rate / 2, CONFIG.learning_rate / 4])
        assert [bool(one) for one in said] == [False, False, True, False, False, True, False]
        handler.feed(rejected(step=8), promoted(), at=8)
        assert not handler.feed(rejected(step=9), at=9), "a promotion starts the count again"
        for step in range(10, 100):
            handler.feed(rejected(step=step), at=step)
        assert handler.state().learning_rate == 1e-6

    def test_rejections_lower_operators_rate_only_after_cooldown(self, handler):
        handler.feed(self.say(2e-5), at=1)
        assert not [said for step in range(1, 4) for said in handler.feed(rejected(step=step), at=step + 1)]
        said = [said for step in range(4, 7) for said in handler.feed(rejected(step=step), at=1.1 * HOUR + step)]
        assert [one.value for one in said] == [1e-5]

    @pytest.mark.parametrize(
        ("parameter", "asked", "set_to"),
        [
            ("learning_rate", 1e-9, 1e-6),
            ("learning_rate", -1.0, 1e-6),
            ("learning_rate", 5.0, 1e-3),
            ("epochs", 1e12, 8),
            ("epochs", -5.0, 1),
            ("games_per_iteration", 1e12, 4 * CONFIG.selfplay.games_per_request),
            ("games_per_iteration", 0.2, 1),
        ],
    )
    def test_parameters_of_an_operator_stay_within_the_bounds(self, handler, parameter, asked, set_to):
        assert not handler.feed(tuned(parameter, asked), at=1)
        assert getattr(handler.state(), parameter) == set_to

    def test_the_leap_back_from_a_rolled_back_model_is_no_gain(self, handler):
        handler.feed(self.say(1e-4), at=1)
        self.gains(handler, 0, count=4, start=300.0)
        handler.feed(rated(-400.0), rolled_back(NEW, OLD, 1), at=HOUR)
        assert not [p for n in range(6) for p in handler.feed(rated(300.0), at=1.1 * HOUR + n)]

    def test_recorded_pairs_of_earlier_versions_set_the_same(self, handler):
        """They recorded each change of the gauntlet's, then all parameters, half of them old."""
        for parameter, value, epochs, games in (("epochs", 5, 5, 128), ("games_per_iteration", 192, 5, 192)):
            assert not handler.feed(tuned(parameter, value), adapted(epochs, games, 1e-4), at=1)
        state = handler.state()
        assert (state.epochs, state.games_per_iteration, state.learning_rate) == (5, 192, 1e-4)
