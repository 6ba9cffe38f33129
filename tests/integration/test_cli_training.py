"""``flyball train``: settings from files and the command line, runs, and output."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from click.testing import Result
from commands import invoke, refused, told
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from terminal import on_a_terminal

from flyball.app.config import GAMES, SELF, BadSettings, NetworkSettings, SearchSettings
from flyball.app.config.pipeline_loading import MEANINGS, assigned, by_key, training_settings
from flyball.app.train.sinks import read_log
from flyball.app.train.state import TrainingFolder

SMALL = (
    "collection.games_per_iteration=16",
    "collection.num_iterations=2",
    "network.hidden=[16]",
    "training.eval_games=8",
    "training.final_games=8",
)
SEED_004 = """
env:
  reward_mode: "shaped"          # "terminal" | "per_trick" | "shaped"
  normalize_rewards: true
  collect_all_seats: true        # 4x data per game
collection:
  games_per_iteration: 100       # 20,800 experiences per iteration
  num_iterations: 100
  initial_policy: "behavioral_clone"  # "random" | "behavioral_clone"
network:
  obs_dim: 270
  hidden_dim: 256
  action_dim: 52
  shared_trunk: true
ppo:
  learning_rate: 3e-4
  gamma: 0.99                    # Discount factor
  gae_lambda: 0.95               # GAE parameter
  clip_epsilon: 0.2              # PPO clip range
  value_coef: 0.5                # Value loss coefficient
  entropy_coef: 0.01             # Entropy bonus
  max_grad_norm: 0.5             # Gradient clipping
  ppo_epochs: 4                  # Updates per iteration
  batch_size: 256
  normalize_advantages: true
training:
  max_episodes: 100000
  early_stopping: true
  patience: 10                   # Iterations without improvement
  checkpoint_frequency: 5
  eval_frequency: 1
  eval_games: 100
logging:
  tensorboard: true
  csv_log: "training_log.csv"
  log_level: "INFO"
  print_frequency: 1
