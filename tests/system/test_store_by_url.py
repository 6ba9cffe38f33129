"""Two machines that share only the bus and a store by URL. They have two run folders, each with its own cache."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from running_loop import BRISK, FLYBALL, flyball, running_loop

from flyball.app.config import RunFolder
from flyball.app.config.loading import load
from flyball.app.config.store_address import StoreAddress
from flyball.app.events import ModelCached, ModelDistributed, TrainingCompleted, TrainingRequested
from flyball.app.store import open_store
from flyball.daemons.run_folder import bus_endpoint

WORKER = """
[deployment]
node = "w1"
endpoint = "{endpoint}"
store = "{store}"
heartbeat_seconds = 1.0
"""


@contextmanager
def daemon_run(folder: Path, name: str) -> Iterator[None]:
    """Run a daemon of another machine."""
    with (folder / f"{name}.out").open("wb") as output:
        command = [FLYBALL, "--run", str(folder), "daemon", "run", name]
        with subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, "NO_COLOR": "1"}) as process:
            try:
                yield
            finally:
                process.terminate()


@pytest.mark.timeout(600)
def test_head_trains_on_shards_that_another_machine_played(tmp_path: Path, bucket: StoreAddress) -> None:
    head, worker = tmp_path / "head", tmp_path / "worker"
    with ExitStack() as running:
        settings = BRISK.replace("[deployment]\n", f'[deployment]\nstore = "{bucket}"\n')
        # The other machine loads each model from the bucket, and must not always be late.
        settings += "[feedback.trigger]\ncooldown_seconds = 10.0\n"
        loop = running.enter_context(running_loop(head, settings))
        worker.mkdir()
        endpoint = bus_endpoint(RunFolder(head), load(head).deployment)
        (worker / "flyball.toml").write_text(WORKER.format(endpoint=endpoint, store=bucket))
        for name in ("selfplay_worker", "distribution"):
            running.enter_context(daemon_run(worker, name))

        def learned() -> bool:
            asked = {
                event.id
                for event in loop.events(TrainingRequested)
                if any(shard.worker == "selfplay_worker@w1" for shard in event.data.shards)
            }
            return any(event.data.request_id in asked for event in loop.events(TrainingCompleted))

        loop.wait_for("a training on the other machine's games", learned)
        acknowledged = loop.wait_for("MODEL_CACHED", lambda: loop.events(ModelCached))
        assert {event.data.node for event in acknowledged} == {"w1"}
        assert {event.data.nodes for event in loop.events(ModelDistributed)} == {("laptop",)}
        assert "w1" in flyball(head, "status", code=None)
    model = acknowledged[-1].data.model
    assert open_store(str(bucket)).has(model)
    assert (worker / "cache" / model).is_file()
    assert not (head / "store").exists()
    assert not (worker / "store").exists()
    assert b"AWS" not in b"".join(path.read_bytes() for path in (head / "logs").iterdir())
