"""The loop that several files of tests share, because starts take long."""

from collections.abc import Iterator

import pytest
from running_loop import BRISK, RunningLoop, running_loop

EVERY_MODEL = """
[league.admission]
recent_every = 1
[league.matchmaking]          # by default members of the league are met in one game of twelve
mirror = 0.5
peers = 0.5
"""


@pytest.fixture(scope="session")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLoop]:
    """Start a loop for tests of kills, league and restarts.

    The last of these files, ``test_new_start``, stops and restarts the loop, and then ends it. So it takes nothing from
    the tests after that.
    """
    with running_loop(tmp_path_factory.mktemp("shared") / "run", BRISK + EVERY_MODEL) as started:
        started.wait_for_loops(1)
        yield started
