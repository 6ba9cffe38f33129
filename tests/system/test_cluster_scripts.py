"""The commands of deploy/slurm and deploy/docker, without Slurm and Docker."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from flyball.app.events import DaemonReady, DaemonStopped
from flyball.app.journal import SqliteJournalReader, history
from flyball.app.journal.database import StorageError
from flyball.daemons.registry import names_of

DEPLOY = Path(__file__).parents[2] / "deploy"
BIN = Path(sys.executable).parent
SBATCH = DEPLOY / "slurm" / "flyball.sbatch"
SETUP = DEPLOY / "docker" / "setup.sh"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
ADDRESS = "127.0.0.3"
"""An address of this machine alone, at which keys are still required."""

SETTINGS = """
configs = ["tic_tac_toe_2p"]
tick_seconds = 1.0
[deployment]
drain_seconds = 3.0
"""
SLURM = {
    "scontrol": """#!/bin/sh
case "$1" in
  show) for node in $(echo "$3" | tr , ' '); do echo "$node"; done ;;
  requeue) echo "$2" >>"$REQUEUED" ;;
esac
""",
    "srun": """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
for node in ${SLURM_JOB_NODELIST//,/ }; do SLURMD_NODENAME=$node "$@" & pids+=($!); done
trap 'kill -TERM "${pids[@]}"' TERM  # as srun hands signals to the nodes
while ! wait; do :; done
wait
""",
}
"""Commands of Slurm that run every node's processes on this machine."""

HEAD, WORKER = ({(name, "head") for name in names_of("head")}, names_of("worker"))


def recorded(run: Path, kind: type[DaemonReady] | type[DaemonStopped]) -> list[tuple[str, str]]:
    """Return the daemon and the node of each event of a type."""
    try:
        with closing(SqliteJournalReader(run / "journal.sqlite")) as reader:
            return [(event.data.daemon, event.data.node) for event in history(reader, types=[kind])]
    except StorageError:
        return []  # not there yet


def until(reached: Callable[[], bool], processes: Sequence[subprocess.Popen[bytes]], seconds: float = 400) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert all(process.poll() is None for process in processes)
        assert time.monotonic() < end
        time.sleep(0.5)


def everybody(*nodes: str) -> set[tuple[str, str]]:
    return HEAD | {(name, node) for name in WORKER for node in nodes}


@pytest.mark.parametrize("script", [SBATCH, SETUP], ids=lambda script: script.name)
def test_script_is_sound(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    if shellcheck := shutil.which("shellcheck", path=f"{BIN}:{os.environ['PATH']}"):
        done = subprocess.run([shellcheck, script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_slurm_job_runs_a_head_and_workers_and_ends_in_order(tmp_path: Path) -> None:
    run, tools, requeued = tmp_path / "run", tmp_path / "bin", tmp_path / "requeued"
    run.mkdir()
    tools.mkdir()
    (run / "flyball.toml").write_text(SETTINGS)
    for name, text in SLURM.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tools}:{BIN}:{os.environ['PATH']}",
        "FLYBALL_RUN": str(run),
        "HEAD_ADDRESS": ADDRESS,
        "HEAD_PORT": str(20_000 + os.getpid() % 10_000),
        "REQUEUE": "1",
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NODELIST": "gpu1,gpu2",
        "REQUEUED": str(requeued),
    }
    with (tmp_path / "job.out").open("wb") as output:
        job = subprocess.Popen(["bash", SBATCH], env=environment, stdout=output, stderr=subprocess.STDOUT)
    with ExitStack() as stack:
        stack.callback(job.wait, 90)
        stack.callback(job.terminate)
        until(lambda: set(recorded(run, DaemonReady)) == everybody("gpu1", "gpu2"), [job])
        assert (run / "slurm/17/keys/gpu2.secret").stat().st_mode & 0o777 == 0o600
        job.send_signal(signal.SIGTERM)  # as Slurm does before the time is over
        assert job.wait(120) == 0, (tmp_path / "job.out").read_text()
    assert recorded(run, DaemonStopped)[-1] == ("broker", "head")
    assert requeued.read_text() == "17\n"
    assert not (run / "slurm/17").exists()


def test_compose_file_starts_the_head_and_workers_it_sets_up() -> None:
    services = COMPOSE["services"]
    data, address, *workers = services["setup"]["command"]
    assert address == "head:7400"  # the container's name is its address
    for name in ("head", *workers):
        role = "head" if name == "head" else "worker"
        assert services[name]["command"] == ["--run", f"{data}/{name}", "up", "--role", role]
        assert services[name]["depends_on"]["setup"]["condition"] == "service_completed_successfully"
    assert services.keys() == {"setup", "head", *workers}
    assert all(service["volumes"] == [f"data:{data}"] for service in services.values())


def test_dockerfile_copies_files_of_the_repository() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    named = {word.removeprefix("/src/") for word in text.split() if word.startswith("/src/")}
    assert named == {"deploy/constraints.txt", "deploy/docker/setup.sh"}
    assert all((DEPLOY.parent / name).is_file() for name in named)
    assert text.count("not executed") + text.count("Not executed") == 1
    (program,) = COMPOSE["services"]["setup"]["entrypoint"]
    assert f"/usr/local/bin/{program}" in text


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_compose_commands_run_a_head_and_workers(tmp_path: Path) -> None:
    data, environment = tmp_path / "data", os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    _, _, *workers = COMPOSE["services"]["setup"]["command"]
    address = f"{ADDRESS}:{30_000 + os.getpid() % 10_000}"
    for _ in range(2):  # containers start more than once
        subprocess.run([SETUP, data, address, *workers], env=environment, check=True)
    (data / "head/flyball.toml").write_text(f"tick_seconds = 1.0\n{(data / 'head/flyball.toml').read_text()}")
    processes = []
    with ExitStack() as stack:
        for name in ("head", *workers):
            words = [word.replace("/data", str(data)) for word in COMPOSE["services"][name]["command"]]
            process = subprocess.Popen(["flyball", *words], env=environment, stdout=subprocess.DEVNULL)
            processes.append(process)
            stack.callback(process.wait, 90)
            stack.callback(process.terminate)
        until(lambda: set(recorded(data / "head", DaemonReady)) == everybody(*workers), processes)
        for process in reversed(processes):
            process.terminate()
            assert process.wait(90) == 0
    assert recorded(data / "head", DaemonStopped)[-1] == ("broker", "head")
