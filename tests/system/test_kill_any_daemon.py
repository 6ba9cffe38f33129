"""Guarantee: kill -9 of any daemon at any moment loses nothing.

The loop goes on by itself, and nothing counts twice.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from history_checks import check_history
from running_loop import STARTED, RunningLoop, flyball, running_loop

from flyball.app.engine.programs import can_fork
from flyball.app.events import ModelPromoted

LANGUAGE = """
seed = 7
configs = ["connect_four_text_2p"]
tick_seconds = 1.0
[deployment]
heartbeat_seconds = 1.0
drain_seconds = 3.0
[games.connect_four_text_2p]
rows_per_training = 256
[games.connect_four_text_2p.language]
teacher = "random"
lessons = 256
base_layers = 1
base_width = 16
base_heads = 1
rank = 2
group_games = 4
[games.connect_four_text_2p.selfplay]
games_per_request = 32
[games.connect_four_text_2p.evaluation]
random_games = 20
model_games = 20
anchor_games = 4
[feedback.lifecycle]
elo0 = -200.0
max_games = 100
"""


@pytest.mark.timeout(500)
@pytest.mark.parametrize("daemons", [STARTED[first::3] for first in range(3)], ids=", ".join)
def test_the_loop_goes_on_by_itself(loop, daemons):
    """Kill each daemon as soon as the one before is back."""
    before = loop.events()
    for daemon in daemons:
        kill(loop, daemon)
    loop.wait_for_loops(2, after=loop.head())
    check_nothing_lost(loop, before)


@pytest.mark.timeout(500)
@pytest.mark.skipif(not can_fork(), reason="the system cannot fork programs")
def test_daemons_outlive_a_killed_fork_server(loop):
    before, server = loop.events(), fork_server(loop)
    pids = {daemon: loop.pid_of(daemon) for daemon in STARTED}
    os.kill(server.pid, signal.SIGKILL)
    after = loop.wait_for("another fork server", lambda: (new := fork_server(loop)) != server and new)
    kill(loop, "training")
    assert psutil.Process(loop.pid_of("training")).ppid() == after.pid
    loop.wait_for_loops(2, after=loop.head())
    check_nothing_lost(loop, before)
    assert {daemon: loop.pid_of(daemon) for daemon in STARTED if daemon != "training"}.items() <= pids.items()


@pytest.fixture(scope="module")
def language_loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLoop]:
    with running_loop(tmp_path_factory.mktemp("language") / "run", LANGUAGE) as started:
        started.wait_for("a promotion", lambda: promotions(started))
        yield started


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("daemon", ["training", "selfplay_worker", "evaluation", "broker"])
def test_language_loop_promotes_after_a_kill(language_loop, daemon):
    before = language_loop.events()
    if daemon != "broker":
        working_job(language_loop, daemon)
    kill(language_loop, daemon)
    check_promotion(language_loop, before)


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("daemon", ["training", "selfplay_worker", "evaluation"])
def test_language_loop_promotes_after_a_job_is_killed(language_loop, daemon):
    before = language_loop.events()
    working_job(language_loop, daemon).kill()
    check_promotion(language_loop, before)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_language_loop_replays_after_the_kills(language_loop):
    assert language_loop.leave() == 0
    flyball(language_loop.folder, "replay", "--check")
    check_history(language_loop.events())


def kill(loop, daemon):
    """Kill a daemon, and wait until another process replaces it."""
    head, pid = loop.head(), loop.pid_of(daemon)
    os.kill(pid, signal.SIGKILL)
    loop.wait_for(f"{daemon} is back", lambda: loop.ready(daemon, after=head))
    assert loop.pid_of(daemon) != pid


def fork_server(loop):
    """Return the process that forks the loop's daemons; None without one that serves."""
    for child in psutil.Process(loop.process.pid).children():
        with suppress(psutil.NoSuchProcess):  # it has ended since
            if child.status() != psutil.STATUS_ZOMBIE and "flyball.app.engine.fork_server" in " ".join(child.cmdline()):
                return child
    return None


def jobs_of(pid):
    """Return the processes of a daemon's jobs: it holds the other end of their stdin."""
    pipes = {end for end in map(target, Path(f"/proc/{pid}/fd").iterdir()) if end.startswith("pipe:")}
    forked = [one for one in psutil.process_iter() if one.pid != pid and target(Path(f"/proc/{one.pid}/fd/0")) in pipes]
    return [*forked, *psutil.Process(pid).children()]


def target(link):
    """Return the target of a link; an empty string without one."""
    try:
        return str(link.readlink())
    except OSError:
        return ""


def working_job(loop, daemon):
    """Return the process of a daemon's job once it has worked.

    It must use a tenth of a second of processor time while it is watched.
    """
    used: dict[psutil.Process, float] = {}

    def working() -> psutil.Process | None:
        for process in jobs_of(loop.pid_of(daemon)):
            seconds = process.cpu_times().user
            if seconds - used.setdefault(process, seconds) > 0.1:
                return process
        return None

    return loop.wait_for(f"a job of {daemon}", working)


def check_promotion(loop, before):
    """Check that another adapter is promoted, and that nothing was lost."""
    head = loop.head()
    loop.wait_for("a promotion", lambda: promotions(loop, after=head))
    check_nothing_lost(loop, before)


def promotions(loop, after=0):
    """Return promotions of trained adapters after a position."""
    return [event for event in loop.events(ModelPromoted, after=after) if event.data.step > 0]


def check_nothing_lost(loop, before):
    """Check that earlier events are unchanged, and that nothing counts twice."""
    after = loop.events()
    assert after[: len(before)] == before, "an event that was recorded has changed or gone"
    check_history(after)
