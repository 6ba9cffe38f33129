"""Jobs for the engine's contract suite; workers import this module by name."""

import os
import signal
import sys
import time
from pathlib import Path

from flyball.app.core import FlyballError


def double(spec, report):
    return {"number": spec["number"] * 2, "pid": os.getpid(), "session": os.getsid(0), "nice": os.nice(0)}


def count(spec, report):
    for number in range(spec["to"]):
        report({"number": number})
    return {"counted": spec["to"]}


def fail(spec, report):
    raise ValueError("seven is not enough")


def fail_with_hint(spec, report):
    raise FlyballError("The dial is stuck.", hint="Turn it.", code="stuck")


def not_a_number(spec, report):
    return {"loss": float("nan")}


def leave(spec, report):
    sys.exit(3)


def echo(spec, report):
    return spec


def meet(spec, report):
    """Wait for another job to be running at the same time."""
    folder = Path(spec["folder"])
    (folder / spec["name"]).touch()
    while not (folder / spec["other"]).exists():
        time.sleep(0.005)
    return {}


def _attempt(file):
    path = Path(file)
    attempt = int(path.read_text()) + 1 if path.exists() else 1
    path.write_text(str(attempt))
    return attempt


def fail_at_first(spec, report):
    attempt = _attempt(spec["file"])
    if attempt <= spec["failures"]:
        raise ValueError("not yet")
    return {"attempts": attempt}


def die_at_first(spec, report):
    attempt = _attempt(spec["file"])
    if attempt <= spec["deaths"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"attempts": attempt}


def wait(spec, report):
    """Report once, then tick for far longer than any test lasts."""
    report({"pid": os.getpid()})
    for _ in range(10_000):
        time.sleep(0.01)
        report({"tick": True})
    return {}


def busy(spec, report):
    """Hold the interpreter, as a job made of Python code does."""
    report({"pid": os.getpid()})
    while True:
        sum(range(1000))


def chatter(spec, report):
    """Print in every way a library might."""
    sys.stdout.write("a stray print\n")
    sys.stdout.flush()
    os.write(1, b"a stray write to descriptor 1\n")
    os.system("echo a stray child")
    report({"quiet": True})
    return {}


def interrupt_me(spec, report):
    os.kill(os.getpid(), signal.SIGINT)
    return {"survived": True}


def threads(spec, report):
    import torch

    return {"torch": torch.get_num_threads()}


def trace(spec, report):
    return {"traceparent": os.environ.get("TRACEPARENT")}


def folder(spec, report):
    return {"folder": str(Path.cwd())}
