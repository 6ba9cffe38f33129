"""The user's own trainers: functions, commands, failures and examples."""

import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from own_training import (
    EXAMPLES,
    GOOD,
    MODEL,
    OPEN,
    RESULT,
    TIC_TAC_TOE,
    commanded,
    first_model,
    folders,
    score_against_random,
    stored,
    train_often,
    train_spec,
)
from pydantic import ValidationError
from selfplay_rig import ignore
from structlog.testing import capture_logs

from app.config import PipelineSettings
from app.core import UnknownPlugin
from app.learning.network import bytes_to_parameters, parameters_to_bytes
from app.learning.own_trainers import (
    BadResult,
    CommandFailed,
    TrainerExited,
    read_model,
    train_by_command,
    train_by_function,
)
from app.learning.training import BadProgress, DiscardedUpdate, Training, UnfitModel
from app.store import FileStore, get_checkpoint, put_checkpoint
from app.train.game import UnfitSettings, run_game
from daemons.training import train_job


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_configurations_with_unfit_trainers_are_refused() -> None:
    with pytest.raises(ValidationError, match="leave one of them out"):
        TIC_TAC_TOE.replace(trainer="mine:train", train_command=("python", "mine.py"))
    with pytest.raises(UnfitSettings, match="has a trainer of its own"):
        run_game(TIC_TAC_TOE.replace(trainer="mine:train"), PipelineSettings())
    assert train_job(TIC_TAC_TOE) == "app.learning.jobs:train"
    assert train_job(TIC_TAC_TOE.replace(trainer="mine:train")).endswith(":train_by_function")
    assert train_job(TIC_TAC_TOE.replace(train_command=("a",))).endswith(":train_by_command")


@pytest.mark.parametrize("changes", [{"trainer": ""}, {"train_command": ()}, {"train_command": ("",)}])
def test_configuration_with_empty_trainer_is_refused(changes: dict) -> None:
    with pytest.raises(ValidationError):
        TIC_TAC_TOE.replace(**changes)


@pytest.fixture
def training(root: Path) -> Training:
    return Training(train_spec(root, TIC_TAC_TOE, first_model(root, TIC_TAC_TOE), games=8), ignore)


