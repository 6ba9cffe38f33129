"""Hearts in a running loop, by our own engine. The quality monitor replays its hands by OpenSpiel's rules."""

import json
from collections.abc import Iterator

import pytest
from running_loop import RunningLoop, flyball, running_loop

from flyball.app.config import GAMES
from flyball.app.events import ParityChecked, QualityScoreUpdated, SelfplayComplete, TrainingCompleted
from flyball.app.store import FileStore, get_shard

KEY = "hearts_4p"
SETTINGS = """
seed = 7
configs = ["hearts_4p"]
tick_seconds = 1.0
[deployment]
heartbeat_seconds = 1.0
drain_seconds = 3.0
[feedback.quality]
parity_clear_checks = 1
[feedback.scheduler]
idle_seconds = 2.0
[games.hearts_4p]
rows_per_training = 2048
[games.hearts_4p.selfplay]
games_per_request = 48
[games.hearts_4p.evaluation]
random_games = 40
model_games = 20
anchor_games = 20
"""


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLoop]:
    with running_loop(tmp_path_factory.mktemp("hearts") / "run", SETTINGS) as started:
        yield started


@pytest.mark.timeout(600)
def test_quality_monitor_replays_hands_without_failures(loop: RunningLoop) -> None:
    loop.wait_for("a training", lambda: loop.events(TrainingCompleted)[1:])
    scored = {event.data.shard.key for event in loop.events(QualityScoreUpdated)}
    checks = {event.data.shard: event.data for event in loop.events(ParityChecked)}
    assert scored
    assert scored <= set(checks), "no shard has a score whose hands were not replayed"
    assert all(check.checked == 16 and check.failures == 0 for check in checks.values())
    played = [event.data.shard.key for event in loop.events(SelfplayComplete)]
    assert set(checks) <= set(played)
    kept = [key for key in played if FileStore(loop.folder / "store").has(key)]
    shard = get_shard(FileStore(loop.folder / "store"), kept[-1])
    assert shard.meta.rules_version == "flyball-1:hearts"
    assert (GAMES[KEY].engine, shard.obs.shape[1]) == ("flyball", 270)


@pytest.mark.timeout(600)
def test_worker_of_hands_with_false_outcomes_is_quarantined(loop: RunningLoop) -> None:
    told = flyball(loop.folder, "scenario", "bad-data", KEY, "--wait", "400", "--json")
    steps = [json.loads(line) for line in told.splitlines()][:-1]
    checked = next(step["event"]["data"] for step in steps if step["event"]["type"].endswith("parity_checked"))
    assert checked["failures"] > 0
    kinds = [step["event"]["type"].removeprefix("flyball.") for step in steps]
    assert kinds.index("quality.parity_checked") < kinds.index("node.quarantined")
