"""The Ray cluster of one machine: access, capacity and changing nodes."""

import json
import os
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from ray_cluster import ray_cluster

from flyball.app.config import RunFolder
from flyball.app.engine.ray_engine import NoRay, RayEngine, check_ray
from flyball.daemons import ray_cluster as own_cluster
from flyball.daemons.ray_cluster import announced_address

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs flyball[ray]")
STRANGER = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False)"
NODES = Path(__file__).parents[1] / "support" / "ray_nodes.py"


@needs_ray
@pytest.mark.parametrize(
    ("resources", "jobs"),
    [
        ({"CPU": 1.0}, 2),
        ({"CPU": 0.1}, 20),
        ({"CPU": 1.5}, 1),
        ({"CPU": 1.0, "GPU": 0.5}, 0),
        ({"CPU": 1.0, "big_memory": 1.0}, 0),
    ],
)
async def test_capacity_is_that_of_the_scarcest_resource(own_ray, resources, jobs):
    assert await RayEngine(own_ray[0], resources).capacity() == jobs


@needs_ray
def test_cluster_listens_on_loopback_and_refuses_strangers(own_ray, tmp_path):
    processes = [own_ray[1].pid, *(child.pid for child in psutil.Process(own_ray[1].pid).children(recursive=True))]
    listening = [
        one.laddr.ip
        for pid in processes
        for one in psutil.Process(pid).net_connections("tcp")
        if one.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    environment = {**os.environ, "RAY_AUTH_TOKEN": "0" * 64}
    del environment["RAY_AUTH_TOKEN_PATH"]
    told = subprocess.run(
        [sys.executable, "-c", STRANGER, own_ray[0]], env=environment, capture_output=True, text=True, check=False
    )
    assert told.returncode != 0
    assert "InvalidAuthToken" in told.stderr


IN_A_NAMESPACE = ("unshare", "--net", "--map-root-user", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
CAN_MAKE_NAMESPACES = subprocess.run([*IN_A_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


@needs_ray
@pytest.mark.skipif(not CAN_MAKE_NAMESPACES, reason="needs unshare --net --map-root-user, and ip")
def test_a_node_adds_its_room_and_its_loss_loses_its_jobs_alone():
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    paths = os.pathsep.join(filter(None, sys.path))
    told = subprocess.run(
        [*IN_A_NAMESPACE, sys.executable, str(NODES)],
        env={**inherited, "PYTHONPATH": paths, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "5" * 64},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    happened = json.loads(told.stdout.splitlines()[-1])
    assert (happened["before"], happened["both"], happened["after"]) == ([1, 0], [2, 1], [1, 0])
    assert happened["waited"] == 8, "the job waited for a node that can run it"
    assert "node it was running on is dead" in happened["lost"]
    assert happened["other"] == 4


@needs_ray
def test_it_ends_with_the_process_that_started_it(tmp_path):
    """Kill the process; Ray's two agents end themselves a little later."""
    with ray_cluster(tmp_path) as (_, process):
        children = psutil.Process(process.pid).children(recursive=True)
        serving = [child for child in children if child.name() in {"raylet", "gcs_server"}]
        assert len(serving) == 2
        process.send_signal(signal.SIGKILL)
        process.wait()
        _, alive = psutil.wait_procs(serving, timeout=60)
    assert not alive


def test_an_address_where_nothing_listens_is_an_error_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(NoRay, match=f"No Ray cluster answers at {address}"):
        RayEngine(address, {"CPU": 1.0})


@pytest.mark.parametrize("address", ["nowhere", "host:port", "", "127.0.0.1:99999"])
def test_what_is_no_address_is_an_error(address):
    with pytest.raises(NoRay):
        RayEngine(address, {"CPU": 1.0})


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(NoRay) as missing:
        check_ray()
    assert missing.value.hint == "pip install 'flyball[ray]'"


async def test_daemons_without_a_cluster_say_what_to_set(tmp_path, monkeypatch):
    monkeypatch.setattr(own_cluster, "START_SECONDS", 0.05)
    with pytest.raises(NoRay) as missing:
        await announced_address(RunFolder(tmp_path))
    assert "deployment.ray.address" in missing.value.hint
