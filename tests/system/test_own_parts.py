"""Users' own parts and backend search in a running loop.

The parts are a game, a network, a player, a trainer, a backend and a controller. One loop has them all, because most of
a loop's cost is its start. Its working directory holds foreign packages.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tabular_backend
from foreign_packages import FOREIGN, foreign_packages
from running_loop import EXAMPLES, RunningLoop, copied_example, flyball, running_loop

from flyball.app.events import (
    AdaptiveParamsChanged,
    DaemonFailed,
    EloUpdated,
    EvaluationCompleted,
    EvaluationFailed,
    HyperparameterUpdated,
    InspectionFailed,
    ModelPromoted,
    ParityChecked,
    Payload,
    QualityDegraded,
    QualityScoreUpdated,
    RunConfigured,
    SelfplayComplete,
    SelfplayFailed,
    SelfplayRequested,
    TrainingCompleted,
    TrainingFailed,
    TrainingProgress,
    TrainingRequested,
)
from flyball.app.store import FileStore, Manifest, get_checkpoint, get_shard

PLAYER, GAME, TRAINER, BACKEND, NETWORK = "tic_tac_toe_2p", "nim_2p", "numpy_2p", "tabular_2p", "connect_four_2p"
SEARCH = "hex5_2p"
KEYS = [BACKEND, TRAINER, PLAYER, GAME, NETWORK, SEARCH]
TIC_TAC_TOE = 'game = "tic_tac_toe"\nplayers = 2\nppo.entropy_coef = 0.05\n'
QUICK = """
rows_per_training = {rows}
selfplay = {{ games_per_request = 64, opening_plies = 2 }}
evaluation = {{ random_games = 40, model_games = 20, anchor_games = 20, opening_plies = 2 }}
"""
TROUBLE = (DaemonFailed, EvaluationFailed, InspectionFailed, QualityDegraded, SelfplayFailed, TrainingFailed)

pytestmark = pytest.mark.timeout(600)


def part_of(example: str) -> str:
    """Return an example's settings without the configurations that it plays."""
    return (EXAMPLES / f"{example}.toml").read_text(encoding="utf-8").partition("\n\n")[2]


def quick(part: str, key: str, also: str = "", rows: int = 256) -> str:
    """Return an example's settings for a configuration and short loops. Loops close in seconds."""
    mine = part.replace("games.tic_tac_toe_2p", f"games.{key}")
    return mine.replace(f"[games.{key}]\n", f"[games.{key}]\n{also}{QUICK.format(rows=rows)}", 1)


SETTINGS = f"""
seed = 7
configs = {KEYS}
tick_seconds = 1.0

[deployment]
heartbeat_seconds = 1.0
drain_seconds = 3.0

[feedback.lifecycle]
elo0 = -200.0
max_games = 100

[league.matchmaking]          # by default the example's player is met in one game of a hundred
mirror = 0.5
baselines = 0.5

{quick(part_of("greedy_player"), PLAYER)}
{quick(part_of("trainer_numpy"), TRAINER, TIC_TAC_TOE)}
{part_of("nim")}
{part_of("my_controller")}
"""
SETTINGS += quick(
    f"""
[games.{BACKEND}]
backend = {tabular_backend.NAME!r}
epochs = 2
""",
    BACKEND,
    TIC_TAC_TOE,
)
SETTINGS += quick(
    f"""
[games.{NETWORK}]
network = {{ kind = "tower", blocks = 2, channels = 8 }}
""",
    NETWORK,
    rows=512,
)
SETTINGS += quick(
    f"""
[games.{SEARCH}]
game = "hex(board_size=5)"
players = 2
engine = "flyball"
backend = "search"
network = {{ kind = "windows", hidden = [64] }}
search = {{ simulations = 8 }}
""",
    SEARCH,
    rows=512,
)


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLoop]:
    place = tmp_path_factory.mktemp("own")
    folder = place / "run"
    folder.mkdir()
    for name in ("greedy_player", "trainer_numpy", "nim", "my_controller"):
        shutil.copy(EXAMPLES / f"{name}.py", folder)
    shutil.copy(tabular_backend.__file__, folder)
    foreign_packages(place)
    with running_loop(folder, SETTINGS, cwd=place) as started:
        yield started


def of(loop: RunningLoop, key: str, *types: type[Payload]) -> list[Any]:
    return [event for event in loop.events(*types) if event.subject == key]


def promotion(loop: RunningLoop, key: str) -> Any:
    """Return a configuration's first promotion of a trained model. Waits for it."""

    def promoted() -> list[Any]:
        return [event for event in of(loop, key, ModelPromoted) if event.data.step > 0]

    return loop.wait_for(f"a promotion of {key}", promoted)[0]


