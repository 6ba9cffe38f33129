"""``flyball check``: sound and faulty objects, by key and by name."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import invoke

from flyball.app.games import open_table

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
    """Run the command in its own process.

    Otherwise modules that were imported from one test's folder would be used for the next.
    """
    command = [
        sys.executable,
        "-m",
        "flyball.app.cli",
        "--config-file",
        str(folder / "nim.toml"),
        "check",
        "game",
        *words,
    ]
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
    assert hint.startswith("    Their sum has to be 0: subtract their mean.")
    assert summary == "game sore:Sore: 1 fault found"
    assert "a game may print" in done.stderr
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
    assert "'substraction'" in json.loads(refused.stdout)["findings"][0]["what"]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["nim_3p"], 4, "There is no configuration 'nim_3p'"),
        (["tic_tac_to"], 2, "OpenSpiel has no game 'tic_tac_to'"),
        (["maedn(players=4)", "--players", "3"], 2, "is played by 4"),
        (["no_such_module:Game"], 2, "cannot be imported"),
    ],
)
def test_name_that_leads_to_no_game_is_refused(words: list[str], code: int, text: str, tmp_path: Path) -> None:
    done = invoke("check", "game", *words, run=tmp_path)
    assert done.exit_code == code
    assert text in " ".join(done.output.split())


def test_players_of_a_game_string_are_an_option(tmp_path: Path) -> None:
    words = ["--run", str(tmp_path), "check", "game", "maedn(players=4)", "--players", "4", "--games", "2"]
    assert invoke(*words).exit_code == 0


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("kuhn_poker", ["outcomes seen: -2 to 2 (-1 to 1 in training)", "12 of 12 states seen are told apart"]),
        ("tiny_bridge_4p", ["in training)", "states seen are told apart"]),  # a game, though it looks like a key
        ("leduc_poker(players=3)", ["in training)", "states seen are told apart"]),
    ],
)
def test_check_of_openspiels_games_shows_what_was_seen(name: str, lines: list[str], tmp_path: Path) -> None:
    result = invoke("check", "game", name, run=tmp_path)
    assert result.exit_code == 0, result.output
    for line in lines:
        assert line in result.stderr


@pytest.mark.parametrize("command", [("config", "check"), ("train", "team_2p"), ("check", "game", "team_2p"), ("up",)])
def test_cooperative_game_is_refused_by_each_command(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text('configs = ["team_2p"]\n[games.team_2p]\ngame = "hanabi"\nplayers = 2\n')
    result = invoke(*command, run=tmp_path)
    assert result.exit_code == 2
    assert "'hanabi' is cooperative" in result.output


def test_known_configuration_is_checked_with_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr(
        "flyball.app.games.game_check.open_table", lambda *given: opened.append(given) or open_table(*given)
    )
    done = invoke("check", "game", "connect_four_2p", "--games", "2", run=tmp_path)
    assert done.exit_code == 0
    assert {config.engine for config, _ in opened} == {"flyball"}


DEAF = """
from torch import nn

class Deaf(nn.Module):
    def __init__(self, shape, options):
        super().__init__()
        self.policy, self.value = nn.Linear(shape.features, shape.actions), nn.Linear(shape.features, 1)

    def forward(self, obs):
        return self.policy(obs).detach(), self.value(obs).squeeze(-1)
"""
GAGGED = """
from dataclasses import replace

from flyball.app.backends import POLICY_GRADIENT

MINE = replace(POLICY_GRADIENT, name="gagged", train="gagged:nowhere")
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of settings that name the example's network. Two modules beside them have a fault each."""
    for file in ("conv_network.py", "own_backend.py"):
        shutil.copy(EXAMPLES / file, tmp_path)
    shutil.copy(EXAMPLES / "conv_network.toml", tmp_path / "flyball.toml")
    (tmp_path / "deaf.py").write_text(DEAF)
    (tmp_path / "gagged.py").write_text(GAGGED)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "where", "what"),
    [
        (("network", "connect_four_2p"), None, ""),
        (("network", "tower", "--config", "othello_2p"), None, ""),
        (("network", "deaf:Deaf"), "policy.weight", "no gradient reaches it"),
        (("network", "tower", "--config", "oh_hell_3p"), "factory", "needs planes"),
        (("backend", "own_backend:FRESH"), None, ""),
        (("backend", "gagged:MINE"), "train", "gagged"),
    ],
)
def test_check_finds_the_fault_if_any(settings: Path, words: tuple[str, ...], where: str | None, what: str) -> None:
    done = invoke("check", *words, "--json", run=settings)
    written = json.loads(done.stdout)
    assert (done.exit_code, written["checked"], written["ok"]) == (2 if where else 0, " ".join(words[:2]), not where)
    if where is not None:
        assert written["findings"][0]["where"] == where
        assert what in written["findings"][0]["what"]


def test_network_that_needs_options_says_how_to_give_them(settings: Path) -> None:
    (settings / "demanding.py").write_text("def build(shape, options):\n    return options['channels']\n")
    done = invoke("check", "network", "demanding:build", run=settings)
    assert done.exit_code == 2
    assert "KeyError: 'channels'" in done.stdout
    assert "write them as the table [games.KEY.network.options], and check the network of KEY" in done.stdout
