"""The fair queue: worker time is shared by weight."""

from collections import Counter

import pytest
from builders import training_of
from driving import KEY, OTHER_KEY, distributed, gated, run_settings, scored
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from scheduling import answer, delivery, staffed, unanswered

from flyball.app.config import GAMES
from flyball.app.events import ClockTick, CurriculumRebalanced, TrainingBlockedByQuality

TICK = ClockTick(period_seconds=10)


def shares(
    weights: dict[str, float],
    turns: int = 300,
    gates: dict[str, float] | None = None,
    plateaued: tuple[str, ...] = (),
) -> dict[str, float]:
    """Return configurations' shares of one busy worker's turns, given their curriculum weights.

    ``gates`` has the seconds of evaluations that each of a configuration's requests brings, apart from its games.
    """
    scheduler = staffed(run_settings(*weights))
    scheduler.feed(CurriculumRebalanced(weights=weights, plateaued=plateaued, reason="x"), key=None)
    queue = [envelope for key in weights for envelope in scheduler.envelopes(distributed(), key=key)]
    counts = Counter[str]()
    while sum(counts.values()) < turns:
        request = queue.pop(0)
        counts[request.subject] += 1
        shard = scored(rows=1, model=request.data.model, request=request.id)
        gate = gated(1, 0, 1).replace(seconds=(gates or {}).get(request.subject, 0.0))
        for fact in (delivery(request.id, request.data), gate, shard):
            queue += scheduler.envelopes(fact, key=request.subject)
    return {key: counts[key] / turns for key in weights}


@pytest.mark.parametrize(
    ("weights", "turns", "tolerance"),
    [((1.0,) * 4, 300, 0.08), ((2.0, *[1.0] * 7, *[0.5] * 8), 1100, 0.1)],
    ids=["equal", "unequal"],
)
def test_shares_are_as_the_weights(weights, turns, tolerance):
    found = shares(dict(zip(GAMES, weights, strict=False)), turns)
    expected = [weight / sum(weights) for weight in weights]
    assert list(found.values()) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize(("plateaued", "ratio"), [((KEY,), 5.0), ((), 2.0)], ids=["plateaued", "learns"])
def test_plateaued_configuration_counts_with_the_lowest_weight(plateaued, ratio):
    """The maximum of the others' weights may leave it more than the minimum."""
    found = shares({KEY: 0.5, OTHER_KEY: 1.0}, plateaued=plateaued)
    assert found[OTHER_KEY] / found[KEY] == pytest.approx(ratio, rel=0.1)


def test_turn_costs_what_it_brings_other_workers():
    """Each request of the first brings 3 s of evaluations beside a second of games."""
    found = shares({KEY: 1.0, OTHER_KEY: 1.0}, gates={KEY: 3.0})
    assert found[OTHER_KEY] / found[KEY] == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize(("plateaued", "turns"), [((), 9), ((KEY,), 1)], ids=["learns", "plateaued"])
def test_plateaued_configuration_leaves_workers_idle(plateaued, turns):
    """The other configuration is trained meanwhile, and wants no games."""
    scheduler = staffed(run_settings(KEY, OTHER_KEY))
    weights = {KEY: 0.2, OTHER_KEY: 1.8}
    scheduler.feed(CurriculumRebalanced(weights=weights, plateaued=plateaued, reason="x"), key=None)
    scheduler.feed(distributed(), key=OTHER_KEY)
    scheduler.feed(training_of(), key=OTHER_KEY)
    requests = scheduler.envelopes(distributed(), key=KEY)
    for _ in range(8):
        if unanswered(scheduler):
            requests += answer(scheduler)
    assert len(requests) == turns


@pytest.mark.parametrize(("at", "turns"), [(10.9, 1), (11, 2)])
def test_plateaued_configuration_gets_its_share_by_the_clock(at, turns):
    """The other one is blocked. A turn takes 1.1 s, and 0.2 of two configurations is a tenth of a worker."""
    scheduler = staffed(run_settings(KEY, OTHER_KEY))
    weights = {KEY: 0.2, OTHER_KEY: 1.8}
    scheduler.feed(CurriculumRebalanced(weights=weights, plateaued=(KEY,), reason="x"), key=None, at=0)
    scheduler.feed(TrainingBlockedByQuality(reason="by hand"), distributed(), key=OTHER_KEY, at=0)
    requests = scheduler.envelopes(distributed(), key=KEY, at=0)
    requests += answer(scheduler, at=1)
    requests += [request for request in scheduler.envelopes(TICK, key=None, at=at) if request.subject == KEY]
    assert len(requests) == turns


@settings(max_examples=examples(25))
@given(weights=st.lists(st.sampled_from([0.001, 0.5, 1.0, 2.0, 1000.0]), min_size=2, max_size=5))
def test_no_weights_leave_less_than_the_floor(weights):
    found = shares(dict(zip(GAMES, weights, strict=False)), turns=400)
    assert min(found.values()) >= 0.05 / len(weights)
