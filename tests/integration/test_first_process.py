"""A command as the first process of a container without an init."""

import shutil
import subprocess
import sys

import pytest

CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")


def contained(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CONTAINER, sys.executable, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


pytestmark = pytest.mark.skipif(
    shutil.which("unshare") is None or contained("-c", "").returncode != 0, reason="needs namespaces of the user's own"
)

BEGIN = "import os, signal, subprocess, sys, time\nfrom flyball.app.cli.first_process import continue_as_child\n"
REAPED = """
orphan = subprocess.run(["sh", "-c", "sleep 0.1 & echo $!"], stdout=subprocess.PIPE, text=True).stdout.strip()
while os.path.exists(f"/proc/{orphan}"):
    time.sleep(0.01)
"""
SIGNALLED = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
os.kill(1, signal.SIGTERM)
time.sleep(60)
"""


LATE = """
real = signal.signal
signal.signal = lambda *words: (time.sleep(0.1 if os.getpid() == 1 else 0), real(*words))[1]
"""
"""The first process is slow to install its handlers."""


@pytest.mark.parametrize(
    ("before", "program", "code"),
    [
        ("", REAPED, 0),
        ("", SIGNALLED, 7),
        (LATE, SIGNALLED, 7),
        ("", "os.kill(os.getpid(), signal.SIGKILL)", 137),
    ],
    ids=["reaps orphans", "forwards signals", "forwards early signals", "ends as a killed command does"],
)
def test_first_process_reaps_forwards_and_ends_as_its_command(before: str, program: str, code: int) -> None:
    assert contained("-c", f"{BEGIN}{before}continue_as_child()\n{program}").returncode == code


@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["nonsense"], 2)])
def test_command_runs_as_the_first_process(words: list[str], code: int) -> None:
    done = contained("-P", "-m", "flyball.app.cli", *words)
    assert done.returncode == code, done.stderr
