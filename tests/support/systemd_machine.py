"""Machines for tests: real systemd in private namespaces.

A machine sees this machine's files as they are now and keeps its own changes in memory. It has a network of its own,
with the loopback device only, until ``network`` joins some. Needs root on Linux, with systemd, overlayfs and cgroup2.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

SYSTEMD = Path("/lib/systemd/systemd")
TOOLS = ("unshare", "nsenter", "mount", "chroot", "ip", "useradd", "systemctl")
ROOT = Path(__file__).parents[2]
USER, RUN = "flyball", "/var/lib/flyball"
"""The user that daemons run as, with the run folder as its home."""

BOOT = """
set -eu
base=$1 name=$2 shared=$3; shift 3
mount -t tmpfs tmpfs "$base"
mkdir "$base/upper" "$base/work" "$base/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$base/root"
cd "$base/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys  # systemd would set limits of the whole kernel
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do touch "dev/$device"; mount --bind "/dev/$device" "dev/$device"; done
touch dev/console
ln -s pts/ptmx dev/ptmx
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
for path in "$@"; do mkdir -p ".$path"; mount --rbind "$path" ".$path"; done
mkdir -p srv/flyball
mount --bind "$shared" srv/flyball
for path in $VISIBLE; do  # below /root, for instance
    while [ "$path" != / ]; do chmod a+rx ".$path" 2>/dev/null || true; path=$(dirname "$path"); done
