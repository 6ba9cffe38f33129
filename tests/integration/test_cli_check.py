"""``flyball check game``: sound and broken games, by key and by game string, with the settings beside them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.cli.group import main
from app.games import open_table

EXAMPLES = Path(__file__).parents[1] / "examples"
BROKEN = """
from flyball import Game
from nim import Nim

print("a game may print")

class Sore(Nim):
    def returns(self):
        return (1, 1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file in ("nim.py", "nim.toml", "subtraction.py"):
        shutil.copy(EXAMPLES / file, tmp_path)
    (tmp_path / "sore.py").write_text(BROKEN)
    return tmp_path


def checked(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, because modules of one folder must not serve another."""
    command = [sys.executable, "-m", "app.cli", "--config-file", str(folder / "nim.toml"), "check", "game", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["nim_2p", "nim:Nim"])
def test_check_of_nim_finds_nothing(folder: Path, name: str) -> None:
    done = checked(folder, name)
    assert (done.returncode, done.stdout) == (0, f"game {name}: no faults found\n"), done.stderr


def test_check_of_a_broken_game_says_where_and_what_to_do(folder: Path) -> None:
    done = checked(folder, "sore:Sore")
    assert done.returncode == 2
    what, hint, summary = done.stdout.splitlines()
    assert what.startswith("play: sore:Sore: returns() returned (1, 1) after move ")
    assert "of the game of seed " in what
    assert hint.startswith("    Outcomes are in [-1, 1] and their sum is 0")
    assert summary == "game sore:Sore: 1 fault found"
    assert "a game may print" in done.stderr


def test_check_as_json_is_one_object(folder: Path) -> None:
    done = checked(folder, "sore:Sore", "--json")
    written = json.loads(done.stdout)
    assert (done.returncode, written["checked"], written["ok"]) == (2, "game sore:Sore", False)
    assert [finding.keys() for finding in written["findings"]] == [{"where", "what", "hint"}]


def test_check_imports_what_the_settings_name(folder: Path) -> None:
    settings = folder / "nim.toml"
    settings.write_text('import = ["subtraction"]\n' + settings.read_text())
    done = checked(folder, "my_subtraction(heap=7)", "--json")
    assert json.loads(done.stdout)["ok"], done.stdout
    settings.write_text(settings.read_text().replace('"subtraction"', '"substraction"'))
    refused = checked(folder, "my_subtraction(heap=7)", "--json")
    assert "The module 'substraction' cannot be imported" in json.loads(refused.stdout)["findings"][0]["what"]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["nim_3p"], 4, "There is no configuration 'nim_3p'"),
        (["tic_tac_to"], 2, "OpenSpiel has no game 'tic_tac_to'"),
        (["maedn(players=4)"], 2, "is played by 4"),
        (["no_such_module:Game"], 2, "cannot be imported"),
    ],
)
def test_name_that_leads_to_no_game_is_refused(words: list[str], code: int, text: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--run", str(tmp_path), "check", "game", *words])
    assert done.exit_code == code
    assert text in " ".join(done.output.split())


def test_players_of_a_game_string_are_an_option(tmp_path: Path) -> None:
    words = ["--run", str(tmp_path), "check", "game", "maedn(players=4)", "--players", "4", "--games", "2"]
    assert CliRunner().invoke(main, words).exit_code == 0


def test_known_configuration_is_checked_with_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr("app.games.game_check.open_table", lambda *given: opened.append(given) or open_table(*given))
    done = CliRunner().invoke(main, ["--run", str(tmp_path), "check", "game", "connect_four_2p", "--games", "2"])
    assert done.exit_code == 0
    assert {config.engine for config, _ in opened} == {"flyball"}
