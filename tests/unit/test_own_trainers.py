"""The user's own trainers: functions, commands, the class ``Training``, failures and examples."""

import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from own_training import (
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

from flyball.app.config import PipelineSettings
from flyball.app.core import UnknownPlugin
from flyball.app.engine.folder_command import BadResult, CommandFailed
from flyball.app.learning.network import bytes_to_parameters, parameters_to_bytes
from flyball.app.learning.own_trainers import (
    TrainerExited,
    read_model,
    train_by_command,
    train_by_function,
)
from flyball.app.learning.samples import advantages
from flyball.app.learning.training import BadProgress, DiscardedUpdate, Training, UnfitModel
from flyball.app.store import FileStore, get_checkpoint, put_checkpoint
from flyball.app.train.game import UnfitSettings, run_game
from flyball.daemons.training import train_job


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_configurations_with_unfit_trainers_are_refused() -> None:
    with pytest.raises(ValidationError, match="leave one of them out"):
        TIC_TAC_TOE.replace(trainer="mine:train", train_command=("python", "mine.py"))
    with pytest.raises(UnfitSettings, match="has a trainer of its own"):
        run_game(TIC_TAC_TOE.replace(trainer="mine:train"), PipelineSettings())
    assert train_job(TIC_TAC_TOE) == "flyball.app.learning.jobs:train"
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


def test_function_trainer_may_count_its_rows_by_numpy(function) -> None:
    body = """    import numpy
    return training.finish(training.parameters(), loss=1.0) | {"rows": numpy.int64(5)}"""
    assert function(body)["rows"] == 5


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
    game = {"config_key": "tic_tac_toe_2p", "game": TIC_TAC_TOE.game, "players": 2, "obs_size": 27, "actions": 9}
    about = {"network": TIC_TAC_TOE.network.model_dump(mode="json"), "options": {}, "rows": len(training.rows)}
    how = {"learning_rate": TIC_TAC_TOE.learning_rate, "epochs": TIC_TAC_TOE.epochs, "seed": spec["seed"], "step": 0}
    where = {"device": "cpu", "precision": "float32", "base_model": spec["base_model"], "paths": request["paths"]}
    assert request == {"format": 1, **game, **about, **how, **where}
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


def test_missing_or_talkative_command_is_named(root: Path) -> None:
    spec = commanded(root, GOOD)
    spec["config"] = TIC_TAC_TOE.replace(train_command=("./no-such-program",)).model_dump(mode="json")
    with pytest.raises(CommandFailed, match=r"could not be started: No such file or directory: ./no-such-program"):
        train_by_command(spec, ignore)
    with pytest.raises(CommandFailed) as failed:
        train_by_command(commanded(root, "sys.stderr.write('x' * 1_000_000 + 'end'); sys.exit(1)"), ignore)
    assert len(str(failed.value)) < 2000
    assert "end" in str(failed.value)


def test_command_with_relative_program_runs_beside_settings(root: Path) -> None:
    spec = commanded(root, GOOD)
    program = root.parent / "train.sh"
    program.write_text('#!/bin/sh\nexec python "$(dirname "$0")/mine.py" "$1"\n')
    program.chmod(0o755)
    spec["config"] = TIC_TAC_TOE.replace(train_command=("./train.sh",)).model_dump(mode="json")
    assert train_by_command(spec, ignore)["step"] == 1


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
def test_example_trainer_beats_random_more_than_before(root: Path, changes: dict) -> None:
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


def test_rows_of_two_shards_number_their_games_apart(root: Path) -> None:
    model = first_model(root, TIC_TAC_TOE)
    spec, other = train_spec(root, TIC_TAC_TOE, model, games=8), train_spec(root, TIC_TAC_TOE, model, games=5)
    training = Training({**spec, "shards": spec["shards"] + other["shards"]}, ignore)
    rows, (first, second) = training.rows, training.shards
    assert len(rows) == first.rows + second.rows
    assert np.array_equal(np.unique(rows.game), np.arange(13))
    assert {len(column) for column in rows.columns().values()} == {len(rows)}
    assert rows.mask[np.arange(len(rows)), rows.action].all()
    assert set(rows.temperature) == {1.0}
    expected = np.concatenate([advantages(shard, 0.9, 0.5) for shard in training.shards])
    assert np.array_equal(training.advantages(0.9, 0.5), expected)


def test_training_gives_and_keeps_parameters(training: Training, root: Path) -> None:
    state, base = training.network().state_dict(), training.parameters()
    assert state.keys() == base.keys()
    assert all(torch.equal(state[name], base[name]) for name in base)
    assert all(parameter.requires_grad for parameter in training.network().parameters())
    arrays = {name: np.asfortranarray(tensor.numpy()) for name, tensor in training.parameters().items()}
    model = training.finish(arrays)["model"]
    kept = bytes_to_parameters(get_checkpoint(FileStore(root), model).parameters)
    assert all(np.array_equal(kept[name].numpy(), array) for name, array in arrays.items())


def test_finish_stores_a_successor_of_the_base(training: Training, root: Path) -> None:
    parameters = {name: tensor + 1 for name, tensor in training.parameters().items()}
    result = training.finish(parameters, policy_loss=np.float32(0.5))
    found = get_checkpoint(FileStore(root), result["model"], optimizer=True)
    assert (found.manifest.parent, found.manifest.step, found.optimizer) == (training.base.model, 1, None)
    assert (result["parent"], result["step"], result["rows"]) == (training.base.model, 1, len(training.rows))
    assert result["metrics"].keys() == {"policy_loss", "seconds"}
    kept = bytes_to_parameters(found.parameters)
    assert all(torch.equal(kept[name], parameters[name]) for name in parameters)


CHANGES = {
    "missing": (lambda base: {k: v for k, v in base.items() if k != "value_head.bias"}, UnfitModel, "value_head.bias"),
    "unknown": (lambda base: base | {"more": torch.zeros(1)}, UnfitModel, "'more'"),
    "shape": (lambda base: base | {"value_head.bias": torch.zeros(2)}, UnfitModel, r"float32 \[2\], not float32 \[1\]"),
    "type": (lambda base: base | {"value_head.bias": np.zeros(1)}, UnfitModel, "float64"),
    "text": (lambda base: base | {"value_head.bias": np.array(["a"])}, UnfitModel, "not a tensor"),
    "nan": (lambda base: base | {"value_head.bias": torch.tensor([np.nan])}, DiscardedUpdate, "NaN"),
    "infinity": (lambda base: base | {"value_head.bias": torch.tensor([np.inf])}, DiscardedUpdate, "infinity"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_finish_with_wrong_tensors_stores_nothing(training: Training, root: Path, change: str) -> None:
    changed, error, message = CHANGES[change]
    before = stored(root)
    with pytest.raises(error, match=message):
        training.finish(changed(training.parameters()))
    assert stored(root) == before


@pytest.mark.parametrize(
    ("metrics", "error"),
    [
        ({"loss": float("nan")}, DiscardedUpdate),
        ({"loss": np.float32("inf")}, DiscardedUpdate),
        ({"loss": "0.1"}, BadProgress),
        ({"loss": None}, BadProgress),
        ({"loss": True}, BadProgress),
        ({"loss": 1e13}, BadProgress),
        ({f"loss{number}": 0.1 for number in range(100)}, BadProgress),  # one too many with ``seconds``
    ],
)
def test_finish_with_bad_metrics_stores_nothing(training: Training, root: Path, metrics: dict, error: type) -> None:
    before = stored(root)
    with pytest.raises(error):
        training.finish(training.parameters(), **metrics)
    assert stored(root) == before


def test_progress_reports_rising_epochs_with_metrics(root: Path) -> None:
    heard: list[dict] = []
    training = Training(train_spec(root, TIC_TAC_TOE, first_model(root, TIC_TAC_TOE), games=8), heard.append)
    training.progress(1, 2, loss=0.5)
    for epoch in (1, 3, 0):
        with pytest.raises(BadProgress):
            training.progress(epoch, 2)
    training.progress(2, 2)
    assert heard == [{"epoch": 1, "epochs": 2, "metrics": {"loss": 0.5}}, {"epoch": 2, "epochs": 2, "metrics": {}}]