done
rm -rf etc/systemd/system/*.wants etc/systemd/system/flyball* var/log/journal
chroot . useradd --system --no-create-home --home-dir /var/lib/flyball USER
mkdir -p var/lib/flyball
chroot . chown USER var/lib/flyball
: >etc/fstab  # nothing of this machine's disks
echo "$name" >etc/hostname
ip link set lo up
exec env -i container=flyball PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    chroot . SYSTEMD --unit=basic.target --log-target=journal
""".replace("USER", USER).replace("SYSTEMD", str(SYSTEMD))

START_SECONDS = 60.0

LIGHT_RUN = """
seed = 7
configs = ["tic_tac_toe_2p"]
tick_seconds = 1.0
"""
LIGHT_GAMES = """
[games.tic_tac_toe_2p]
rows_per_training = 256
[games.tic_tac_toe_2p.selfplay]
games_per_request = 64
[games.tic_tac_toe_2p.evaluation]
random_games = 40
model_games = 20
anchor_games = 20
[feedback.lifecycle]
elo0 = -200.0
max_games = 100
"""


def missing() -> str:
    """Return why no machine can be started here, or an empty string."""
    if os.geteuid() != 0 or not SYSTEMD.exists() or not all(map(shutil.which, TOOLS)):
        return "needs root, systemd and util-linux"
    if any(Path("/tmp") in Path(path).parents for path in (ROOT, sys.prefix)):
        return "needs Flyball outside of /tmp, which services do not share"
    if _cgroup2() is None:
        return "needs cgroup2"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--net", "--cgroup", "true"], check=False)
    return "" if tried.returncode == 0 else "needs namespaces"


def _cgroup2() -> Path | None:
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)


class Machine:
    """A running machine; ``pid`` is the process id of its systemd, as this machine sees it."""

    def __init__(self, name: str, pid: int) -> None:
        self.name, self.pid = name, pid

    def command(self, *words: str) -> list[str]:
        """Return the command that runs ``words`` as root on this machine."""
        spaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wdns=/")
        return ["nsenter", f"--target={self.pid}", *spaces, *words]

    def run(self, *words: str, check: bool = True, user: str = "root") -> str:
        """Run a command as a user; return its stdout and stderr."""
        own = ("env", "-i", f"PATH={Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin", f"FLYBALL_RUN={RUN}")
        as_user = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups")
        done = subprocess.run(
            self.command(*own, *as_user, *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=400,
        )
        if check and done.returncode:
            raise AssertionError(f"{self.name}: {' '.join(words)} ended with {done.returncode}: {done.stdout}")
        return done.stdout

    def property(self, unit: str, name: str) -> str:
        """Return a property of a unit as ``systemctl show`` prints it."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def wait_for(self, what: str, reached: Callable[[], Any], seconds: float = 240.0) -> Any:
        """Wait until ``reached()`` is true, and return it."""
        deadline = time.monotonic() + seconds
        while not (found := reached()):
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.name}: {what}: not within {seconds} s. {self.log()}")
            time.sleep(0.5)
        return found

    def log(self) -> str:
        """Return the end of the machine's journal, for a failure's message."""
        return self.run("journalctl", "--no-pager", "--lines=60", check=False)

    def path(self, path: str) -> Path:
        """Return where this machine's file can be read from outside."""
        return Path(f"/proc/{self.pid}/root{path}")


@contextmanager
def systemd_machine(name: str, base: Path, shared: Path) -> Iterator[Machine]:
    """Start a machine, and remove it completely at the end.

    Args:
        name: of the host.
        base: folder for its root; nothing is written there.
        shared: folder that it has as /srv/flyball, as if by NFS.
    """
    base.mkdir(exist_ok=True, parents=True)
    shared.mkdir(exist_ok=True)
    shared.chmod(0o777)
    mounted = _cgroup2()
    assert mounted is not None
    group = mounted / f"flyball-{os.getpid()}-{name}"
    group.mkdir()
    visible = {path.absolute() for path in map(Path, (ROOT, sys.prefix, sys.base_prefix, *sys.path)) if path.is_dir()}
    elsewhere = sorted(str(path) for path in visible if path.stat().st_dev != Path("/").stat().st_dev)
    enter = f'echo $$ >"{group}/cgroup.procs"; exec "$@"'
    unshare = ("unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "--cgroup", "--kill-child")
    boot = ("sh", "-c", BOOT, "boot", str(base), name, str(shared), *elsewhere)
    environment = {**os.environ, "VISIBLE": " ".join(map(str, visible))}
    with TemporaryFile("w+") as errors:
        command = ["sh", "-c", enter, "enter", *unshare, *boot]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=errors, env=environment)
        try:
            machine = _booted(name, process, errors)
            try:
                yield machine
            finally:
                os.kill(machine.pid, signal.SIGKILL)  # with systemd, the kernel kills all its processes
                process.wait()
        finally:
            process.kill()
            process.wait()
            _remove(group)


def _booted(name: str, process: subprocess.Popen[bytes], errors: IO[str]) -> Machine:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            errors.seek(0)
            raise AssertionError(f"{name} did not start: {errors.read()}")
        for pid in children.read_text().split():
            with suppress(OSError):
                if Path(f"/proc/{pid}/exe").readlink().name == SYSTEMD.name:
                    machine = Machine(name, int(pid))
                    if machine.run("systemctl", "is-active", "basic.target", check=False).strip() == "active":
                        return machine
        time.sleep(0.1)
    raise AssertionError(f"{name} did not start within {START_SECONDS} s")


def _remove(group: Path) -> None:
    """Remove a control group and all groups in it. Waits until the kernel has ended their processes."""
    deadline = time.monotonic() + START_SECONDS
    while group.exists() and time.monotonic() < deadline:
        for folder, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
        time.sleep(0.05)
    assert not group.exists(), f"processes or groups are left in {group}"


def network(*machines: Machine) -> None:
    """Join machines by a switch in the first one. Their addresses are 10.0.0.1, 10.0.0.2, ... in their order."""
    first, *others = machines
    first.run("ip", "link", "add", "eth0", "type", "bridge")
    for number, machine in enumerate(others, 2):
        near = ("ip", "link", "add", f"port{number}", "netns", str(first.pid), "type", "veth")
        subprocess.run([*near, "peer", "name", "eth0", "netns", str(machine.pid)], check=True)
        first.run("ip", "link", "set", f"port{number}", "master", "eth0", "up")
    for number, machine in enumerate(machines, 1):
        machine.run("ip", "address", "add", f"10.0.0.{number}/24", "dev", "eth0")
        machine.run("ip", "link", "set", "eth0", "up")


def light_games(machine: Machine) -> None:
    """Give a head small games, whose loop closes within a minute. The head must not be started yet."""
    settings = machine.path(f"{RUN}/flyball.toml")
    settings.write_text(LIGHT_RUN + settings.read_text() + LIGHT_GAMES)


def kill(machine: Machine, unit: str, number: signal.Signals) -> None:
    """Send a signal to the main process of a unit."""
    machine.run("systemctl", "kill", f"--signal={number.name}", "--kill-who=main", unit)
