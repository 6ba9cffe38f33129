"""A closed pipe ends a command without an error."""

import errno
import subprocess
import sys

import pytest

from app.cli.group import tolerate_closed_output

PROGRAM = """
import sys
from app.cli.group import tolerate_closed_output
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


def test_other_errors_pass() -> None:
    with pytest.raises(OSError, match="disk"), tolerate_closed_output():
        raise OSError(errno.ENOSPC, "the disk is full")
