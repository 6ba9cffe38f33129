"""``flyball keys``, from a new key to a broker with keys."""

import json
import os
import subprocess

import pytest
from bus_rig import FLYBALL
from commands import invoke

from flyball.app.api.runs import is_listening


def flyball(folder, *words, code=0):
    done = invoke(*words, run=folder)
    assert done.exit_code == code, done.output
    return done.stdout.strip() if code == 0 else done.stderr


def test_key_authorized_in_a_folder_no_broker_reads_is_warned_of(tmp_path):
    words = ["--run", str(tmp_path), "keys", "authorize", "node1", "worker"]
    assert "Is this the head's run folder?" in invoke(*words, "ab" * 32).stderr
    (tmp_path / "flyball.toml").write_text('[deployment.keys]\nsecret = "keys/a.secret"\nallowed = "keys/allowed"\n')
    assert invoke(*words, "cd" * 32).stderr == ""


def test_keys_are_made_authorized_listed_rotated_and_revoked(tmp_path):
    head = flyball(tmp_path, "keys", "new", "head", "--authorize", "head")
    assert (tmp_path / "keys/head.secret").stat().st_mode & 0o777 == 0o600
    node = flyball(tmp_path / "node", "keys", "new", "node1")
    said = flyball(tmp_path, "keys", "authorize", "node1", "worker", node)
    assert said == f"node1 is admitted as worker with the key {node}"
    assert flyball(tmp_path, "keys", "list").splitlines() == [
        f"{'head':<20} head     {head}",
        f"{'node1':<20} worker   {node}",
    ]
    assert "exists already" in flyball(tmp_path, "keys", "new", "head", code=2)
    assert "not a public key" in flyball(tmp_path, "keys", "authorize", "x", "worker", "abc", code=2)
    successor = flyball(tmp_path, "keys", "rotate", "head", "--grace", "60")
    listed = flyball(tmp_path, "keys", "list").splitlines()
    assert " until " in listed[0]
    assert listed[-1].endswith(successor)
    flyball(tmp_path, "keys", "rotate", "node1", "ab" * 32)
    assert flyball(tmp_path, "keys", "revoke", "node1", node) == f"node1 is refused with {node}"
    revoked = flyball(tmp_path, "keys", "revoke", "node1", "--json")
    assert json.loads(revoked) == {"name": "node1", "revoked": ["ab" * 32]}
    assert "node1" not in flyball(tmp_path, "keys", "list")
    flyball(tmp_path, "keys", "revoke", "node1", code=4)


@pytest.mark.timeout(200)
def test_a_worker_publishes_to_a_head_with_keys(tmp_path):
    """Use two run folders, as on two machines. The broker listens on a network address. An operator has a key."""
    run, other, port = tmp_path / "run", tmp_path / "other", 20_000 + os.getpid() % 10_000
    endpoint = f"tcp://127.0.0.2:{port}"
    head = flyball(run, "keys", "new", "head", "--authorize", "head")
    ann = flyball(other, "keys", "new", "ann")
    flyball(run, "keys", "authorize", "ann", "operator", ann)
    (run / "flyball.toml").write_text(
        f'tick_seconds = 100000\n[deployment]\nnode = "head"\nendpoint = "{endpoint}"\n'
        '[deployment.keys]\nsecret = "keys/head.secret"\nallowed = "keys/allowed"\n'
    )
    settings = (
        f'[deployment]\nnode = "ann"\nendpoint = "{endpoint}"\n'
        f'[deployment.keys]\nsecret = "keys/ann.secret"\nbroker = "{head}"\n'
    )
    (other / "flyball.toml").write_text(settings)
    with subprocess.Popen([*FLYBALL, "--run", str(run), "daemon", "run", "broker"], stderr=subprocess.PIPE) as broker:
        while not is_listening(endpoint):
            assert broker.poll() is None
        tick = ("emit", "CLOCK_TICK", '{"period_seconds": 1.0}')
        assert flyball(run, *tick).split()[0].isdigit(), "the head's own key"
        assert "operator key of ann may not publish" in flyball(other, *tick, code=1)
        (other / "flyball.toml").write_text(settings.replace(head, "ab" * 32))
        assert f"The broker at {endpoint} does not answer" in flyball(other, "status", code=3)
        (other / "flyball.toml").write_text(settings)
        flyball(run, "keys", "revoke", "ann")
        refused = flyball(other, "status", code=1)
        assert f"keys authorize ann worker {ann}" in " ".join(refused.split())
        assert "There is no run" not in refused
        assert f"keys authorize ann worker {ann}" in " ".join(flyball(other, *tick, code=1).split())
        assert "ACCESS_REFUSED" in flyball(run, "tail", "ACCESS_REFUSED")
        (other / "keys/ann.secret").chmod(0o644)
        assert "can be read by others" in flyball(other, *tick, code=2)
        broker.terminate()
    (other / "keys/ann.secret").chmod(0o600)
    stopped = flyball(other, "status", code=3)
    assert f"The broker at {endpoint} does not answer" in stopped
    assert "systemctl status flyball@broker" in stopped
    assert "flyball up" not in stopped
