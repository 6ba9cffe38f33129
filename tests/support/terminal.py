"""Running a program on a terminal, with its output and its input."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ON_A_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
CTRL_C = b"\x03"


def on_a_terminal(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program on its own terminal.

    What is written to ``stdin`` is typed. The process exits as the program does.
    """
    return subprocess.Popen([sys.executable, "-c", ON_A_TERMINAL, *command], stdin=subprocess.PIPE, **options)


def type_in(process: subprocess.Popen[bytes], keys: bytes) -> None:
    """Type ``keys`` on a program's terminal."""
    assert process.stdin is not None
    process.stdin.write(keys)
    process.stdin.flush()


class TmuxTerminal:
    """A terminal that can be resized, and whose lines can be read.

    The lines include wrapped lines and the scrollback.
    """

    def __init__(self, socket: Path) -> None:
        self._tmux = ("tmux", "-f", "/dev/null", "-S", str(socket))

    def run(self, *words: str) -> str:
        """Run a command of tmux; return its output."""
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True).stdout

    def resize(self, columns: int, rows: int) -> None:
        """Change the size, and wait until the program can read it.

        The wait is needed because tmux announces the size late.
        """
        self.run("resize-window", "-x", str(columns), "-y", str(rows))
        terminal = os.open(self.run("display-message", "-p", "#{pane_tty}").strip(), os.O_RDONLY | os.O_NOCTTY)
        try:
            while os.get_terminal_size(terminal) != (columns, rows):
                time.sleep(0.05)
        finally:
            os.close(terminal)

    def lines(self) -> list[str]:
        """Return all lines, including those that have scrolled out."""
        return self.run("capture-pane", "-p", "-S", "-").strip().splitlines()

    def wait_for(self, reached: Callable[[list[str]], bool], seconds: float = 60.0) -> list[str]:
        """Wait until the lines are as wanted, and return them."""
        deadline = time.monotonic() + seconds
        while not reached(lines := self.lines()):
            assert time.monotonic() < deadline, "\n".join(lines)
            time.sleep(0.05)
        return lines


@contextmanager
def tmux_terminal(folder: Path, command: Sequence[str], columns: int, rows: int) -> Iterator[TmuxTerminal]:
    """Run a command on a terminal of this size. The terminal stays when the command has ended."""
    terminal = TmuxTerminal(folder / "tmux")
    size = ("-x", str(columns), "-y", str(rows))
    try:
        # pytest imports readline, which gives children a size in the environment that would hide the terminal's own
        sized_by_terminal = shlex.join(("env", "-u", "COLUMNS", "-u", "LINES", *command))
        terminal.run("new-session", "-d", *size, f"{sized_by_terminal}; exec sleep 600")
        yield terminal
    finally:
        terminal.run("kill-server")
