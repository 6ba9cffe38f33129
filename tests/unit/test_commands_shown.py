"""Commands in hints are about the run that the user named."""

import shlex
from pathlib import Path

import pytest
from commands import invoke
from recorded_run import recording, write_journal

from flyball.app.api.commands import completed, flyball, flyball_anywhere

ODD = "it's my run"


@pytest.mark.parametrize(
    ("environment", "run", "config_file", "words"),
    [
        ({}, "run", None, []),
        ({}, ODD, None, ["--run", ODD]),
        ({}, "run", 'a "file".toml', ["--config-file", 'a "file".toml']),
        ({"FLYBALL_RUN": "other"}, "run", None, ["--run", "run"]),
        ({"FLYBALL_RUN": "other"}, "other", None, []),
        ({"FLYBALL_RUN": ""}, "run", None, []),
        ({"FLYBALL_CONFIG_FILE": "a.toml"}, "run", "a.toml", []),
    ],
)
def test_command_has_the_options_this_shell_needs(monkeypatch, environment, run, config_file, words) -> None:
    for name in ("FLYBALL_RUN", "FLYBALL_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert shlex.split(flyball(Path(run), config_file and Path(config_file))) == ["flyball", *words]


def test_command_for_anywhere_names_absolute_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLYBALL_RUN", "run")
    assert flyball_anywhere(Path("run"), None) == f"flyball --run {tmp_path}/run"


def test_text_completed_twice_has_the_options_once() -> None:
    start = flyball(Path(ODD), None)
    once = completed("Why: flyball tail -n 5 'A_*', or `flyball doctor`; a folder of flyball train.", start)
    assert once == f"Why: {start} tail -n 5 'A_*', or `{start} doctor`; a folder of flyball train."
    assert completed(once, start) == once


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["trace", "zz"],
        ["tail", "-f", "-n", "0"],
        ["emit", "CLOCK_TICK", '{"period_seconds": 1}'],
        ["state", "tic_tac_toe_2p", "current_model"],
        ["doctor"],
    ],
)
def test_commands_shown_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """Every printed command has the options that were given."""
    monkeypatch.chdir(tmp_path)
    Path(ODD).mkdir()
    Path("my settings.toml").write_text("", encoding="utf-8")
    write_journal(Path(ODD) / "journal.sqlite", recording().events)
    result = invoke(*words, "--run", ODD, "--config-file", "my settings.toml")
    start = shlex.join(["flyball", "--run", ODD, "--config-file", "my settings.toml"])
    shown = " ".join((result.stdout + result.stderr).split())
    assert "Traceback" not in shown
    assert 0 < shown.count("flyball ") == shown.count(start), shown
