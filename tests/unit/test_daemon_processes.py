"""Number of jobs that a daemon runs at once on a machine."""

import pytest

from flyball.app.config import Deployment
from flyball.daemons.process import processes_of, sized
from flyball.daemons.registry import DAEMONS

DEPLOYMENT = Deployment.model_validate({"processes": {"selfplay": 4, "inspection": 3, "training": 2, "evaluation": 5}})


@pytest.mark.parametrize(
    ("daemon", "processes", "capacity"),
    [
        ("selfplay_worker", 4, 4),
        ("quality_monitor", 3, 3),
        ("training", 2, 2),
        ("evaluation", 5, 1),  # one evaluation, spread over all
        ("distribution", 1, 1),
    ],
)
def test_a_daemon_has_a_job_for_each_process_of_its_kind(daemon, processes, capacity):
    spec = DAEMONS[daemon]
    assert processes_of(spec, DEPLOYMENT) == processes
    assert sized(spec, DEPLOYMENT).capacity == capacity