@pytest.fixture
def function(root: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a runner of the job that takes the trainer's source."""
    monkeypatch.syspath_prepend(root.parent)

    def run(body: str) -> dict:
        (root.parent / "mine_function.py").write_text(
            "from flyball import Training\ndef train(spec, report):\n    training = Training(spec, report)\n" + body
        )
        sys.modules.pop("mine_function", None)
        config = TIC_TAC_TOE.replace(trainer="mine_function:train")
        return train_by_function(train_spec(root, config, first_model(root, config), games=8), ignore)

    yield run
    sys.modules.pop("mine_function", None)


def test_function_trainer_returns_its_model(function, root: Path) -> None:
    result = function("    return training.finish(training.parameters(), loss=1.0)")
    assert result["metrics"]["loss"] == 1.0
    assert get_checkpoint(FileStore(root), result["model"]).manifest.step == 1


FUNCTIONS = {
    "nothing returned": ("    training.finish(training.parameters())", BadResult, "returned None"),
    "base returned": (
        "    return training.finish(training.parameters()) | {'model': training.base.model}",
        BadResult,
        "not a successor",
    ),
    "discarded": ("    training.discard('it overfits')", DiscardedUpdate, "it overfits"),
    "exited": ("    raise SystemExit(3)", TrainerExited, "3"),
    "raised": ("    raise ZeroDivisionError('mine')", ZeroDivisionError, "mine"),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_function_trainer_that_fails_is_told_apart(function, case: str) -> None:
    body, error, message = FUNCTIONS[case]
    with pytest.raises(error, match=message):
        function(body)


def test_function_trainer_that_is_missing_is_refused(root: Path) -> None:
    config = TIC_TAC_TOE.replace(trainer="no_such_module:train")
    with pytest.raises(UnknownPlugin, match="no_such_module"):
        train_by_function(train_spec(root, config, first_model(root, config), games=8), ignore)


def test_command_gets_request_base_and_rows(root: Path) -> None:
    keep = """
import os, shutil
shutil.copytree(folder, "kept")
Path("env").write_text(os.getcwd() + chr(10) + sys.executable)
"""
    spec = commanded(root, GOOD + keep)
    train_by_command(spec, ignore)
    kept, training = root.parent / "kept", Training(spec, ignore)
    request = json.loads((kept / "request.json").read_text())
    wanted = {
        "format": 1,
        "config_key": "tic_tac_toe_2p",
        "game": TIC_TAC_TOE.game,
        "players": 2,
        "obs_size": 27,
        "actions": 9,
        "network": TIC_TAC_TOE.network.model_dump(mode="json"),
        "rows": len(training.rows),
        "base_model": spec["base_model"],
        "step": 0,
        "seed": spec["seed"],
        "learning_rate": TIC_TAC_TOE.learning_rate,
        "epochs": TIC_TAC_TOE.epochs,
        "options": {},
        "device": "cpu",
        "precision": "float32",
    }
    assert request == wanted | {"paths": request["paths"]}
    assert all(Path(path).is_absolute() for path in request["paths"].values())
    rows = dict(np.load(kept / "rows.npz"))
    columns = training.rows.columns() | {"advantage": training.advantages()}
    assert rows.keys() == columns.keys()
    assert all(np.array_equal(rows[name], columns[name]) for name in rows)
    assert all(rows[name].dtype == columns[name].dtype for name in rows)
    base = bytes_to_parameters((kept / "base.safetensors").read_bytes())
    npz = np.load(kept / "base.npz")
    assert all(np.array_equal(npz[name], tensor.numpy()) for name, tensor in base.items())
    place, program = (root.parent / "env").read_text().split("\n")
    assert Path(place) == root.parent
    assert Path(program).parent == Path(sys.executable).parent


def test_command_may_write_either_format_of_model(root: Path) -> None:
    spec = commanded(root, OPEN + 'model["value_head.bias"] += 1\n' + MODEL + RESULT)
    result = train_by_command(spec, ignore)
    manifest = get_checkpoint(FileStore(root), result["model"]).manifest
    assert (manifest.parent, manifest.step) == (spec["base_model"], 1)
    assert result["metrics"]["policy_loss"] == 0.25
    assert folders(root) == []
    save = 'from safetensors.numpy import save_file\nsave_file(model, paths["model"])\n'
    assert train_by_command(commanded(root, OPEN + save + RESULT), ignore)["step"] == 1


def test_command_progress_is_reported_and_the_rest_logged(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = ['{"epoch": 1, "epochs": 2, "loss": 0.5}', "hello", "[1, 2]", '{"epochs": 3}', "{broken", "é"]
    said = "".join(f"print({line!r})\n" for line in lines) + "print('warned', file=sys.stderr)\n"
    heard: list[dict] = []
    train_by_command(commanded(root, said + GOOD), heard.append)
    assert heard == [{"epoch": 1, "epochs": 2, "metrics": {"loss": 0.5}}]
    logged = capfd.readouterr().err.splitlines()
    assert [line for line in logged if line != "warned"] == lines[1:]
    assert "warned" in logged


FAILURES = {
    "exit code": ("sys.exit(3)", CommandFailed, "python mine.py exited with code 3"),
    "traceback": ("raise KeyError('mine')", CommandFailed, "(?s)exited with code 1.*KeyError: 'mine'"),
    "signal": ("import os\nos.kill(os.getpid(), 11)", CommandFailed, "was ended by SIGSEGV"),
    "good but exit code": (GOOD + "sys.exit(1)", CommandFailed, "code 1"),
    "nothing": ("", BadResult, "wrote no result.json"),
    "model alone": (OPEN + MODEL, BadResult, "wrote no result.json"),
    "result alone": (OPEN + RESULT, BadResult, "neither model.safetensors nor model.npz"),
    "two models": (GOOD + 'Path(paths["model"]).touch()', BadResult, "both"),
    "cut result": (OPEN + MODEL + 'Path(paths["result"]).write_text(\'{"met\')', BadResult, "not JSON"),
    "result in binary": (OPEN + MODEL + 'Path(paths["result"]).write_bytes(bytes([255]))', BadResult, "not JSON"),
    "result without metrics": (OPEN + MODEL + 'Path(paths["result"]).write_text("{}")', BadResult, "result.json is"),
    "result of a list": (OPEN + MODEL + 'Path(paths["result"]).write_text("[]")', BadResult, "result.json is"),
    "cut model": (OPEN + RESULT + 'Path(paths["model_npz"]).write_bytes(b"PK")', BadResult, "model.npz cannot be read"),
    "empty model": (OPEN + RESULT + 'Path(paths["model_npz"]).touch()', BadResult, "model.npz cannot be read"),
    "bare array": (OPEN + RESULT + 'np.save(open(paths["model_npz"], "wb"), np.zeros(1))', BadResult, "cannot be read"),
    "objects": (OPEN + RESULT + 'np.savez(paths["model_npz"], a=np.array([{}]))', BadResult, "cannot be read"),
    "cut safetensors": (OPEN + RESULT + 'Path(paths["model"]).write_bytes(b"12345678")', BadResult, "cannot be read"),
    "foreign tensor": (OPEN + 'model["more"] = model["value_head.bias"]' + MODEL + RESULT, UnfitModel, "more"),
    "shape": (OPEN + 'model["value_head.bias"] = np.zeros(2, np.float32)' + MODEL + RESULT, UnfitModel, "value_head"),
    "type": (OPEN + "model = {k: v.astype(float) for k, v in model.items()}" + MODEL + RESULT, UnfitModel, "float64"),
    "nan": (OPEN + 'model["value_head.bias"][:] = np.nan' + MODEL + RESULT, DiscardedUpdate, "NaN"),
    "discard": (OPEN + 'Path(paths["result"]).write_text(\'{"discard": "too far"}\')', DiscardedUpdate, "too far"),
    "metric is nan": (GOOD.replace("0.25", "float('nan')"), DiscardedUpdate, "policy_loss is nan"),
    "metric is text": (GOOD.replace("0.25", "'low'"), BadProgress, "policy_loss"),
    "progress is nan": ('print(\'{"epoch": 1, "epochs": 1, "loss": NaN}\')' + GOOD, DiscardedUpdate, "loss is nan"),
    "progress repeated": ('print(\'{"epoch": 1, "epochs": 2}\\n\' * 2)' + GOOD, BadProgress, "Epoch 1 of 2"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_command_that_fails_stores_nothing(root: Path, case: str) -> None:
    script, error, message = FAILURES[case]
    spec = commanded(root, script)
    before = stored(root)
    with pytest.raises(error, match=message):
        train_by_command(spec, ignore)
    assert stored(root) == before
    assert folders(root) == []


@pytest.mark.parametrize("name", ["model.npz", "model.safetensors"])
def test_damaged_model_file_is_refused_or_read(training: Training, tmp_path: Path, name: str) -> None:
    """Random damage and truncation raise only ``BadResult``."""
    arrays = {name: tensor.numpy() for name, tensor in training.parameters().items()}
    if name == "model.npz":
        np.savez_compressed(tmp_path / name, **arrays)
    else:
        (tmp_path / name).write_bytes(training.base.parameters)
    whole, rng, refused = (tmp_path / name).read_bytes(), random.Random(1), 0
    for _ in range(300):
        damaged = bytearray(whole[: rng.choice((len(whole), rng.randrange(len(whole))))])
        for _ in range(min(3, len(damaged))):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        (tmp_path / name).write_bytes(damaged)
        try:
            read_model(tmp_path)
        except BadResult:
            refused += 1
    assert refused > 100


def test_command_that_is_missing_is_named(root: Path) -> None:
    spec = commanded(root, GOOD)
    spec["config"] = TIC_TAC_TOE.replace(train_command=("./no-such-program",)).model_dump(mode="json")
    with pytest.raises(CommandFailed, match=r"could not be started: No such file or directory: ./no-such-program"):
        train_by_command(spec, ignore)


def test_command_with_relative_program_runs_beside_settings(root: Path) -> None:
    spec = commanded(root, GOOD)
    program = root.parent / "train.sh"
    program.write_text('#!/bin/sh\nexec python "$(dirname "$0")/mine.py" "$1"\n')
    program.chmod(0o755)
    spec["config"] = TIC_TAC_TOE.replace(train_command=("./train.sh",)).model_dump(mode="json")
    assert train_by_command(spec, ignore)["step"] == 1


def test_error_of_a_talkative_command_fits_into_an_event(root: Path) -> None:
    with pytest.raises(CommandFailed) as failed:
        train_by_command(commanded(root, "sys.stderr.write('x' * 1_000_000 + 'end'); sys.exit(1)"), ignore)
    assert len(str(failed.value)) < 2000
    assert "end" in str(failed.value)


def test_base_in_a_type_that_numpy_lacks_comes_as_safetensors(root: Path) -> None:
    """A bfloat16 model has no ``base.npz``, because NumPy lacks the type."""
    script = OPEN.replace('model = dict(np.load(paths["base_npz"]))', "") + (
        'assert "base_npz" not in paths\nPath(paths["model"]).write_bytes(Path(paths["base"]).read_bytes())\n' + RESULT
    )
    spec = commanded(root, script)
    store, base = FileStore(root), get_checkpoint(FileStore(root), spec["base_model"])
    halves = {name: tensor.bfloat16() for name, tensor in bytes_to_parameters(base.parameters).items()}
    spec["base_model"] = put_checkpoint(store, base.manifest, parameters_to_bytes(halves), None)
    result = train_by_command(spec, ignore)
    kept = bytes_to_parameters(get_checkpoint(store, result["model"]).parameters)
    assert {tensor.dtype for tensor in kept.values()} == {torch.bfloat16}


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"trainer": "trainer_torch:train"}, {"train_command": ("python", "trainer_numpy.py")}]
)
def test_example_trainer_beats_random_more_than_before(
    root: Path, monkeypatch: pytest.MonkeyPatch, changes: dict
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    config = TIC_TAC_TOE.replace(learning_rate=2e-3, **changes)
    first, last = train_often(root, config, trainings=24)
    assert score_against_random(root, config, last) > score_against_random(root, config, first) + 0.2


def test_own_trainer_warns_that_processes_do_not_apply(root: Path) -> None:
    with capture_logs() as logs:
        train_by_command(commanded(root, GOOD, processes=2), ignore)
        train_by_command(commanded(root, GOOD), ignore)
    (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert "processes_per_training does not apply" in warning["event"]
    assert warning["trainer"] == "python"
