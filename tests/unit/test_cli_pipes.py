"""A closed pipe is not an error, and hides none."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from recorded_run import recording, write_journal

from flyball.app.cli.streams import tolerate_closed_output

PROGRAM = """
import sys
from pathlib import Path
from flyball.app.cli.streams import tolerate_closed_output
told = []
with tolerate_closed_output(lambda: told.append(1)):
    print("a" * 100_000, flush=True)
    told.append(2)
print("more", flush=True)
print("more", file=sys.stderr, flush=True)
sys.exit(0 if told == [1] else 1)
"""


@pytest.mark.parametrize("stderr", [subprocess.STDOUT, subprocess.DEVNULL])
def test_what_is_written_after_that_leads_nowhere(stderr: int) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=stderr) as process:
        assert process.stdout is not None
        process.stdout.close()
    assert process.returncode == 0


FULL = """
from flyball.app.cli.streams import set_up_streams
set_up_streams()
from flyball.app.cli.up import _tolerant
for _ in range(2):
    with _tolerant():
        print("a" * 100_000, flush=True)
"""


def test_run_goes_on_when_its_output_fills_a_disk() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", FULL], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("The run goes on") == 1
    with pytest.raises(OSError, match="disk"), tolerate_closed_output():
        raise OSError(errno.ENOSPC, "the disk is full")


@pytest.mark.parametrize(
    ("words", "code", "stderr"),
    [
        (["status"], 3, subprocess.STDOUT),
        (["status", "--json"], 3, subprocess.DEVNULL),
        (["doctor"], 1, subprocess.STDOUT),
        (["tail"], 0, subprocess.DEVNULL),
        (["--help"], 0, subprocess.STDOUT),
    ],
)
def test_closed_pipe_keeps_the_exit_code(tmp_path: Path, words: list[str], code: int, stderr: int) -> None:
    write_journal(tmp_path / "journal.sqlite", recording().events)
    command = [sys.executable, "-m", "flyball.app.cli", "--run", str(tmp_path), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr) as process:
        assert process.stdout is not None
        process.stdout.close()
    assert process.returncode == code
