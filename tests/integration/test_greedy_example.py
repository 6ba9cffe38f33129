"""The example player in self-play, evaluation, cloning and exchange of experience."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from commands import invoke
from own_training import EXAMPLES
from selfplay_rig import ignore, put_model, selfplay_spec

from flyball.app.config import GameConfig
from flyball.app.config.loading import load
from flyball.app.core import ConfigKey
from flyball.app.play.check_player import check_player, measure_player
from flyball.app.play.gauntlet import Opponent, plan_gauntlet, plan_matches
from flyball.app.play.match_statistics import MatchGames, match_statistics
from flyball.app.play.matches import batch
from flyball.app.play.selfplay import play
from flyball.app.store import FileStore, get_shard
from flyball.daemons.suitability import check_bots, check_playable

KEY = ConfigKey("tic_tac_toe_2p")
Flyball = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a run folder with the example's files, as its page says."""
    shutil.copy(EXAMPLES / "greedy_player.py", tmp_path)
    shutil.copy(EXAMPLES / "greedy_player.toml", tmp_path / "flyball.toml")
    return tmp_path


@pytest.fixture
def config(folder: Path) -> GameConfig:
    return load(folder).run.config(KEY)


@pytest.fixture
def flyball(folder: Path) -> Flyball:
    return lambda *words: invoke(*words, run=folder)


def test_example_is_sound_and_its_settings_are_playable(folder: Path, config: GameConfig) -> None:
    loaded = load(folder)
    check_playable(loaded.run)
    check_bots(loaded.run, loaded.folder)
    assert check_player("greedy", config) == []
    figures = measure_player("greedy", config, games=60)
    assert figures["moves_per_second"] > 100
    assert figures["score_against_random"] > 0.75


def test_example_is_an_opponent_in_self_play(folder: Path, config: GameConfig) -> None:
    model = put_model(folder / "store", config)
    lineups = [{"opponents": ["greedy"], "games": 20}]
    spec = selfplay_spec(folder / "store", model, config, games=30, lineups=lineups)
    shard = get_shard(FileStore(folder / "store"), play(spec, ignore)["shard"])
    assert shard.meta.opponents == ("greedy",)
    against_greedy = shard.returns[np.arange(20), np.arange(20) % 2]
    assert against_greedy.mean() < -0.5, "an untrained model loses"
    assert play(spec, ignore)["shard"] == play(spec, ignore)["shard"]


def test_example_is_an_opponent_of_gauntlets(folder: Path, config: GameConfig) -> None:
    model = put_model(folder / "store", config)
    planned = plan_gauntlet(model, [], config.builtins, config.evaluation, players=2)
    assert [opponent.player for opponent in planned] == ["random", "greedy"]
    (opponent,) = plan_matches(["greedy"], 41, config)
    assert opponent == Opponent(name="greedy", kind="greedy", games=42)
    spec = {
        "store": str(folder / "store"),
        "config": config.model_dump(mode="json"),
        "model": model,
        "batch": {"opponent": opponent.model_dump(), "first": 0, "games": 42},
        "seed": 9,
    }
    games = batch(spec, ignore)["games"]
    assert match_statistics(MatchGames.model_validate(games), 2).score.mean < 0.3
    assert batch(spec, ignore)["games"] == games


def test_eval_plays_the_example_in_several_processes(flyball: Flyball) -> None:
    words = ("eval", "--config", KEY, "--model", "greedy", "--against", "random", "--games", 40)
    one, two = (flyball(*words, "--workers", workers) for workers in (1, 2))
    assert one.exit_code == two.exit_code == 0, two.stderr
    assert one.stdout == two.stdout
    (match,) = json.loads(one.stdout)["results"]
    assert match["score"]["mean"] > 0.7


def test_train_clones_the_example_and_meets_it(flyball: Flyball, tmp_path: Path) -> None:
    settings = {
        "cloning.teacher": "greedy",
        "cloning.games_per_round": 512,
        "cloning.epochs": 8,
        "collection.opponents": "{self=0.5, greedy=0.5}",
        "collection.games_per_iteration": 32,
        "collection.num_iterations": 1,
        "training.eval_opponent": "greedy",
        "training.eval_games": 40,
        "training.final_games": 40,
        "logging.tensorboard": "false",
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = flyball("train", KEY, "--start", "bc", "--output", tmp_path / "trained", "--json", *words)
    assert done.exit_code == 0, done.stderr
    assert "rows of greedy, accuracy" in done.stderr
    final = {found["opponent"]: found["win_share"] for found in json.loads(done.stdout)["final"]}
    assert final.keys() == {"random", "greedy"}
    assert final["random"] > 0.6, "a clone of the example wins as it does"


def test_check_player_reports_faults_and_figures(flyball: Flyball) -> None:
    sound = flyball("check", "player", "greedy", "--config", KEY)
    assert (sound.exit_code, sound.stdout) == (0, "player greedy: no faults found\n"), sound.stderr
    assert "moves per second: " in sound.stderr
    unknown = flyball("check", "player", "gready", "--config", KEY, "--json")
    assert unknown.exit_code == 2
    assert json.loads(unknown.stdout)["findings"][0]["hint"] == "There are: greedy."
