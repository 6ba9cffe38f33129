"""Run a cluster in network namespaces, and measure recovery from lost machines.

Machines are killed, and one is cut off.

Each machine is a network namespace with processes of its own; a bridge joins them, keys protect the bus, and a folder
is the store. The head runs all daemons, each other machine one self-play worker. The games are tic-tac-toe with small
networks, in configurations of their own. Needs root, iproute2, and about 0.4 GB of memory a machine. With ``--ray``
the machines are nodes of a Ray cluster, which the head's daemons send all jobs to; about 1 GB a machine. Each has a
/tmp/ray of its own, because nodes that share one take each other's sockets, and they start one after another.

    python tests/benchmarks/cluster_study.py --folder /tmp/cluster --machines 36 --configs 12 --kill 5
    python tests/benchmarks/cluster_study.py --folder /tmp/cluster --machines 8 --configs 12 --kill 2 --ray

Throughput is the number of self-play results that the broker records a second, in windows of ten seconds. It has
recovered when a window reaches 90% of the mean before the deaths. At the end, all that workers logged as acknowledged
is looked up in the journal, results are counted by request, and ``flyball replay --check`` runs.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from flyball.app.config import RunFolder
from flyball.app.events import DaemonReady, NodeLost, NodeReturned, Payload, SelfplayComplete
from flyball.app.journal import SqliteJournalReader, history
from flyball.daemons.ray_cluster import ray_environment

FLYBALL = str(Path(sys.executable).with_name("flyball"))
HEAD_ADDRESS = "10.77.0.1"
RAY_ADDRESS = f"{HEAD_ADDRESS}:6379"
RAY_START = (
    *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1"),
    *("--object-store-memory=80000000", "--include-log-monitor=false"),
)
RAY_HEAD = (*RAY_START, "--head", "--port=6379", f"--node-ip-address={HEAD_ADDRESS}", "--include-dashboard=false")
RAY_WORKER = (*RAY_START, f"--address={RAY_ADDRESS}")
WINDOW_SECONDS = 10.0
RECOVERED = 0.9
RAY_FOLDER = Path("/tmp/ray")
WITH_OWN_RAY_FOLDER = ("sh", "-c", f'mount --bind "$0" {RAY_FOLDER} && exec "$@"')  # ip netns exec unshares mounts
GAME = """
[games.{key}]
game = "tic_tac_toe"
players = 2
engine = "flyball"
rows_per_training = 4096
[games.{key}.network]
kind = "mlp"
hidden = [32]
[games.{key}.selfplay]
games_per_request = 128
[games.{key}.evaluation]
random_games = 40
model_games = 20
"""


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def call(*words: str, namespace: str | None = None) -> str:
    """Run a command, and return what it prints. It runs in a network namespace if one is named."""
    inside = ("ip", "netns", "exec", namespace) if namespace else ()
    return subprocess.run([*inside, *words], check=True, capture_output=True, text=True).stdout


@dataclass
class Cluster:
    """Machines in network namespaces of their own. Each of their ``processes`` is started in its own session."""

    folder: Path
    machines: int
    ray: bool
    processes: dict[str, list[subprocess.Popen[bytes]]] = field(default_factory=dict)

    def namespace(self, node: str) -> str:
        """Return the name of a machine's network namespace."""
        return f"fb{os.getpid()}-{node}"

    @property
    def workers(self) -> list[str]:
        """Names of all machines but the head."""
        return [f"n{number:02}" for number in range(1, self.machines + 1)]

    def join(self) -> None:
        """Make the namespaces and the network between them."""
        head = self.namespace("head")
        call("ip", "netns", "add", head)
        call("ip", "-n", head, "link", "set", "lo", "up")
        call("ip", "-n", head, "link", "add", "br0", "type", "bridge")
        call("ip", "-n", head, "addr", "add", f"{HEAD_ADDRESS}/16", "dev", "br0")
        call("ip", "-n", head, "link", "set", "br0", "up")
        for number, node in enumerate(self.workers, 1):
            own = self.namespace(node)
            call("ip", "netns", "add", own)
            call("ip", "-n", own, "link", "set", "lo", "up")
            call("ip", "link", "add", node, "netns", head, "type", "veth", "peer", "name", "eth0", "netns", own)
            call("ip", "-n", head, "link", "set", node, "master", "br0", "up")
            call("ip", "-n", own, "addr", "add", f"10.77.{1 + number // 200}.{number % 200 + 1}/16", "dev", "eth0")
            call("ip", "-n", own, "link", "set", "eth0", "up")

    def set_up(self, configs: int) -> None:
        """Write settings and keys of all machines, as ``flyball init`` does."""
        store, head = str(self.folder / "store"), self.folder / "head"
        made = self._init("head", "head", store)
        keys = [f"ttt{number:02}_2p" for number in range(1, configs + 1)]
        settings = head / "flyball.toml"
        games = "".join(GAME.format(key=key) for key in keys)
        settings.write_text(f"configs = {json.dumps(keys)}\n{settings.read_text()}{games}")
        for node in self.workers:
            public = self._init("worker", node, store, "--head-key", made["public"])["public"]
            call(FLYBALL, "--run", str(head), "keys", "authorize", node, "worker", public)

    def _init(self, role: str, node: str, store: str, *more: str) -> dict[str, Any]:
        options = ("--role", role, "--node", node, "--head", HEAD_ADDRESS, "--store", store, *more, "--json")
        made: dict[str, Any] = json.loads(call(FLYBALL, "init", *options, str(self.folder / node)))
        return made

    def start_all(self) -> None:
        """Start the head's daemons, and the processes of other machines."""
        if self.ray:
            RAY_FOLDER.mkdir(exist_ok=True)
            self._start_ray("head", *RAY_HEAD)
        self._start("head", *self._flyball("head", "up"))
        for node in self.workers:
            if self.ray:
                self._start_ray(node, *RAY_WORKER)
            else:
                self._start(node, *self._flyball(node, "daemon", "run", "selfplay_worker"))

    def _start_ray(self, node: str, *command: str) -> None:
        self._start(node, *command)
        output = self.folder / f"{node}.out"
        wait_for(f"Ray on {node}", lambda: "Ray runtime started" in output.read_text(), 120)

    def _flyball(self, node: str, *words: str) -> tuple[str, ...]:
        return FLYBALL, "--run", str(self.folder / node), *words

    def _start(self, node: str, *command: str) -> None:
        environment = {"FLYBALL_DEPLOYMENT__LOG_LEVEL": "DEBUG"}  # at this level, acknowledged results are logged
        if self.ray:
            environment |= {"FLYBALL_DEPLOYMENT__ENGINE": "ray", "FLYBALL_DEPLOYMENT__RAY__ADDRESS": RAY_ADDRESS}
            token = ray_environment(RunFolder(self.folder / "head"))
            environment |= {name: token[name] for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")}
            ray_folder = self.folder / node / "ray"
            ray_folder.mkdir(exist_ok=True)
            command = (*WITH_OWN_RAY_FOLDER, str(ray_folder), *command)
        with (self.folder / f"{node}.out").open("ab") as output:
            process = subprocess.Popen(
                ("ip", "netns", "exec", self.namespace(node), *command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **environment},
            )
        self.processes.setdefault(node, []).append(process)

    def play(self) -> bool:
        """Return whether all machines play."""
        if self.ray:
            capacities = [e.data.capacity for e in self.events(DaemonReady) if e.data.daemon == "selfplay_worker"]
            return max(capacities, default=0) > self.machines
        return len({event.source for event in self.events(SelfplayComplete)}) > self.machines

    def kill(self, node: str) -> None:
        """Kill all processes of a machine at once."""
        for process in call("ip", "netns", "pids", self.namespace(node)).split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        for started in self.processes.pop(node):
            started.wait()

    def cut(self, node: str, *, off: bool) -> None:
        """Cut a machine off the network, or join it again."""
        call("ip", "-n", self.namespace("head"), "link", "set", node, "down" if off else "up")

    def stop(self) -> None:
        """Stop all machines in order. The workers come first, then the daemons of the head, then its Ray."""
        for node in sorted(self.processes, key=lambda name: name == "head"):
            for process in reversed(self.processes[node]):
                process.send_signal(signal.SIGTERM)
                if node == "head":
                    process.wait(timeout=180)
        for process in (process for started in self.processes.values() for process in started):
            process.wait(timeout=180)

    def events(self, *types: type[Payload], after: int = 0) -> list[Any]:
        """Return the recorded events of some types."""
        with closing(SqliteJournalReader(self.folder / "head" / "journal.sqlite")) as journal:
            return list(history(journal, after=after, types=types))

    def acknowledged(self) -> Iterator[tuple[str, int]]:
        """Iterate over (event id, position) of what the workers logged as acknowledged."""
        for log in self.folder.glob("head/logs/*.jsonl" if self.ray else "n*/logs/*.jsonl"):
            for line in log.read_text().splitlines():
                logged = json.loads(line)["attributes"]
                if "sequence" in logged and "event_id" in logged:
                    yield logged["event_id"], logged["sequence"]


@contextmanager
def cluster(folder: Path, machines: int, *, ray: bool) -> Iterator[Cluster]:
    """Make a cluster; remove its processes and namespaces at the end."""
    made = Cluster(folder, machines, ray)
    try:
        yield made
    finally:
        for node in ("head", *made.workers):
            with suppress(subprocess.CalledProcessError):
                for process in call("ip", "netns", "pids", made.namespace(node)).split():
                    with suppress(ProcessLookupError):
                        os.kill(int(process), signal.SIGKILL)
                call("ip", "netns", "delete", made.namespace(node))


def wait_for(what: str, reached: Callable[[], bool], seconds: float) -> float:
    """Wait until ``reached()``; return the seconds that it took."""
    began = time.monotonic()
    while not reached():
        if time.monotonic() - began > seconds:
            raise SystemExit(f"{what}: not within {seconds:g} s")
        time.sleep(1.0)
    return time.monotonic() - began


def rates(finished: list[float], begin: float, end: float) -> list[float]:
    """Return results a second in each whole window between two times. Times are seconds of the same clock."""
    count = int((end - begin) / WINDOW_SECONDS)
    windows = Counter(int((at - begin) // WINDOW_SECONDS) for at in finished if at >= begin)
    return [windows[number] / WINDOW_SECONDS for number in range(count)]


def recovery_seconds(finished: list[float], at: float, before: float) -> float | None:
    """Return the seconds from a trouble to recovery, ``None`` if never.

    Recovery is the end of the first window with the rate of before.
    """
    for late in range(120):
        begin = at + late
        if sum(begin <= one < begin + WINDOW_SECONDS for one in finished) >= RECOVERED * before * WINDOW_SECONDS:
            return late + WINDOW_SECONDS
    return None


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--machines", type=int, default=36)
    parser.add_argument("--configs", type=int, default=12)
    parser.add_argument("--kill", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=90.0, help="before the deaths, and after each trouble")
    parser.add_argument("--cut-seconds", type=float, default=30.0)
    parser.add_argument("--ray", action="store_true", help="the machines are nodes of a Ray cluster")
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    with cluster(options.folder, options.machines, ray=options.ray) as made:
        study(made, options)


def study(made: Cluster, options: argparse.Namespace) -> None:
    """Start the machines, make the troubles, stop, and report."""
    made.join()
    made.set_up(options.configs)
    made.start_all()
    wait_for("journal", (options.folder / "head" / "journal.sqlite").is_file, 120)
    started = wait_for("games of all machines", made.play, 900)
    say(f"{options.machines} machines and the head play after {started:.0f} s")
    began = time.time()  # noqa: TID251 - the journal's clock
    time.sleep(options.seconds)
    killed_at = time.time()  # noqa: TID251
    for node in made.workers[: options.kill]:
        made.kill(node)
    time.sleep(options.seconds)
    cut_at = time.time()  # noqa: TID251
    made.cut(made.workers[-1], off=True)
    time.sleep(options.cut_seconds)
    made.cut(made.workers[-1], off=False)
    time.sleep(options.seconds)
    ended = time.time()  # noqa: TID251
    made.stop()

    finished = [event.recorded_us / 1e6 for event in made.events(SelfplayComplete)]
    before = mean(rates(finished, began, killed_at))
    say(f"results a second: {before:.2f} before, in windows of {WINDOW_SECONDS:g} s:")
    for name, begin, end in (("before", began, killed_at), ("killed", killed_at, cut_at), ("cut off", cut_at, ended)):
        say(f"  {name}: {' '.join(f'{rate:.1f}' for rate in rates(finished, begin, end))}")
    say(
        f"recovered {recovery_seconds(finished, killed_at, before)} s after {options.kill} deaths, "
        f"{recovery_seconds(finished, cut_at, before)} s after the cut"
    )
    report(made, options, killed_at)


def report(made: Cluster, options: argparse.Namespace, killed_at: float) -> None:
    """Print losses of nodes, and the journal's lost and repeated results."""
    for event in made.events(NodeLost, NodeReturned):
        seconds = event.recorded_us / 1e6 - killed_at
        say(f"  {seconds:+6.1f} s {event.data.event_name} {event.data.daemon}@{event.data.node}")
    with closing(SqliteJournalReader(options.folder / "head" / "journal.sqlite")) as journal:
        everything = list(history(journal))
    recorded = {event.id: event.sequence for event in everything}
    acknowledged = list(made.acknowledged())
    lost = [one for one, position in acknowledged if recorded.get(one) != position]
    results = Counter(event.data.request_id for event in everything if isinstance(event.data, SelfplayComplete))
    twice = [request for request, count in results.items() if count > 1] + (
        ["ids"] if len(recorded) != len(everything) else []
    )
    ready = sum(isinstance(event.data, DaemonReady) for event in everything)
    say(
        f"{len(everything)} events, {ready} DAEMON_READY; {len(acknowledged)} acknowledged, lost {len(lost)}; "
        f"{len(results)} requests played, counted twice {len(twice)}"
    )
    checked = subprocess.run(
        [FLYBALL, "--run", str(options.folder / "head"), "replay", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    say(f"replay --check: exit {checked.returncode}; {(checked.stdout + checked.stderr).strip().splitlines()[-1]}")


if __name__ == "__main__":
    main()
