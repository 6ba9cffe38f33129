"""The files of ``flyball new`` pass their own test, without Flyball's sources. The test runs in a folder of its own."""

import subprocess
import sys
from pathlib import Path

import pytest
from running_loop import FLYBALL


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["game", "network", "trainer", "controller", "participant"])
def test_new_example_passes_its_own_test(kind: str, tmp_path: Path) -> None:
    subprocess.run([FLYBALL, "new", kind, f"my_{kind}"], cwd=tmp_path, capture_output=True, check=True)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_my_{kind}.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
