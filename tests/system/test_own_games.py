"""Games of the user's own in a running loop: one class beside the settings, OpenSpiel's by import, PettingZoo's."""

import shutil
import subprocess
from pathlib import Path

import pytest
from running_loop import FLYBALL, RunningLoop, running_loop

from app.events import (
    DaemonFailed,
    InspectionFailed,
    ModelPromoted,
    ParityChecked,
    QualityDegraded,
    QualityScoreUpdated,
    SelfplayComplete,
    SelfplayFailed,
)
from app.store import FileStore, get_shard

EXAMPLES = Path(__file__).parents[1] / "examples"
QUICK = {
    "FLYBALL_TICK_SECONDS": "1",
    "FLYBALL_DEPLOYMENT__HEARTBEAT_SECONDS": "1",
    "FLYBALL_DEPLOYMENT__DRAIN_SECONDS": "3",
    "FLYBALL_FEEDBACK__LIFECYCLE__ELO0": "-200",
    "FLYBALL_FEEDBACK__LIFECYCLE__MAX_GAMES": "100",
}
TROUBLE = (SelfplayFailed, InspectionFailed, QualityDegraded, DaemonFailed)

FOREIGN = """
import = ["subtraction"]
configs = ["subtraction_2p", "foreign_2p"]
tick_seconds = 1.0
[deployment]
heartbeat_seconds = 1.0
drain_seconds = 3.0
[games.subtraction_2p]
game = "my_subtraction(heap=21)"
players = 2
[games.subtraction_2p.selfplay]
games_per_request = 64
[games.foreign_2p]
game = "pettingzoo:connect_four_v3"
players = 2
[games.foreign_2p.selfplay]
games_per_request = 32
"""

pytestmark = pytest.mark.timeout(500)


def flyball(loop: RunningLoop, *words: str) -> str:
    done = subprocess.run([FLYBALL, "--run", str(loop.folder), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_model_of_the_example_game_is_promoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(EXAMPLES / "nim.py", folder)
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    with running_loop(folder, (EXAMPLES / "nim.toml").read_text(), cwd=tmp_path) as loop:
        loop.wait_for("a promotion", lambda: [one for one in loop.events(ModelPromoted) if one.data.step > 0])
        promotion = next(one for one in loop.events(ModelPromoted) if one.data.step > 0)
        traced = flyball(loop, "trace", promotion.id)
        assert all(name in traced for name in ("SELFPLAY_COMPLETE nim_2p", "TRAINING_COMPLETED nim_2p"))
        checks = [event.data for event in loop.events(ParityChecked)]
        assert {(check.against, check.failures) for check in checks} == {("its own rules", 0)}
        shards = [event.data.shard.key for event in loop.events(SelfplayComplete)]
        kept = [key for key in shards if FileStore(folder / "store").has(key)]
        assert get_shard(FileStore(folder / "store"), kept[-1]).meta.rules_version == "nim-1:Nim"
        assert not loop.events(*TROUBLE)


@pytest.mark.slow
def test_imported_and_foreign_games_are_played_and_checked(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(EXAMPLES / "subtraction.py", folder)
    with running_loop(folder, FOREIGN, cwd=tmp_path) as loop:

        def scored() -> bool:
            return {event.subject for event in loop.events(QualityScoreUpdated)} == {"subtraction_2p", "foreign_2p"}

        loop.wait_for("scores of both games' shards", scored)
        checks = {(event.subject, event.data.against, event.data.failures) for event in loop.events(ParityChecked)}
        assert checks == {("subtraction_2p", "openspiel", 0), ("foreign_2p", "its own rules", 0)}
        assert not loop.events(*TROUBLE)