def manifest_of(loop: RunningLoop, promoted: Any) -> Manifest:
    return get_checkpoint(FileStore(loop.folder / "store"), promoted.data.model).manifest


def rules_of_latest_shard(loop: RunningLoop, key: str) -> str:
    store = FileStore(loop.folder / "store")
    played = [event.data.shard.key for event in of(loop, key, SelfplayComplete)]
    return get_shard(store, [shard for shard in played if store.has(shard)][-1]).meta.rules_version


def test_knobs_that_an_own_backend_does_not_understand_stay(loop: RunningLoop) -> None:
    """Run as the first test of the loop. So it shares the wait for a training with the others."""
    loop.wait_for("a first model", lambda: of(loop, BACKEND, ModelPromoted))
    (configured,) = loop.events(RunConfigured)
    described = {one["key"]: one["knobs"] for one in configured.data.settings["configs"]}
    assert described[BACKEND] == ["learning_rate"]
    decision = {"parameter": "epochs", "value": 7, "previous": 2, "reason": "by hand"}
    flyball(loop.folder, "emit", "HYPERPARAMETER_UPDATED", json.dumps(decision), "--config-key", BACKEND)
    end = loop.head()

    def asked() -> list[Any]:
        return [event for event in of(loop, BACKEND, TrainingRequested) if event.sequence > end]

    loop.wait_for("a training", asked)
    assert {one.data.epochs for one in of(loop, BACKEND, TrainingRequested)} == {2}
    lines = flyball(loop.folder, "state", BACKEND).splitlines()
    (shown,) = [" ".join(line.split()) for line in lines if line.split()[:1] == ["epochs"]]
    assert shown == f"epochs as configured; fixed: backend {tabular_backend.NAME} does not understand it"
    fields = json.loads(flyball(loop.folder, "state", BACKEND, "--json"))
    assert "fixed" not in fields["learning_rate"]
    assert "does not understand" in fields["base_temperature"]["fixed"]


def test_model_of_an_own_backend_is_promoted_and_evaluated(loop: RunningLoop) -> None:
    promoted = promotion(loop, BACKEND)
    manifest = manifest_of(loop, promoted)
    assert (manifest.backend, manifest.content) == (tabular_backend.NAME, "q_table")
    assert manifest.step == promoted.data.step
    trained = [event.data for event in of(loop, BACKEND, TrainingCompleted) if event.data.step > 0]
    (metrics,) = [one.metrics for one in trained if one.model == promoted.data.model]
    assert metrics.keys() == {"td_error", "positions"}
    assert metrics["positions"] > 100

    def played() -> set[str]:
        return {event.data.model for event in of(loop, BACKEND, SelfplayRequested)} & {promoted.data.model}

    loop.wait_for("games of a trained model", played)
    words = ("--config", BACKEND, "--model", "current", "--against", "random", "--games", "20", "--seed", "1")
    (result,) = json.loads(flyball(loop.folder, "eval", *words))["results"]
    assert (result["opponent"], result["games"]) == ("random", 20)


def test_model_of_the_example_trainer_is_promoted(loop: RunningLoop) -> None:
    promoted = promotion(loop, TRAINER)
    trained = next(e for e in of(loop, TRAINER, TrainingCompleted) if e.data.model == promoted.data.model)
    assert trained.data.metrics.keys() == {"policy_loss", "value_loss", "entropy", "seconds"}
    asked = next(e for e in of(loop, TRAINER, TrainingRequested) if e.id == trained.data.request_id)
    epochs = [e.data.epoch for e in loop.events(TrainingProgress) if e.data.request_id == asked.id]
    assert epochs == list(range(1, asked.data.epochs + 1))
    assert "flyball.training.completed" in flyball(loop.folder, "trace", promoted.id, "--json")


def test_example_player_is_rated_in_the_league(loop: RunningLoop) -> None:
    def rated() -> list[Any]:
        ratings = [one for event in of(loop, PLAYER, EloUpdated) for one in event.data.ratings]
        return [one for one in ratings if one.agent == "greedy"]

    def met() -> list[Any]:
        return [event for event in of(loop, PLAYER, SelfplayComplete) if "greedy" in event.data.opponents]

    rating = loop.wait_for("a rating", rated)[-1]
    loop.wait_for("games against it", met)
    results = [e.data.results for e in of(loop, PLAYER, EvaluationCompleted) if e.data.purpose == "rating"]
    assert all({"random", "greedy"} <= {match.opponent for match in played} for played in results)
    assert rating.elo > 100, "it beats the random bot"
    shown = json.loads(flyball(loop.folder, "league", PLAYER, "--json"))[PLAYER]["members"]
    members = {member["agent"]: member for member in shown}
    assert members["greedy"]["kind"] == "baseline"
    assert members["greedy"]["elo"] is not None


