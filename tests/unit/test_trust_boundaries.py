"""Data from other machines is neither unpickled nor used as paths."""

import ast
from pathlib import Path

import pytest
from pydantic import ValidationError

from flyball.app.bus.ports import Present
from flyball.app.config.store_address import StoreAddress
from flyball.app.events import DaemonHeartbeat, DaemonStarted
from flyball.app.store import FileStore, MissingBlob
from flyball.app.store.cache import BlobCache, CachedStore
from flyball.app.store.objects import ObjectStore

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for folder in ("app", "daemons", "flyball") for path in (ROOT / folder).rglob("*.py"))
OWN_PROCESSES = {ROOT / "app" / "learning" / "torchrun.py"}
"""Modules that unpickle files of processes of the same job, from a folder only their user can read (ADR-026)."""

UNPICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def calls(tree, owner, name):
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=found), attr=called)) if (found, called) == (
                owner,
                name,
            ):
                yield {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}


def test_nothing_that_crosses_a_trust_boundary_is_unpickled():
    """Models, shards and events have formats that run no code."""
    assert len(SOURCES) > 200
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert UNPICKLERS.isdisjoint(imports(tree)) or path in OWN_PROCESSES, path
        assert not list(calls(tree, "torch", "load")), path
        assert all(given.get("allow_pickle") == "False" for given in calls(tree, "np", "load")), path
        received = [*calls(tree, "socket", "recv_pyobj"), *calls(tree, "socket", "send_pyobj")]
        assert not received, path


@pytest.mark.parametrize("key", ["../secret", "/etc/passwd", "a" * 63 + "/", "..", "", "A" * 64, "a" * 64 + "\n"])
def test_a_key_of_the_store_cannot_leave_its_root(tmp_path, key):
    (tmp_path / "secret").write_bytes(b"secret")
    objects = ObjectStore(StoreAddress("file", f"file://{tmp_path}/store", {}))
    for store in (FileStore(tmp_path / "store"), objects, CachedStore(objects, BlobCache(tmp_path / "cache", 100))):
        for use in (store.get, store.has, store.delete):
            with pytest.raises(MissingBlob, match="is no blob key"):
                use(key)
    assert (tmp_path / "secret").read_bytes() == b"secret"


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "a/b", "", "a b", "<b>", "a\n", "a\x00"])
def test_a_sign_of_life_cannot_name_a_path(name):
    """Daemons and nodes are shown on pages, and beside paths of logs."""
    for who in ({"daemon": name, "node": "laptop"}, {"daemon": "training", "node": name}):
        with pytest.raises(ValidationError):
            DaemonStarted(**who, pid=1, version="1")
        with pytest.raises(ValidationError):
            DaemonHeartbeat(**who, position=1, lag=0, jobs=1, requests=())
        with pytest.raises(ValidationError):
            Present(**who, heard_seconds_ago=1.0, lost=False, sign=None)
