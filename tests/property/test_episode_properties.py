"""The reducer counts the first episodes of each environment, and nothing else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scripted_environments import Script, steps_of

from flyball.app.gym.episodes import EvalState, StepResult, advance, begin_episodes, summarise_episodes

REWARDS = st.floats(-100, 100).map(lambda x: round(x, 3))
ENDS = st.sampled_from([(True, False), (False, True), (True, True)])
SCRIPTS = st.builds(
    lambda rewards, end, dist: Script(tuple(rewards), *end, dist),
    st.lists(REWARDS, min_size=1, max_size=6),
    ENDS,
    st.floats(0, 50),
)
PER_ENVIRONMENT = 4
ENVIRONMENTS = st.lists(st.lists(SCRIPTS, min_size=PER_ENVIRONMENT, max_size=PER_ENVIRONMENT), min_size=1, max_size=5)
FILLER = [Script((0.5,) * 6)] * 20  # steps of an environment while the others finish
AUTORESETS = st.sampled_from(["same_step", "next_step"])


def run(scripts, episodes, autoreset) -> EvalState:
    state = begin_episodes(episodes, len(scripts), autoreset)
    for result in steps_of([[*own, *FILLER] for own in scripts], autoreset):
        if state.complete:
            return state
        state = advance(state, result)
    raise AssertionError("the scripts are too short")


@given(ENVIRONMENTS, AUTORESETS, st.data())
def test_it_counts_the_first_episodes_of_every_environment(scripts, autoreset, data) -> None:
    episodes = data.draw(st.integers(1, PER_ENVIRONMENT * len(scripts)))
    state = run(scripts, episodes, autoreset)
    quotas = [(episodes + i) // len(scripts) for i in range(len(scripts))]
    assert sum(quotas) == episodes
    for environment, (own, quota) in enumerate(zip(scripts, quotas, strict=True)):
        counted = [episode for episode in state.episodes if episode.environment == environment]
        wanted = own[:quota]
        assert [episode.steps for episode in counted] == [len(script.rewards) for script in wanted]
        assert np.allclose([episode.reward for episode in counted], [sum(script.rewards) for script in wanted])
        assert [episode.success for episode in counted] == [script.done for script in wanted]
        assert [episode.dist for episode in counted] == [script.dist for script in wanted]


@given(ENVIRONMENTS, st.data())
def test_both_kinds_of_autoreset_show_the_same(scripts, data) -> None:
    episodes = data.draw(st.integers(1, PER_ENVIRONMENT * len(scripts)))
    summaries = [summarise_episodes(run(scripts, episodes, kind)) for kind in ("same_step", "next_step")]
    assert summaries[0] == summaries[1]


@given(ENVIRONMENTS, AUTORESETS, st.data())
def test_the_order_of_the_environments_does_not_matter(scripts, autoreset, data) -> None:
    episodes = len(scripts) * data.draw(st.integers(1, PER_ENVIRONMENT))
    shuffled = data.draw(st.permutations(scripts))
    assert summarise_episodes(run(scripts, episodes, autoreset)) == summarise_episodes(
        run(shuffled, episodes, autoreset)
    )


@given(ENVIRONMENTS, AUTORESETS, st.data())
def test_a_summary_is_of_one_piece(scripts, autoreset, data) -> None:
    episodes = data.draw(st.integers(1, PER_ENVIRONMENT * len(scripts)))
    summary = summarise_episodes(run(scripts, episodes, autoreset))
    assert summary.episodes == episodes
    assert summary.success_rate == summary.successes / episodes
    assert summary.success_interval[0] <= summary.success_rate <= summary.success_interval[1]
    assert (summary.median_steps_to_goal is None) == (summary.successes == 0)
    won, lost = summary.return_mean_success or 0.0, summary.return_mean_fail or 0.0
    parts = (won * summary.successes + lost * (episodes - summary.successes)) / episodes
    assert np.isclose(summary.mean_return, parts, atol=1e-9)


@given(ENVIRONMENTS, AUTORESETS)
def test_a_state_is_never_changed(scripts, autoreset) -> None:
    state = begin_episodes(len(scripts), len(scripts), autoreset)
    arrays = (state.owed, state.steps, state.reward, state.resetting)
    before = [array.copy() for array in arrays]
    result = next(steps_of(scripts, autoreset))
    first, again = advance(state, result), advance(state, result)
    assert isinstance(result, StepResult)
    assert first.episodes == again.episodes
    assert state.episodes == ()
    assert all((array == copy).all() for array, copy in zip(arrays, before, strict=True))
