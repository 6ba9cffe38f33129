"""An event listener of supervisord that reports programs that keep failing. Needs Python alone.

supervisord starts it, and both talk by lines on stdin and stdout (http://supervisord.org/events.html). The report goes
to stderr, which supervisord keeps in a file.
"""

import argparse
import logging
import os
import subprocess
import sys
import time
from collections import defaultdict, deque
from typing import BinaryIO

log = logging.getLogger("crash_loops")


class CrashLoops:
    """Counts failures of programs. ``failures`` within ``seconds`` are a crash loop; then counting starts over."""

    def __init__(self, failures: int, seconds: float) -> None:
        self._failures, self._seconds = failures, seconds
        self._times: defaultdict[str, deque[float]] = defaultdict(deque)

    def failed(self, program: str, now: float) -> bool:
        """Count a failure at a time in seconds; return whether it completes a crash loop."""
        times = self._times[program]
        times.append(now)
        while times[0] < now - self._seconds:
            times.popleft()
        if len(times) < self._failures:
            return False
        times.clear()
        return True


def fields(line: str) -> dict[str, str]:
    """Return the pairs of a line such as ``eventname:PROCESS_STATE_EXITED len:71``."""
    return dict(pair.split(":", 1) for pair in line.split())


def listen(events: BinaryIO, answers: BinaryIO, loops: CrashLoops, supervisorctl: list[str]) -> None:
    """Answer supervisord's events until it closes the pipe. With a ``supervisorctl`` command, stop what loops."""
    while True:
        answers.write(b"READY\n")
        answers.flush()
        header = events.readline().decode()
        if not header:
            return
        head = fields(header)
        event = fields(events.read(int(head["len"])).decode())
        program = f"{event['groupname']}:{event['processname']}"
        if head["eventname"] == "PROCESS_STATE_FATAL":
            log.error("%s CANNOT BE STARTED; see the log of supervisord", program)
        elif event["expected"] == "1":
            log.error("%s ENDED FOR GOOD: its settings or its name are wrong; see its stderr file", program)
        elif loops.failed(program, time.monotonic()):
            log.error("CRASH LOOP: %s fails again and again; see its stderr file", program)
            if supervisorctl:
                stopped = subprocess.run([*supervisorctl, "stop", program], capture_output=True, text=True, check=False)
                log.error("stopped: %s", stopped.stdout.strip() or stopped.stderr.strip())
        answers.write(b"RESULT 2\nOK")
        answers.flush()


def main() -> None:
    """Listen to the supervisord that started this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failures", type=int, default=5, help="that make a crash loop")
    parser.add_argument("--seconds", type=float, default=120.0, help="within which they happen")
    parser.add_argument("--stop", action="store_true", help="stop programs in a crash loop, by supervisorctl")
    options = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    supervisorctl = ["supervisorctl", "-s", os.environ["SUPERVISOR_SERVER_URL"]] if options.stop else []
    listen(sys.stdin.buffer, sys.stdout.buffer, CrashLoops(options.failures, options.seconds), supervisorctl)


if __name__ == "__main__":
    main()