"""
HEARTS = GAMES["hearts_4p"]


def train(*words: object) -> Result:
    return invoke("train", *words)


def small(folder: Path, *words: str, game: str = "tic_tac_toe_2p") -> Result:
    assignments = [word for setting in SMALL for word in ("--set", setting)]
    return train(game, "--output", folder, *assignments, *words)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_saves_whole_iterations_and_a_report(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    """Checkpoints are rare, so only the signal can have saved iterations."""
    words = [sys.executable, "-m", "flyball.app.cli", "train", "tic_tac_toe_2p", "--output", str(tmp_path / "run")]
    many = ["collection.num_iterations=100000", "collection.games_per_iteration=16"]
    rare = [*many, "training.checkpoint_frequency=1000"]
    command = [*words, *(word for setting in rare for word in ("--set", setting))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        log, report = tmp_path / "run" / "training_log.csv", tmp_path / "run" / "report.md"
        while not log.exists() or len(log.read_text(encoding="utf-8").splitlines()) < 4:
            assert run.poll() is None
            time.sleep(0.05)
        first = report.read_text(encoding="utf-8")
        run.send_signal(sent)
        stdout, stderr = run.communicate()  # the limit of a test ends what hangs
    done = TrainingFolder(tmp_path / "run").state()
    assert (run.returncode, stdout) == (code, ""), stderr
    assert done.iteration > 1
    assert "0 iterations" in first
    assert f"{done.iteration} iterations" in report.read_text(encoding="utf-8")
    assert f"error: Interrupted; the run is at the checkpoint after iteration {done.iteration}." in stderr
    assert stderr.endswith("It goes on by --resume.\n")


def test_training_has_the_settings_of_its_game() -> None:
    for config in (config for config in GAMES.values() if config.backend != "language"):
        settings = training_settings(config, None, {})
        assert settings.training.eval_temperature == config.evaluation.temperature, "the default of `eval`"
    clobber = GAMES["clobber_2p"]
    assert training_settings(clobber, None, {}).ppo.gae_lambda == clobber.ppo.gae_lambda
    assert training_settings(HEARTS, None, {}).training.eval_opponent == "heuristic"


def test_the_document_s_own_file_is_understood(tmp_path: Path) -> None:
    file = tmp_path / "ppo_default.yaml"
    file.write_text(SEED_004)
    settings = training_settings(HEARTS, file, {})
    assert settings.ppo.learning_rate == 3e-4, "YAML 1.1 takes it for a text"
    assert settings.ppo.epochs == 4
    assert settings.env.reward_mode == "shaped"
    assert settings.network.network == NetworkSettings()


def test_earlier_run_is_resumed_without_removed_settings(tmp_path: Path) -> None:
    assert small(tmp_path).exit_code == 0
    file = tmp_path / "run.json"
    head = json.loads(file.read_text())
    head["settings"]["env"]["normalize_rewards"] = head["settings"]["network"]["shared_trunk"] = True
    file.write_text(json.dumps(head))
    done = train("tic_tac_toe_2p", "--output", tmp_path, "--resume", "--set", "collection.num_iterations=3")
    assert done.exit_code == 0, done.stderr
    assert "normalize_rewards" not in file.read_text()


def test_network_of_any_kind_can_be_trained() -> None:
    chosen = ["network.kind=tower", "network.blocks=2", "network.squeeze_excite=true"]
    tower = training_settings(GAMES["connect_four_2p"], None, assigned(chosen)).network.network
    assert tower == NetworkSettings(kind="tower", blocks=2, squeeze_excite=True)
    config = GAMES["connect_four_2p"].replace(network=NetworkSettings(kind="m:f", options={"width": 3}))
    assert training_settings(config, None, {}).network.network == config.network
    with pytest.raises(BadSettings, match="'tower' has no hidden"):
        training_settings(HEARTS, None, {"network.kind": "tower", "network.hidden_dim": 64})


def test_option_of_a_network_leaves_the_others(tmp_path: Path) -> None:
    own = NetworkSettings(kind="m:f", options={"width": 3, "depth": 2})
    config, file = GAMES["connect_four_2p"].replace(network=own), tmp_path / "run.toml"
    changed = training_settings(config, None, {"network.options.depth": 5})
    assert changed.network.options == {"width": 3, "depth": 5}
    assert training_settings(config, None, {"network.options": {}}).network.options == {}
    file.write_text("[network]\nkind = 'm:g'\noptions = {size = 1}\n")
    assert training_settings(config, file, {}).network.options == {"size": 1}
    assert training_settings(config, file, {"network.kind": "mlp"}).network.network == NetworkSettings()


def test_options_on_the_command_line_override_toml(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[ppo]\nlearning_rate = 3e-4\ngamma = 0.9\n[collection.opponents]\nself = 0.5\nrandom = 0.5\n")
    settings = training_settings(HEARTS, file, {"ppo.gamma": 0.8, "collection.initial_policy": "random"})
    assert (settings.ppo.learning_rate, settings.ppo.gamma) == (3e-4, 0.8)
    assert settings.collection.opponents == {"self": 0.5, "random": 0.5}
    assert settings.collection.initial_policy == "random"


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("run.toml", "[ppo]\nlerning_rate = 1\n", r"Unknown setting 'ppo.lerning_rate' in .*run.toml"),
        ("run.toml", "[ppo]\ngamma = 7\n", r"ppo.gamma \(.*run.toml\): .*less than or equal to 1, not 7"),
        ("run.yaml", "ppo:\n  gamma: hot\n", r"ppo.gamma \(.*run.yaml\): .*valid number.*'hot'"),
        ("run.toml", "[ppo]\ngamma = true\n", r"ppo.gamma \(.*run.toml\): .*a number, which true"),
        ("run.toml", "[collection.opponents]\nself = true\n", r"collection.opponents \(.*\): .*a number"),
        ("run.yaml", "ppo: [\n", r"run.yaml cannot be read"),
        ("run.yaml", "- 1\n", r"run.yaml holds no tables"),
        ("run.toml", "ppo = 3\n", r"Unknown setting 'ppo' in"),
        ("run.toml", "[env]\nnormalize_rewards = false\n", r"env.normalize_rewards \(.*\): Input should be True"),
        ("run.toml", "[ppo]\nepochs = 2\nppo_epochs = 2\n", r"ppo.epochs and ppo.ppo_epochs in .* are the same"),
        ("run.toml", "[collection.opponents]\nself = -1.0\n", r"collection\.?\w* \(.*\): opponents are shares"),
    ],
)
def test_errors_name_the_key_and_the_file(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(BadSettings, match=complaint) as error:
        training_settings(HEARTS, file, {})
    assert error.value.hint


def test_run_is_trained_summed_up_and_resumed(tmp_path: Path) -> None:
    done = small(tmp_path / "run", "--json", "--seed", "3")
    summary = told(done)
    assert (summary["config"], summary["seed"], summary["iteration"]) == ("tic_tac_toe_2p", 3, 2)
    assert summary["final"][0]["games"] == 8
    assert "2/2  return" in done.stderr
    again = small(tmp_path / "run")
    assert again.exit_code == 2
    assert f"resume it: flyball train tic_tac_toe_2p --output {tmp_path / 'run'} --resume" in again.stderr
    longer = train("tic_tac_toe_2p", "--output", tmp_path / "run", "--resume", "--set", "collection.num_iterations=3")
    assert longer.exit_code == 0, longer.stderr
    assert "Going on after iteration 2" in longer.stderr
    rare = ("--set", "collection.num_iterations=3", "--set", "training.eval_frequency=5")
    whole = told(small(tmp_path / "whole", "--seed", "3", "--json", *rare))
    assert whole["model"] == json.loads((tmp_path / "run" / "state.json").read_text())["model"]
    rows = read_log(tmp_path / "whole" / "training_log.csv")
    assert [bool(row["eval_outcome"]) for row in rows] == [True, False, False, True], "the last is evaluated"


def test_a_run_leaves_its_curves_its_log_and_a_report(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert small(folder).exit_code == 0
    done = train("tic_tac_toe_2p", "--output", folder, "--resume", "--set", "collection.num_iterations=3")
    assert done.stdout.startswith("# tic_tac_toe_2p, seed 0\n\n3 iterations, 48 games")
    assert "| random | 8 |" in done.stdout
    assert (folder / "report.md").read_text().startswith(done.stdout)
    assert "<svg" in (folder / "curves.svg").read_text()
    assert [row["iteration"] for row in read_log(folder / "training_log.csv")] == ["0", "1", "2", "3"]
    board = EventAccumulator(str(folder / "tensorboard"))
    board.Reload()
    assert [point.step for point in board.Scalars("train/entropy")] == [1, 2, 3]
    bare = ("--set", "logging.tensorboard=false", "--set", 'logging.csv_log=""')
    assert small(tmp_path / "bare", *bare).exit_code == 0
    files = sorted(path.name for path in (tmp_path / "bare").iterdir())
    assert files == [".lock", "models", "report.md", "run.json", "state.json"]


def test_missing_device_or_package_is_noticed_before_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(small(tmp_path / "run", "--set", "logging.wandb=offline"), 1, "flyball[wandb]")
    refused(small(tmp_path / "run", "--set", "training.device=cuda"), 2, "training.device: cuda was asked for")
    assert not (tmp_path / "run").exists()


def test_folder_of_a_run_stands_for_its_best_model(tmp_path: Path) -> None:
    summary = told(small(tmp_path / "run", "--json"))
    words = ("eval", "--config", "tic_tac_toe_2p", "--games", "4", "--model")
    shown = told(invoke(*words, tmp_path / "run", "--config-file", settings_file(tmp_path)))
    assert shown["model"] == summary["best"]["model"]
    refused(invoke(*words, tmp_path), 2, "no training run")


def settings_file(folder: Path) -> Path:
    (folder / "flyball.toml").write_text("[games.tic_tac_toe_2p.network]\nhidden = [16]\n")
    return folder / "flyball.toml"


def test_hearts_is_trained_from_a_clone(tmp_path: Path) -> None:
    done = small(tmp_path, "--start", "bc", "--set", "cloning.rounds=1", "--set", "cloning.games_per_round=16",
                 game="hearts_4p")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "cloning 1/1" in done.stderr
    assert "against heuristic" in done.stderr


def test_run_with_a_clone_resumes_without_its_experience(tmp_path: Path) -> None:
    file, folder = tmp_path / "games.jsonl", tmp_path / "run"
    words = ("experience", "export", file, "--game", "tic_tac_toe_2p", "--games", "8", "--model", "random")
    assert invoke(*words).exit_code == 0
    begun = small(folder, "--start", "bc", "--set", f'cloning.experience="{file}"')
    assert begun.exit_code == 0, begun.stderr
    file.unlink()
    longer = train("tic_tac_toe_2p", "--output", folder, "--resume", "--set", "collection.num_iterations=3")
    assert longer.exit_code == 0, longer.stderr


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    error = small(tmp_path, "--set", 'logging.csv_log="models"')
    assert (error.exit_code, f"{tmp_path / 'models'} cannot be" in error.stderr) == (2, True)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "training_log.csv").write_text("anything else\n")
    error = small(tmp_path / "foreign")
    assert error.exit_code == 2
    assert not (tmp_path / "foreign" / "run.json").exists()


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("hearts_5p",), 4, "Did you mean hearts_4p"),
        (("hearts_4p", "--set", "ppo.gamma"), 2, "has no value"),
        (("hearts_4p", "--resume"), 2, "holds no run"),
        (("hearts_4p", "--set", "backend=search", "--start", "random"), 2, "'hearts' cannot be searched"),
        (("hearts_4p", "--set", "network.obs_dim=3"), 2, "hearts_4p has 270"),
        (("tic_tac_toe_2p", "--set", "env.reward_mode=shaped"), 2, "rewarded at its end"),
        (("tic_tac_toe_2p", "--set", 'training.eval_opponent="heuristic"'), 2, "no bot 'heuristic'"),
        (
            ("hearts_4p", "--set", "collection.opponents={bob=1.0}"),
            2,
            "collection.opponents: hearts_4p has no bot 'bob'",
        ),
        (
            ("hearts_4p", "--start", "bc", "--set", "cloning.teacher=bob"),
            2,
            "cloning.teacher: hearts_4p has no bot 'bob'",
        ),
        (("hearts_4p", "--start", "bc", "--set", "cloning.experience=no.jsonl"), 2, "no.jsonl cannot be read"),
    ],
)
def test_what_cannot_be_done_says_so(tmp_path: Path, words: tuple[str, ...], code: int, complaint: str) -> None:
    refused(train(*words, "--output", tmp_path / "run"), code, complaint)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "change",
    ["network.hidden=[32]", "cloning.rounds=3", 'env.game="hex"', "collection.initial_policy=behavioral_clone"],
)
def test_a_run_keeps_what_it_began_with(tmp_path: Path, change: str) -> None:
    folder = tmp_path / "run"
    assert small(folder, "--seed", "3").exit_code == 0
    before = {path: path.read_bytes() for path in folder.rglob("*.json")}
    error = train("tic_tac_toe_2p", "--output", folder, "--resume", "--set", change)
    assert (error.exit_code, change.partition("=")[0] in error.stderr) == (2, True)
    assert {path: path.read_bytes() for path in folder.rglob("*.json")} == before
    same = ("--resume", "--set", "network.hidden=[16]", "--set", "ppo.gamma=0.9", "--set", "network.obs_dim=27")
    assert train("tic_tac_toe_2p", "--output", folder, *same).exit_code == 0


def test_one_process_at_a_time_trains_in_a_folder(tmp_path: Path) -> None:
    assert small(tmp_path).exit_code == 0
    with TrainingFolder(tmp_path).held():
        error = train("tic_tac_toe_2p", "--output", tmp_path, "--resume", "--set", "collection.num_iterations=3")
    assert (error.exit_code, "Another process trains in" in error.stderr) == (1, True)
    assert json.loads((tmp_path / "run.json").read_text())["settings"]["collection"]["num_iterations"] == 2
    nowhere = small(tmp_path / "run.json" / "run")
    assert (nowhere.exit_code, "cannot be written" in nowhere.stderr) == (2, True)


def test_unreadable_or_damaged_run_file_is_told_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    for make, said in ((file.mkdir, "cannot be read: Is a directory"), (damage, "is damaged or of another version")):
        make() if make == file.mkdir else make(file)
        done = train("hearts_4p", "--output", tmp_path, "--resume")
        assert (done.exit_code, done.stderr.count("\n")) == (2, 2)
        assert f"run.json {said}" in done.stderr


def damage(file: Path) -> None:
    file.rmdir()
    file.write_text('{"config"')


def test_settings_are_shown_with_what_they_mean() -> None:
    shown = train("hearts_4p", "--settings", "--json", "--start", "random")
    assert json.loads(shown.stdout) == by_key(training_settings(HEARTS, None, {"collection.initial_policy": "random"}))
    table = train("hearts_4p", "--settings").stdout
    assert "pip install 'flyball[wandb]'" in table, "brackets are no markup"
    assert "divides the policy's logits" in table
    assert [key for key, meaning in MEANINGS.items() if not meaning] == []


def test_train_refuses_other_backends_than_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYBALL_GAMES__TIC_TAC_TOE_2P__BACKEND", "tabular_backend:TABULAR")
    error = train("tic_tac_toe_2p", "--output", tmp_path / "run")
    assert error.exit_code == 2
    assert "policy_gradient and search only" in error.stderr
    assert "flyball up" in error.stderr
    assert small(tmp_path / "run", "--set", "backend=policy_gradient").exit_code == 0


def test_search_is_chosen_for_a_run_or_by_the_configuration(tmp_path: Path) -> None:
    config = GAMES["connect_four_2p"]
    search = training_settings(config, None, {"backend": "search", "search.simulations": 16})
    assert (search.backend, search.search.simulations) == ("search", 16)
    assert search.collection.opponents == {SELF: 1.0}, "what was found for PPO does not suit search"
    own = config.replace(backend="search", search=SearchSettings(simulations=8), learning_rate=2e-3, replay_rows=5000)
    chosen = training_settings(own, None, {})
    assert chosen.backend == "search"
    found = chosen.search
    assert (found.simulations, found.learning_rate, found.epochs, found.replay_rows) == (8, 2e-3, 2, 5000)
    file = tmp_path / "run.toml"
    file.write_text("backend = 'policy_gradient'\n[ppo]\ngamma = 0.9\n")
    assert training_settings(own, file, {}).ppo.gamma == 0.9


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"backend": "search", "ppo.gamma": 0.9}, r"ppo.gamma is a setting of backend policy_gradient"),
        (
            {"backend": "policy_gradient", "search.simulations": 8},
            r"search.simulations is a setting of backend search, and this run has",
        ),
        ({"backend": "serch"}, r"backends policy_gradient and search only; .* 'serch'"),
        ({"backend": "search", "search.simulations": 1}, r"search.simulations.*greater than or equal to 2"),
        ({"backend": "search", "search.simulation": 8}, r"Unknown setting 'search.simulation'"),
    ],
)
def test_settings_of_another_backend_are_refused(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadSettings, match=complaint) as error:
        training_settings(GAMES["connect_four_2p"], None, values)
    assert error.value.hint


def test_run_by_search_leaves_curves_log_and_a_model_that_plays(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = small(folder, "--set", "backend=search", "--set", "search.simulations=4", "--json")
    assert done.exit_code == 0, done.stderr
    assert re.search(r"2/2  return .*divergence \d", done.stderr)
    assert "replayed" not in json.loads(done.stdout)
    longer = train("tic_tac_toe_2p", "--output", folder, "--resume", "--set", "collection.num_iterations=3")
    assert longer.exit_code == 0, longer.stderr
    rows = read_log(folder / "training_log.csv")
    assert [bool(row["divergence"]) for row in rows] == [False, True, True, True]
    assert {row["kl_div"] for row in rows} == {""}
    board = EventAccumulator(str(folder / "tensorboard"))
    board.Reload()
    assert [point.step for point in board.Scalars("train/divergence")] == [1, 2, 3]
    error = train("tic_tac_toe_2p", "--output", folder, "--resume", "--set", "backend=policy_gradient")
    assert (error.exit_code, "backend is 'search', and the run has begun with it" in error.stderr) == (2, True)
    words = ("eval", "--config", "tic_tac_toe_2p", "--games", "4", "--config-file", settings_file(tmp_path))
    for more in ((), ("--search", "4")):
        told(invoke(*words, "--model", folder, *more))


def test_lines_on_a_terminal_do_not_break_the_bar(tmp_path: Path) -> None:
    sets = [word for setting in SMALL for word in ("--set", setting)]
    command = [
        sys.executable,
        "-m",
        "flyball.app.cli",
        "train",
        "tic_tac_toe_2p",
        "--output",
        str(tmp_path / "run"),
        *sets,
    ]
    options = {"stdout": subprocess.PIPE, "env": {**os.environ, "TERM": "xterm"}}
    with on_a_terminal(command, **options) as process:
        shown = process.communicate(timeout=120)[0].decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    for line in ("Run folder", "1/2  return", "The report:"):
        assert re.search(rf"[\r\n]{line}", plain), plain
    assert "training ━" in plain
