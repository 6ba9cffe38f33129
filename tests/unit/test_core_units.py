"""Numbers with their uncertainty, and errors with a remedy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from flyball.app.core import FlyballError, Rate, backoff, wilson_interval


@pytest.mark.parametrize(
    ("successes", "n", "lower", "upper"),
    [
        (8, 10, 0.4902, 0.9433),
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (1, 1, 0.2065, 1.0),
        (0, 1, 0.0, 0.7935),
        (50, 100, 0.4038, 0.5962),
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_wilson_interval_has_known_values(successes: int, n: int, lower: float, upper: float) -> None:
    """The last four cases are published values.

    Source: R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
    """
    assert wilson_interval(successes / n, n) == pytest.approx((lower, upper), abs=5e-5)
    rate = Rate.of(successes, n)
    assert (rate.mean, rate.n) == (successes / n, n)
    assert (rate.lower, rate.upper) == pytest.approx((lower, upper), abs=5e-5)


@given(st.data(), st.integers(1, 10**9))
def test_rate_lies_in_its_interval_within_0_and_1(data: st.DataObject, n: int) -> None:
    rate = Rate.of(data.draw(st.integers(0, 2 * n)) / 2, n)
    assert 0 <= rate.lower <= rate.mean <= rate.upper <= 1


@given(st.integers(1, 1000), st.data())
def test_intervals_narrow_with_n_and_mirror_success_and_failure(n: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, n))
    won, lost, many = Rate.of(successes, n), Rate.of(n - successes, n), Rate.of(10 * successes, 10 * n)
    assert many.upper - many.lower < won.upper - won.lower
    assert (won.lower, won.upper) == pytest.approx((1 - lost.upper, 1 - lost.lower), abs=1e-9)


def test_a_rate_of_nothing_cannot_be_constructed() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        Rate(mean=0.0, n=0, lower=0.0, upper=1.0)
    with pytest.raises(ValueError, match="0 of 0"):
        Rate.of(0, 0)
    assert Rate.of(2.5, 5).mean == 0.5, "draws count one half"
    assert Rate.of(sum([0.1] * 10) + 1e-12, 1).mean == 1.0, "a sum of shares may miss its count by rounding"


WRONG = ("mean", 1.5), ("mean", -0.1), ("mean", float("nan")), ("lower", 0.6), ("upper", 0.4), ("n", -1), ("unit", "%")


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_a_rate_that_contradicts_itself_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError):
        Rate.model_validate({"mean": 0.5, "n": 10, "lower": 0.45, "upper": 0.55, field: value})


@pytest.mark.parametrize("successes", [11, 10.5, -1, float("nan")])
def test_rate_of_impossible_successes_is_refused(successes: float) -> None:
    with pytest.raises(ValueError, match=f"{successes} of 10"):
        Rate.of(successes, 10)


def test_an_error_says_what_happened_and_what_to_do() -> None:
    error = FlyballError("The journal is full.", hint="Free some space.")
    assert (error.message, error.hint) == ("The journal is full.", "Free some space.")
    assert str(error) == "The journal is full. Free some space."
    assert str(FlyballError("The journal is full.")) == "The journal is full."


@pytest.mark.parametrize(("doublings", "wait"), [(0, 0.5), (1, 1.0), (5, 16.0), (6, 30.0), (10**6, 30.0)])
def test_backoff_doubles_up_to_its_cap(doublings: int, wait: float) -> None:
    assert backoff(0.5, 30.0, doublings) == wait
    assert backoff(40.0, 30.0, doublings) == 30.0
