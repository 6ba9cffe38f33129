"""``flyball new``: the files that it writes, and refused names."""

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import Result
from commands import invoke, refused, succeeded

from flyball import app
from flyball.app.cli.new import EXAMPLES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "examples"


def new(*words: object) -> Result:
    return invoke("new", *words)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_new_writes_the_example_under_its_name(kind: str, tmp_path: Path) -> None:
    done = succeeded(new(kind, "king_hill", "--folder", tmp_path / "mine"))
    module = EXAMPLES[kind].module
    written = sorted(path.name for path in (tmp_path / "mine").iterdir())
    assert written == ["king_hill.py", "king_hill.toml", "test_king_hill.py"]
    for made in ("{}.py", "{}.toml", "test_{}.py"):
        text = (tmp_path / "mine" / made.format("king_hill")).read_text()
        assert module not in text
        original = (FOLDER / made.format(module)).read_text()
        assert len(text.splitlines()) == len(original.splitlines())
    tomllib.loads((tmp_path / "mine" / "king_hill.toml").read_text())
    assert f"  cd {tmp_path}/mine\n  python -m pytest test_king_hill.py\n" in done.stdout
    beside = "  python king_hill.py king_hill_run  # beside it\n" if kind == "participant" else ""
    assert done.stdout.endswith(f"  flyball --config-file king_hill.toml --run king_hill_run up\n{beside}")


def test_new_game_is_a_configuration_of_its_own(tmp_path: Path) -> None:
    new("game", "checked_hill", "--folder", tmp_path)
    settings = tomllib.loads((tmp_path / "checked_hill.toml").read_text())
    assert settings["configs"] == ["checked_hill_2p"]
    assert settings["games"]["checked_hill_2p"]["game"] == "checked_hill:CheckedHill"
    assert "class CheckedHill(Game):" in (tmp_path / "checked_hill.py").read_text()
    checked = invoke("--config-file", tmp_path / "checked_hill.toml", "check", "game", "checked_hill_2p")
    assert checked.exit_code == 0, checked.stdout


def test_new_controller_is_a_table_of_its_own(tmp_path: Path) -> None:
    new("controller", "king_hill", "--folder", tmp_path)
    tables = tomllib.loads((tmp_path / "king_hill.toml").read_text())["controllers"]
    assert [(name, table["use"]) for name, table in tables.items()] == [("king_hill", "king_hill:KingHill")]
    assert '"without king_hill"' in (tmp_path / "test_king_hill.py").read_text()


def test_new_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("kept")
    refused(new("network", "mine", "--folder", tmp_path), 2, "mine.toml exists already")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["kept"]


def test_new_game_with_the_name_of_ours_is_refused(tmp_path: Path) -> None:
    error = new("game", "connect_four", "--folder", tmp_path)
    assert (error.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "connect_four_2p is a configuration of Flyball's own" in error.stderr
    assert new("network", "connect_four", "--folder", tmp_path).exit_code == 0


NO_NAMES = ["", "Mine", "my-game", "2048", "a__b", "_a", "a_", "class", "x" * 41, "../x"]
TAKEN = ["random", "torch", "app", "flyball"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, "cannot be the name of a module") for name in NO_NAMES),
        *((name, f"Choose another name: my_{name}.") for name in TAKEN),
    ],
)
def test_new_refuses_what_cannot_name_a_game(name: str, message: str, tmp_path: Path) -> None:
    refused = new("game", name, "--folder", tmp_path)
    assert (refused.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert message in refused.stderr


def test_new_says_as_json_what_it_wrote(tmp_path: Path) -> None:
    written = json.loads(new("trainer", "mine", "--folder", tmp_path / "a b", "--json").stdout)
    assert written["source"] == f"{tmp_path}/a b/mine.py"
    assert written["next"] == [
        f"cd '{tmp_path}/a b'",
        "python -m pytest test_mine.py",
        "flyball --config-file mine.toml --run mine_run check backend tic_tac_toe_2p",
        "flyball --config-file mine.toml --run mine_run up",
    ]


def test_new_where_nothing_can_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(new("game", "mine", "--folder", tmp_path / "file" / "x"), 2, "cannot be")


def test_new_finds_examples_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"]["tests/examples"] == "flyball/app/examples"
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "examples").symlink_to(FOLDER)
    monkeypatch.setattr(app, "__file__", str(tmp_path / "app" / "__init__.py"))
    assert new("game", "mine", "--folder", tmp_path / "mine").exit_code == 0
