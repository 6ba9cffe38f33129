"""The child process of ``LocalEngine``: ``python -m flyball.app.engine NICE``.

It reads jobs from stdin and writes their frames to stdout. It ends when its stdin closes, even in the middle of a job,
so it never outlives a parent that was killed.
"""

import json
import os
import signal
import sys
import threading
from queue import SimpleQueue
from typing import BinaryIO

from flyball.app.core import JsonObject
from flyball.app.engine.port import TRACEPARENT
from flyball.app.engine.worker import LENGTH_BYTES, frame_bytes, perform


def main() -> None:
    """Run jobs until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop, not the terminal
    os.nice(int(sys.argv[1]))
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a job prints goes to stderr, because otherwise it would mix with the frames
    jobs: SimpleQueue[JsonObject] = SimpleQueue()
    threading.Thread(target=_read_jobs, args=(sys.stdin.buffer, jobs), daemon=True).start()

    def send(frame: JsonObject) -> None:
        out.write(frame_bytes(frame))
        out.flush()

    while True:
        job = jobs.get()
        os.environ[TRACEPARENT] = job["traceparent"]
        perform(job["function"], job["spec"], send)


def _read_jobs(source: BinaryIO, jobs: SimpleQueue[JsonObject]) -> None:
    while len(head := source.read(LENGTH_BYTES)) == LENGTH_BYTES:
        jobs.put(json.loads(source.read(int.from_bytes(head, "big"))))
    os._exit(0)  # sys.exit would end this thread only


main()
