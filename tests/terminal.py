"""Running a program on a terminal: what it shows, and what somebody types."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

ON_A_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
CTRL_C = b"\x03"


def on_a_terminal(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program on a terminal of its own. What is written to ``stdin`` is typed; it exits as the program does."""
    return subprocess.Popen([sys.executable, "-c", ON_A_TERMINAL, *command], stdin=subprocess.PIPE, **options)


def type_in(process: subprocess.Popen[bytes], keys: bytes) -> None:
    """Type on a program's terminal."""
    assert process.stdin is not None
    process.stdin.write(keys)
    process.stdin.flush()
