"""The reference pages of commands and settings agree with the program."""

import json
from pathlib import Path

import pytest

from flyball.app.cli.group import COMMANDS
from flyball.app.cli.references import PAGES, cell, commands_page, run, settings_page, tables
from flyball.app.config.loading import load

SETTINGS = [(table, setting) for table in tables() for setting in table.settings]


def test_pages_are_as_the_program_writes_them() -> None:
    assert run(["check"]) == 0


def test_changed_page_is_refused_until_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (run(["write"], tmp_path), run(["check"], tmp_path)) == (0, 0)
    (tmp_path / "cli.md").write_text(commands_page().replace("up", "down", 1))
    assert run(["check"], tmp_path) == 1
    assert "cli.md is out of date: run `python -m flyball.app.cli.references write`" in capsys.readouterr().err
    (tmp_path / "settings.md").unlink()
    assert run(["check"], tmp_path) == 1
    assert run([]) == 2
    assert {path.name for path in tmp_path.iterdir()} < PAGES.keys()


def test_every_command_and_setting_is_described() -> None:
    page = commands_page()
    assert [name for name in COMMANDS if f"\n## {name}\n" not in page] == []
    assert "\n### journal verify\n" in page
    assert "| 4 | unknown or not there yet |" in page
    assert [f"{table.name}.{one.key}" for table, one in SETTINGS if not one.meaning or not one.kind] == []
    page = settings_page()
    assert "| `min_quality` | number, ≥ 0, ≤ 1 | `0.3` |" in page
    assert '| `engine` | `"local"`, `"ray"` | `"local"` |' in page
    assert "| `game` | text | needed |" in page
    assert "## [[deployment.notifications]]" in page


def test_every_default_is_loaded_from_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_default, given = load(tmp_path).values(), dict[str, str]()
    for table, one in SETTINGS:
        if one.default in (None, "{}") or not one.variable or table.name.startswith(("games.KEY", "controllers")):
            continue
        default = json.loads(one.default)
        monkeypatch.setenv(one.variable, default if isinstance(default, str) else one.default)
        key = f"{table.name}.{one.key}".removeprefix(".")
        given[key] = one.variable
        assert by_default[key] == default
    monkeypatch.setenv("FLYBALL_GAMES__TIC_TAC_TOE_2P__PPO__GAMMA", "0.9")
    origins = load(tmp_path).origins
    assert {key: origins[key] for key in given} == {key: f"environment {name}" for key, name in given.items()}
    assert origins["games.tic_tac_toe_2p.ppo.gamma"].startswith("environment")
    assert "FLYBALL_GAMES__KEY__PPO__GAMMA" in settings_page()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a | b", "a \\| b"),
        ("MODEL_* `a*`", "MODEL_\\* `a*`"),
        ("``up``\n  now", "`up` now"),
        ("<br> < 3", "&lt;br> < 3"),
    ],
)
def test_cell_is_plain_text(text: str, shown: str) -> None:
    assert cell(text) == shown
