"""A running loop whose jobs run on Ray."""

import signal
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from running_loop import BRISK, flyball, running_loop

from flyball.app.events import SelfplayComplete, TrainingCompleted

ON_RAY = BRISK.replace("[deployment]\n", '[deployment]\nengine = "ray"\n') + "[deployment.ray]\ncpus = 2\n"


@pytest.mark.skipif(find_spec("ray") is None, reason="needs flyball[ray]")
@pytest.mark.timeout(600)
def test_the_loop_goes_on_when_a_worker_of_ray_is_killed(tmp_path: Path) -> None:
    with running_loop(tmp_path / "run", ON_RAY) as loop:
        loop.wait_for_loops(1)
        descendants = psutil.Process(loop.process.pid).children(recursive=True)
        loop.wait_for("a job on Ray", lambda: _kill_a_job(loop.process.pid))
        loop.wait_for_loops(2, after=loop.head())
        assert loop.leave() == 0
        _, alive = psutil.wait_procs(descendants, timeout=200)
        assert not alive
        for result in (SelfplayComplete, TrainingCompleted):
            answered = Counter(event.data.request_id for event in loop.events(result))
            assert set(answered.values()) == {1}
        flyball(loop.folder, "replay", "--check")


def _kill_a_job(pid: int) -> bool:
    for process in psutil.Process(pid).children(recursive=True):
        try:
            if process.name().startswith("ray::_perform"):
                process.send_signal(signal.SIGKILL)
                return True
        except psutil.NoSuchProcess:
            pass
    return False
