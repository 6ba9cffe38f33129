"""Properties of the plant: possible effects of training on strength."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from profiles import examples

from flyball.app.simulation.jobs import draw_results
from flyball.app.simulation.settings import CurveSettings, EpisodeSettings, PlantSettings, load_plant
from flyball.app.simulation.world import (
    DAY_US,
    START_US,
    ModelTruth,
    Pupil,
    ShardTruth,
    draw_troubles,
    escape_chance,
    gain,
    severity_at,
    useful_experience,
)

PLANT = load_plant()
KEY = "connect_four_2p"
curves = st.builds(
    CurveSettings,
    ceiling=st.floats(50, 4000),
    lessons=st.floats(1, 500),
    jitter_elo=st.just(0.0),
    rows_per_game=st.just(20.0),
    draws=st.just(0.1),
    time=st.just(PLANT.default.time),
)
strengths = st.floats(-100, 4000)
experiences = st.floats(0, 100)
shards = st.builds(
    ShardTruth, rows=st.integers(1, 50_000), flawed=st.floats(0, 1), temperature=st.floats(0.2, 4), unruly=st.just(0.0)
)


def quiet(plant: PlantSettings) -> PlantSettings:
    """Return the plant without chance: no divergence, jitter or regressions."""
    learning = plant.learning.replace(divergence=0.0)
    regressions = plant.regressions.replace(sudden=0.0)
    calm = {KEY: plant.curve(KEY).replace(jitter_elo=0.0)}
    return plant.replace(learning=learning, regressions=regressions, configs=calm)


def pupil(plant: PlantSettings, seed: int) -> Pupil:
    return Pupil(plant, KEY, np.random.default_rng(seed))


@given(curves, strengths, strengths, experiences, experiences)
def test_gains_grow_with_experience_and_shrink_with_strength(curve, one, other, some, another) -> None:
    (weaker, stronger), (less, more) = sorted((one, other)), sorted((some, another))
    assert 0 <= gain(curve, weaker, less) <= gain(curve, weaker, more)
    assert gain(curve, stronger, more) <= gain(curve, weaker, more) * (1 + 1e-9)


@given(curves, strengths, st.floats(0, 1e6))
def test_no_training_exceeds_the_ceiling(curve, strength, experience) -> None:
    assume(strength <= curve.ceiling)
    assert strength + gain(curve, strength, experience) <= curve.ceiling * (1 + 1e-9)


@given(st.lists(shards, min_size=1, max_size=4), shards)
def test_more_sound_rows_are_more_experience(some, another) -> None:
    one = useful_experience(some, PLANT.learning, 1e-3, 3)
    assert useful_experience([*some, another], PLANT.learning, 1e-3, 3) >= one >= 0


def test_rows_of_earlier_champions_teach_less() -> None:
    """The worth of a row is ``late_row`` to the power of the champions between its model and the base."""
    worth = [
        useful_experience([ShardTruth(1000, 0.0, 1.0, depth=depth)], PLANT.learning, 1e-3, 3, 7) for depth in (7, 6, 5)
    ]
    assert worth[1] / worth[0] == pytest.approx(PLANT.learning.late_row)
    assert worth[2] / worth[0] == pytest.approx(PLANT.learning.late_row**2)


def test_models_count_their_ancestors() -> None:
    child = pupil(quiet(PLANT), 1).train(ModelTruth(depth=3), [ShardTruth(1000, 0.0, 1.0, depth=3)], 1e-3, 3)
    assert child is not None
    assert child.depth == 4


@given(shards, st.floats(1e-6, 1e-3), st.floats(1e-6, 1e-3), st.integers(1, 8))
def test_a_lower_learning_rate_gets_less_out_of_the_same_rows(shard, one, other, epochs) -> None:
    lower, higher = sorted((one, other))
    less, more = (useful_experience([shard], PLANT.learning, rate, epochs) for rate in (lower, higher))
    assert less <= more


@given(st.floats(0, 10), st.floats(0.2, 4), st.floats(0.2, 4))
def test_exploration_makes_escapes_likelier(experience, one, other) -> None:
    colder, hotter = sorted((one, other))
    chances = [escape_chance(PLANT.plateaus, experience, temperature) for temperature in (colder, hotter)]
    assert 0 <= chances[0] <= chances[1] <= 1


@given(st.integers(0, 2**32), st.lists(shards, min_size=1, max_size=4), st.floats(0, 1))
@settings(max_examples=examples(50))
def test_flawed_rows_never_help(seed, some, flawed) -> None:
    plant, base = quiet(PLANT), ModelTruth(trend=200.0)
    sound = [shard._replace(flawed=0.0) for shard in some]
    worse = [shard._replace(flawed=flawed) for shard in some]
    good, bad = (pupil(plant, seed).train(base, rows, 1e-3, 3) for rows in (sound, worse))
    assert good is not None
    assert bad is not None
    assert bad.trend <= good.trend


@given(st.integers(0, 2**32), st.integers(1, 60))
@settings(max_examples=examples(50))
def test_a_plateau_holds_until_it_is_escaped(seed, trainings) -> None:
    without_escape = PLANT.plateaus.replace(escape=0.0, per_config=3.0)
    learner = pupil(quiet(PLANT).replace(plateaus=without_escape), seed)
    assume(learner.plateaus)
    model = ModelTruth()
    for _ in range(trainings):
        trained = learner.train(model, [ShardTruth(30_000, 0.0, 1.0)], 1e-3, 3)
        assert trained is not None
        assert model.trend <= trained.trend <= learner.plateaus[0]
        model = trained


@given(st.integers(0, 2**32))
@settings(max_examples=examples(30))
def test_sound_training_without_chance_only_gains(seed) -> None:
    learner, model = pupil(quiet(PLANT), seed), ModelTruth()
    for _ in range(30):
        after = learner.train(model, [ShardTruth(30_000, 0.0, 1.0)], 1e-3, 3)
        assert after is not None
        assert after.trend >= model.trend
        assert after == replace(after, jitter=0.0, exploit=None)
        model = after


@given(st.floats(-2000, 2000), st.integers(1, 2000), st.floats(0, 1), st.integers(0, 2**32))
def test_all_games_end_one_way_or_another(difference, games, draws, seed) -> None:
    counts = draw_results(difference, games, draws, np.random.default_rng(seed))
    assert sum(counts) == games
    assert min(counts) >= 0


@pytest.mark.parametrize(("difference", "score"), [(0, 0.5), (100, 0.640), (-400, 1 / 11)])
def test_scores_follow_the_logistic_model(difference, score) -> None:
    wins, ties, _ = draw_results(difference, 200_000, 0.3, np.random.default_rng(1))
    assert (wins + ties / 2) / 200_000 == pytest.approx(score, abs=0.005)


@given(st.floats(0, 20), st.floats(0.1, 48), st.integers(0, 2**32))
def test_episodes_do_not_overlap(per_day, hours, seed) -> None:
    rate = EpisodeSettings(per_day=per_day, hours=hours, severity=(0.3, 1.0))
    episodes = draw_troubles(rate, START_US + 7 * DAY_US, np.random.default_rng(seed))
    for before, after in pairwise(episodes):
        assert before.start_us < before.end_us <= after.start_us
    for episode in episodes:
        assert severity_at(episodes, episode.start_us) == episode.severity
