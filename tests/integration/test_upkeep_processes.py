"""The archiving process ends with its broker, however the broker ends. Otherwise it would keep the journal locked."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

CHILD = """
import sys, time
from pathlib import Path
from flyball.daemons.supervisor import end_with_stdin

end_with_stdin()
time.sleep(0.5)
Path(sys.argv[1]).touch()  # it lives, so its stdin is open
time.sleep(600)
"""

BROKER = f"""
import sys, time
from pathlib import Path
from flyball.app.config.deployment import JournalSettings
from flyball.app.journal import SqliteJournal
from flyball.daemons import upkeep
from flyball.daemons.clock import SystemClock

upkeep.EVENTS = 0
folder = Path(sys.argv[1])
journal, command = SqliteJournal(folder / "journal.sqlite"), (sys.executable, "-c", {CHILD!r}, str(folder / "up"))
archiving = upkeep.PeriodicCommand("archiving", command, folder / "errors", SystemClock())
kept = upkeep.Upkeep(journal, archiving, JournalSettings(), SystemClock())
kept.look()
while not (folder / "up").exists():
    time.sleep(0.05)
print(archiving.child.pid, flush=True)
if sys.argv[2] == "close":
    archiving.close()
time.sleep(600)
"""


@pytest.mark.parametrize("end", ["kill", "close"])
def test_archiving_process_ends_with_its_broker(tmp_path: Path, end: str) -> None:
    command = [sys.executable, "-c", BROKER, str(tmp_path), end]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        child = psutil.Process(int(broker.stdout.readline()))
        if end == "kill":
            broker.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs([child], timeout=60)
        broker.kill()
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in alive)
