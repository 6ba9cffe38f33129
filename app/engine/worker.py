"""The child process of ``LocalEngine``: ``python -m app.engine NICE``.

Reads jobs from stdin, writes frames to stdout, each as four bytes of length and JSON. It ends when its stdin
does, even in the middle of a job, so it never outlives a parent that was killed.
"""

import json
import os
import signal
import sys
import threading
from queue import SimpleQueue
from typing import BinaryIO

from app.engine.job import encode, perform
from app.engine.port import JsonObject

LENGTH_BYTES = 4


def frame_bytes(frame: JsonObject) -> bytes:
    """Return a frame as it goes through the pipe."""
    data = encode(frame)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def main() -> None:
    """Serve jobs until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop, not the terminal
    os.nice(int(sys.argv[1]))
    out = _claim_stdout()
    jobs: SimpleQueue[JsonObject] = SimpleQueue()
    threading.Thread(target=_read_jobs, args=(sys.stdin.buffer, jobs), daemon=True).start()

    def send(frame: JsonObject) -> None:
        out.write(frame_bytes(frame))
        out.flush()

    while True:
        job = jobs.get()
        perform(job["function"], job["spec"], send)


def _claim_stdout() -> BinaryIO:
    # What a job prints must not get between the frames: descriptor 1 becomes stderr.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


def _read_jobs(source: BinaryIO, jobs: SimpleQueue[JsonObject]) -> None:
    while len(head := source.read(LENGTH_BYTES)) == LENGTH_BYTES:
        jobs.put(json.loads(source.read(int.from_bytes(head, "big"))))
    os._exit(0)  # sys.exit would end this thread only
