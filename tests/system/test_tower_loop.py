"""Networks other than perceptrons in a running loop."""

from pathlib import Path

import pytest
from running_loop import copied_example, running_loop

from app.events import ModelPromoted
from app.store import FileStore, Manifest, get_checkpoint

TOWER = """
configs = ["connect_four_2p"]

[games.connect_four_2p]
rows_per_training = 1024
selfplay.games_per_request = 64
evaluation = {random_games = 40, model_games = 20, anchor_games = 20}
network = {kind = "tower", blocks = 2, channels = 8}

[feedback.lifecycle]
elo0 = -200.0
max_games = 100
"""


def promoted_manifest(folder: Path, settings: str) -> Manifest:
    """Run a loop until it has promoted a trained model; return the model's manifest."""
    with running_loop(folder, settings) as loop:
        trained = loop.wait_for("a promotion", lambda: [e for e in loop.events(ModelPromoted) if e.data.step > 0])
        manifest = get_checkpoint(FileStore(folder / "store"), trained[0].data.model).manifest
        assert loop.leave() == 0
        return manifest


def test_tower_of_connect_four_is_promoted(tmp_path: Path) -> None:
    manifest = promoted_manifest(tmp_path / "run", TOWER)
    assert (manifest.network.kind, manifest.planes) == ("tower", (3, 6, 7))


@pytest.mark.slow
def test_example_network_of_connect_four_is_promoted(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    manifest = promoted_manifest(folder, copied_example("conv_network", folder))
    assert (manifest.network.kind, manifest.planes) == ("conv_network:build", (3, 6, 7))
