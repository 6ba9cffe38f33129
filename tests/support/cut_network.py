"""A network on this machine, of which nodes can be cut off. Needs root and iproute2."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

HOST = "10.78.0.1"
"""Address of this machine, where whatever is in no node listens."""


class Node:
    """A network namespace with one address, joined to a bridge. Cut off, it sends and receives nothing."""

    def __init__(self, number: int, bridge: str) -> None:
        self.address, self._name = f"10.78.0.{number}", f"{bridge}n{number}"
        self.entering = ("ip", "netns", "exec", self._name)
        _ip("netns", "add", self._name)
        _ip("link", "add", self._name, "type", "veth", "peer", "name", "eth0", "netns", self._name)
        _ip("link", "set", self._name, "master", bridge, "up")
        _ip("-n", self._name, "address", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", self._name, "link", "set", device, "up")

    def cut(self) -> None:
        _ip("link", "set", self._name, "down")

    def join(self) -> None:
        _ip("link", "set", self._name, "up")

    def remove(self) -> None:
        """Remove the namespace, whose processes have ended."""
        _ip("netns", "delete", self._name)


@contextmanager
def network(nodes: int) -> Iterator[list[Node]]:
    """Make a network of nodes and this machine; skip the test where that is not allowed."""
    bridge = f"fb{os.getpid()}"
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2")
    with ExitStack() as removing:
        _ip("link", "add", bridge, "type", "bridge")
        removing.callback(_ip, "link", "delete", bridge)
        _ip("address", "add", f"{HOST}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        made = []
        for number in range(2, 2 + nodes):
            made.append(Node(number, bridge))
            removing.callback(made[-1].remove)
        yield made


def _ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True)
