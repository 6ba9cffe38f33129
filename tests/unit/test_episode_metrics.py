"""Rules of ``flyball.app.gym.episodes``, by their numbers."""

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import pytest
from scripted_environments import Script, steps_of

from flyball.app.gym.episodes import (
    Autoreset,
    EpisodeSummary,
    NotFinite,
    StepResult,
    UnfinishedEpisodes,
    advance,
    begin_episodes,
    lower_median,
    summarise_episodes,
)

ENDED = np.array([True]), np.array([False])
BOTH = pytest.mark.parametrize("autoreset", ["same_step", "next_step"])


def evaluated(
    scripts: Sequence[Sequence[Script]], episodes: int, autoreset: Autoreset = "same_step", max_steps: int = 10**6
) -> EpisodeSummary:
    state = begin_episodes(episodes, len(scripts), autoreset)
    for number, result in enumerate(steps_of([cycle(own) for own in scripts], autoreset)):
        if state.complete or number == max_steps:
            break
        state = advance(state, result)
    return summarise_episodes(state)


def goal(steps: int, reward: float = 1.0) -> Script:
    return Script((reward,) * steps)


def failure(steps: int, dist: float = 5.0) -> Script:
    return Script((0.0,) * steps, done=False, trunc=True, dist=dist)


def test_rule_2_the_environments_own_word_decides() -> None:
    state = begin_episodes(2, 2, "same_step")
    ends = np.array([True, True])
    state = advance(state, StepResult(np.ones(2), ends, ~ends, success=np.array([False, True])))
    assert summarise_episodes(state).successes == 1
    state = begin_episodes(1, 1, "next_step")
    cut = np.array([True])
    assert summarise_episodes(advance(state, StepResult(np.ones(1), ~cut, cut, success=cut))).successes == 1


@pytest.mark.parametrize(("episodes", "environments", "quotas"), [(5, 3, [1, 2, 2]), (2, 4, [0, 0, 1, 1]), (4, 1, [4])])
def test_rule_3_fixed_quotas_sum_to_the_requested_episodes(episodes, environments, quotas) -> None:
    assert begin_episodes(episodes, environments, "same_step").owed.tolist() == quotas


@BOTH
def test_rule_5_unfinished_episodes_are_an_error_with_the_counts(autoreset: Autoreset) -> None:
    """The denominator is what was asked for."""
    assert evaluated([[goal(1), failure(50)], [failure(2), goal(2)]], 4, autoreset).success_rate == 0.5
    with pytest.raises(UnfinishedEpisodes, match=r"^3 of 6 episodes ended .* 1 of 2 environments"):
        evaluated([[goal(1)] * 50, [failure(1000)]], 6, autoreset, max_steps=60)


def test_rule_6_means_and_lower_medians_of_each_kind() -> None:
    scripts = [[goal(2), goal(10), failure(100), failure(90)]]
    summary = evaluated(scripts, 4)
    assert summary.median_steps_to_goal == summary.steps_p50_success == 2

    assert [lower_median(values) for values in ([3], [2, 1], [3, 1, 2], [4, 1, 3, 2])] == [3, 1, 2, 2]
    scripts = [[goal(1, reward=6.0), goal(1, reward=3.0), Script((-3.0,), done=False, trunc=True)]]
    summary = evaluated(scripts, 3)
    assert (summary.mean_return, summary.return_mean_success, summary.return_mean_fail) == (2.0, 4.5, -3.0)
    assert summary.return_stderr == pytest.approx(np.std([6, 3, -3], ddof=1) / 3**0.5)


def test_rule_7_nothing_is_null_and_never_zero() -> None:
    lost = evaluated([[failure(4)]], 1)
    assert (lost.success_rate, lost.median_steps_to_goal, lost.steps_p50_success) == (0.0, None, None)
    assert lost.return_mean_success is None
    assert evaluated([[goal(4)]], 1).return_mean_fail is None
    assert evaluated([[goal(4)]], 1).return_stderr is None
    for dist in (None, np.array([1.0])):  # which is no final observation's
        state = advance(begin_episodes(1, 1, "same_step"), StepResult(np.ones(1), *ENDED, dist=dist))
        assert summarise_episodes(state).dist_at_end_p50 is None
    assert evaluated([[failure(1, dist=3.0), failure(1, dist=9.0)]], 2).dist_at_end_p50 == 3.0
    assert evaluated([[failure(1, dist=3.0), failure(1, dist=np.nan)]], 2).dist_at_end_p50 is None, "only some report"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rule_8_a_reward_that_is_no_number_is_an_error(bad: float) -> None:
    with pytest.raises(NotFinite, match="Environment 1 returned the reward"):
        evaluated([[goal(1)], [Script((bad,))]], 2)
    with pytest.raises(NotFinite, match="Environment 0 returned the distance inf"):
        evaluated([[failure(1, dist=np.inf)]], 1)
    assert evaluated([[goal(1), Script((bad,))], [goal(9)]], 2).mean_return == 5.0, "it is not counted"
