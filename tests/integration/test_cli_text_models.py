"""``flyball train``, ``eval`` and ``export`` of a language model."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from commands import invoke, succeeded
from language_models import passes_canary

from flyball.app.language.generator import get_adapter
from flyball.app.store import FileStore
from flyball.app.train.text import read_run

KEY = "tic_tac_toe_text_2p"
SETTINGS = {
    "iterations": 1,
    "evaluation_games": 2,
    "final_games": 2,
    "selfplay.games_per_request": 8,
    "language.lessons": 128,
    "language.base_layers": 1,
    "language.base_width": 16,
    "language.base_heads": 1,
    "language.rank": 2,
    "language.group_games": 4,
}


def flyball(run: Path, *words: str) -> Result:
    return invoke(*words, run=run)


def train(folder: Path, **settings: object) -> Path:
    words = [word for name, value in (SETTINGS | settings).items() for word in ("--set", f"{name}={value}")]
    succeeded(flyball(folder.parent / "run", "train", KEY, "--output", str(folder), *words))
    return folder


def export(run: Path, model: Path, folder: Path) -> dict[str, str]:
    done = succeeded(flyball(run, "export", str(model), str(folder), "--json"))
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("trained") / "text")


def test_text_model_of_a_training_is_evaluated(trained: Path) -> None:
    done = flyball(trained.parent / "run", "eval", "--model", str(trained), "--config", KEY, "--games", "4", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["model"] == read_run(trained).model


def test_exported_text_model_answers_as_trained(trained: Path, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    paths = export(tmp_path / "run", trained, tmp_path / "exported")
    assert paths["model"] == read_run(trained).model
    assert AutoTokenizer.from_pretrained(paths["base"]).encode("Your column:")
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(paths["base"]), paths["folder"]).eval()
    assert passes_canary(loaded, get_adapter(FileStore(trained / "models"), paths["model"]))


def test_exported_adapter_of_an_own_base_model_names_it(trained: Path, tmp_path: Path) -> None:
    own = export(tmp_path / "run", trained, tmp_path / "first")["base"]
    other = train(tmp_path / "other", **{"language.base": own})
    paths = export(tmp_path / "run", other, tmp_path / "second")
    assert paths["base"] == own
    assert json.loads(Path(paths["folder"], "adapter_config.json").read_text())["base_model_name_or_path"] == own
    assert [path.name for path in (tmp_path / "second").iterdir()] == [Path(paths["folder"]).name]


def test_export_without_the_right_base_model_names_the_cure(trained: Path, tmp_path: Path) -> None:
    file, run = tmp_path / "adapter", tmp_path / "run"
    file.write_bytes(FileStore(trained / "models").get(read_run(trained).model))
    done = flyball(run, "export", str(file), str(tmp_path / "exported"))
    assert done.exit_code != 0
    assert "the folder of its training instead of a file" in done.stderr
    own = export(run, trained, tmp_path / "first")["base"]
    run.mkdir()
    (run / "flyball.toml").write_text(f"[games.{KEY}.language]\nbase = {json.dumps(own)}\n")
    done = flyball(run, "export", str(file), str(tmp_path / "exported"))
    assert done.exit_code != 0
    assert "MODEL_MISMATCH: the base model" in done.stderr
    assert not (tmp_path / "exported").exists()
