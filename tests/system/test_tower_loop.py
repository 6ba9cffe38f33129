"""Networks other than perceptrons in a running loop."""

from pathlib import Path

import pytest
from running_loop import running_loop

from app.events import ModelPromoted
from app.store import FileStore, get_checkpoint

SETTINGS = """
seed = 7
configs = ["connect_four_2p"]
tick_seconds = 1.0
[deployment]
heartbeat_seconds = 1.0
drain_seconds = 3.0
[feedback.lifecycle]
elo0 = -200.0
max_games = 100
[games.connect_four_2p]
rows_per_training = 1024
[games.connect_four_2p.selfplay]
games_per_request = 64
[games.connect_four_2p.evaluation]
random_games = 40
model_games = 20
anchor_games = 20
[games.connect_four_2p.network]
"""
NETWORKS = {
    "tower": "kind = 'tower'\nblocks = 2\nchannels = 8\n",
    "conv_network:build": "kind = 'conv_network:build'\noptions.channels = 8\n",
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_connect_four_with_a_conv_network_is_promoted(tmp_path: Path, kind: str) -> None:
    example = Path(__file__).parents[1] / "examples" / "conv_network.py"
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / example.name).write_text(example.read_text())  # beside flyball.toml, as a user's own
    with running_loop(folder, SETTINGS + NETWORKS[kind]) as loop:
        trained = loop.wait_for("a promotion", lambda: [e for e in loop.events(ModelPromoted) if e.data.step > 0])
        manifest = get_checkpoint(FileStore(folder / "store"), trained[0].data.model).manifest
        assert (manifest.network.kind, manifest.planes) == (kind, (3, 6, 7))
        assert loop.leave() == 0
