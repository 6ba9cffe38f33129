"""Arms of a comparison, daemon by daemon. Each controller, or its baseline, runs in the controller's daemon."""

import pytest

from flyball.app.simulation import ALL, ARMS, NONE, daemons_of_arm
from flyball.daemons.registry import DAEMONS


def hosted(arm: str) -> dict[str, set[str]]:
    return {name: {one.name for one in spec.controllers} for name, spec in daemons_of_arm(ARMS[arm]).items()}


def test_baselines_run_in_daemons_of_replaced_controllers():
    assert daemons_of_arm(ARMS[ALL]) == DAEMONS, "the arm of all controllers is the running system"
    assert {name: names for name, names in hosted(NONE).items() if names} == {
        "selfplay_scheduler": {"UniformScheduler"},
        "training_trigger": {"TrainAlways"},
        "feedback": {"EvaluateAlways"},
        "model_lifecycle": {"PromoteAlways"},
    }


@pytest.mark.parametrize("arm", ARMS)
def test_each_controller_of_an_arm_runs_in_one_daemon(arm):
    names = [name for found in hosted(arm).values() for name in found]
    assert sorted(names) == sorted(one.name for one in ARMS[arm])
    workers = {name: spec.worker for name, spec in daemons_of_arm(ARMS[arm]).items()}
    assert workers == {name: spec.worker for name, spec in DAEMONS.items()}
