"""Run participants side by side and kill each -9 after a random time: killing.py SCRIPT KILLS SLOTS LOW HIGH LIMIT.

It forks them off after the imports, because each start of Python takes longer than a participant should live.
"""

import os
import random
import runpy
import signal
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

import flyball.app.api.participant

assert flyball.app.api.participant


def start(script: str) -> int:
    """Start a participant in the working directory; return its process."""
    pid = os.fork()
    if pid == 0:
        sys.argv = [script, "."]
        try:
            runpy.run_path(script, run_name="__main__")
        except Exception:  # noqa: BLE001 - a forked process must not return
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def kill_again_and_again(script: str, kills: int, slots: int, seconds: tuple[float, float], limit: float) -> int:
    """Return the kills, at most ``kills``, within ``limit`` seconds."""
    rng, end, killed, living = random.Random(7), time.monotonic() + limit, 0, dict[int, float]()
    while living or (killed < kills and time.monotonic() < end):
        while len(living) < slots and killed + len(living) < kills and time.monotonic() < end:
            living[start(script)] = time.monotonic() + rng.uniform(*seconds)
        pid = min(living, key=lambda pid: living[pid])
        time.sleep(max(0.0, living.pop(pid) - time.monotonic()))
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        assert os.WIFSIGNALED(status), f"a participant ended by itself: {os.waitstatus_to_exitcode(status)}"
        killed += 1
    return killed


if __name__ == "__main__":
    script, kills, slots, low, high, limit = sys.argv[1:]
    sys.path.insert(0, str(Path.cwd()))
    import_module(Path(script).stem)
    print(kill_again_and_again(script, int(kills), int(slots), (float(low), float(high)), float(limit)))  # noqa: T201
