"""The duties of a container's first process.

The kernel gives orphans to the process 1 of their container, which has to reap them. It also ignores a signal to
process 1 without a handler.
"""

import os
import signal
import sys
from contextlib import suppress

FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
    signal.SIGWINCH,
)


def continue_as_child() -> None:
    """Let a child run the program, and look after its orphans.

    The parent reaps them, forwards signals, and ends with the child. Returns in the child. The child leads a process
    group of its own, in the terminal's foreground if there is a terminal, so that Ctrl-C reaches it once. This process
    must have no threads.
    """
    # The kernel drops a signal to process 1 that comes before its handler, but keeps one that is blocked.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _take_terminal()
        return
    for number in FORWARDED:
        signal.signal(number, lambda received, _frame: _forward(child, received))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _forward(child: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, number)


def _take_terminal() -> None:
    os.setpgid(0, 0)
    if sys.stdin is not None and sys.stdin.isatty():
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # otherwise the change would stop this process
        os.tcsetpgrp(sys.stdin.fileno(), os.getpgrp())
        signal.signal(signal.SIGTTOU, before)