def test_model_of_the_example_game_is_promoted(loop: RunningLoop) -> None:
    traced = flyball(loop.folder, "trace", promotion(loop, GAME).id)
    assert all(name in traced for name in (f"SELFPLAY_COMPLETE {GAME}", f"TRAINING_COMPLETED {GAME}"))
    checks = [event.data for event in of(loop, GAME, ParityChecked)]
    assert {(check.against, check.failures) for check in checks} == {("its own rules", 0)}
    assert rules_of_latest_shard(loop, GAME) == "nim-1:Nim"


def test_tower_of_connect_four_is_promoted(loop: RunningLoop) -> None:
    manifest = manifest_of(loop, promotion(loop, NETWORK))
    assert (manifest.network.kind, manifest.planes) == ("tower", (3, 6, 7))


def test_model_that_searches_is_promoted_and_replays_shards(loop: RunningLoop) -> None:
    promoted = promotion(loop, SEARCH)
    assert manifest_of(loop, promoted).backend == "search"

    def replaying() -> list[Any]:
        metrics = [event.data.metrics or {} for event in of(loop, SEARCH, TrainingCompleted)]
        return [figures for figures in metrics if figures.get("replayed_rows")]

    loop.wait_for("a training that replays shards", replaying)
    used = of(loop, SEARCH, TrainingRequested)[-1].data.shards[-1].key
    assert get_shard(FileStore(loop.folder / "store"), used).policy is not None
    assert "fixed" not in flyball(loop.folder, "state", SEARCH)


def test_example_controller_owns_the_learning_rate(loop: RunningLoop) -> None:
    def decided() -> list[Any]:
        updates = of(loop, PLAYER, HyperparameterUpdated)
        return [event for event in updates if event.data.parameter == "learning_rate"]

    decision = loop.wait_for("a decision", decided)[0]
    promotion(loop, PLAYER)
    assert decision.data.reason.endswith("after training 1")
    assert not loop.events(AdaptiveParamsChanged)
    traced = flyball(loop.folder, "trace", decision.id, "--json")
    assert "flyball.training.completed" in traced
    assert "flyball.training.hyperparameter_updated" in traced
    rate = json.loads(flyball(loop.folder, "state", PLAYER, "learning_rate", "--json"))["learning_rate"]
    assert (rate["owner"], rate["event"]["name"]) == ("cosine", "HYPERPARAMETER_UPDATED")


def test_own_parts_leave_in_order_and_replay(loop: RunningLoop) -> None:
    """Run as the last test of the loop."""
    assert loop.leave() == 0
    assert not loop.events(*TROUBLE)
    assert FOREIGN not in loop.logs()
    report = json.loads(flyball(loop.folder, "replay", "--check", "--json"))
    assert (report["differing"], report["unfolded"]) == (0, [])
    assert report["matched"]["HYPERPARAMETER_UPDATED"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("example", ["trainer_torch", "trainer_numpy", "own_backend", "conv_network"])
def test_example_with_its_settings_is_promoted(tmp_path: Path, example: str) -> None:
    """Use the default gates, and modules beside the settings."""
    folder = tmp_path / "run"
    with running_loop(folder, copied_example(example, folder), cwd=tmp_path) as started:

        def promoted() -> list[Any]:
            return [event for event in started.events(ModelPromoted) if event.data.step > 0]

        manifest = manifest_of(started, started.wait_for("a promotion", promoted)[0])
        if example == "conv_network":
            assert (manifest.network.kind, manifest.planes) == ("conv_network:build", (3, 6, 7))
        if example == "own_backend":
            trained = next(event.data for event in started.events(TrainingCompleted) if event.data.step > 0)
            asked = next(one.data for one in started.events(TrainingRequested) if one.id == trained.request_id)
            assert len(asked.shards) > 4
            assert trained.rows == sum(shard.rows for shard in asked.shards[-4:]), "as many as its options say"
        assert not started.events(DaemonFailed, TrainingFailed)


IMPORTED = """
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


@pytest.mark.slow
def test_imported_and_foreign_games_are_played_and_checked(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(EXAMPLES / "subtraction.py", folder)
    with running_loop(folder, IMPORTED, cwd=tmp_path) as started:

        def scored() -> bool:
            return {event.subject for event in started.events(QualityScoreUpdated)} == {"subtraction_2p", "foreign_2p"}

        started.wait_for("scores of both games' shards", scored)
        checks = {(event.subject, event.data.against, event.data.failures) for event in started.events(ParityChecked)}
        assert checks == {("subtraction_2p", "openspiel", 0), ("foreign_2p", "its own rules", 0)}
        assert not started.events(*TROUBLE)
