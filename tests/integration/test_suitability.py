"""Settings that cannot run are refused before anything starts."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from commands import invoke
from recorded_run import Recording, write_journal
from tabular_backend import NAME

from flyball.app.cli.up import _check_journal
from flyball.app.config import GAMES, PROFILES, BadSettings, EvaluationSettings, NetworkSettings, RunSettings
from flyball.app.events import RunConfigured
from flyball.app.games import open_table
from flyball.app.journal.opening import SqliteLocation
from flyball.daemons.suitability import check_imports_of_trainers, check_lasting, check_playable, check_trainers

KEY, HEARTS = "tic_tac_toe_2p", "hearts_4p"
TOWER, ABSENT = NetworkSettings(kind="tower"), NetworkSettings(kind="nowhere:build")
SETTINGS = RunSettings(configs=(GAMES[KEY],))


def changed(**fields) -> RunSettings:
    return RunSettings(configs=(GAMES[KEY].replace(**fields),))


def test_all_known_configurations_can_be_played():
    check_playable(RunSettings(configs=tuple(GAMES.values())))


@pytest.mark.parametrize(
    ("key", "fields", "why"),
    [
        (HEARTS, {"network": TOWER}, "hearts_4p has no network: A network of kind 'tower' needs planes"),
        (HEARTS, {"network": ABSENT}, "'nowhere:build' cannot be imported"),
        (KEY, {"backend": "search", "network": ABSENT}, "cannot be imported"),
        (HEARTS, {"backend": "search"}, "cannot be searched"),
        (KEY, {"game": "nosuch"}, KEY),
        (KEY, {"players": 5}, KEY),
        (KEY, {"builtins": ("random", "heuristic")}, "tic_tac_toe has no such player"),
        (KEY, {"backend": "policy_gradint"}, "Did you mean policy_gradient?"),
        (KEY, {"backend": "no_such_module:MINE"}, "The module has to be installed, or lie beside flyball.toml"),
        (
            KEY,
            {"backend": "broken_backends:CROWDED"},
            "has 2 players, and broken_backends:CROWDED plays tic_tac_toe with 3",
        ),
        (KEY, {"backend": "broken_backends:CROWDED"}, "with 3"),
        (KEY, {"backend": "broken_backends:BOTLESS"}, "has 'random' among its builtins"),
    ],
)
def test_what_cannot_be_played_is_refused(key: str, fields: dict, why: str) -> None:
    with pytest.raises(BadSettings) as error:
        check_playable(RunSettings(configs=(GAMES[key].replace(**fields),)))
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("fields", "former"),
    [
        ({"game": "connect_four"}, 'game = "tic_tac_toe"'),
        ({"network": NetworkSettings(hidden=(64,))}, "network.hidden = [256, 128]"),
        ({"network": NetworkSettings(kind="tower", policy_head="planes")},
         'network.kind = "mlp", games.tic_tac_toe_2p.network.policy_head = "dense"'),
        ({"backend": NAME}, 'backend = "policy_gradient"'),
    ],
)  # fmt: skip
def test_what_models_depend_on_may_not_change(fields: dict[str, Any], former: str) -> None:
    with pytest.raises(BadSettings, match=f"{KEY} was begun with {next(iter(fields))}") as error:
        check_lasting([SETTINGS], changed(**fields))
    assert f"Set it back (games.{KEY}.{former})" in str(error.value.hint)


def test_lines_that_set_settings_back_are_toml() -> None:
    network = NetworkSettings(kind="own:build", options={"name": "größe", "widths": [8, 4]})
    begun, now = changed(network=network), changed(network=NetworkSettings(kind="own:build", options={"depth": 3}))
    with pytest.raises(BadSettings) as error:
        check_lasting([begun], now)
    hint = re.fullmatch(r"Set it back \((.*), without (.*)\), or give .*", str(error.value.hint))
    assert hint, error.value.hint
    assert hint[2] == f"games.{KEY}.network.options.depth"
    lines = hint[1].replace(", games.", "\ngames.")
    assert tomllib.loads(lines)["games"][KEY]["network"]["options"] == network.options


def test_up_with_another_network_than_the_journal_is_refused(tmp_path: Path) -> None:
    """End the reading of the journal together with the refusal."""
    run = Recording([])
    run.add(RunConfigured(run_id="1", settings=changed(network=NetworkSettings(kind="tower")).model_dump(mode="json")))
    write_journal(tmp_path / "journal.sqlite", run.events)
    error = invoke("up", "--config", KEY, run=tmp_path)
    assert error.exit_code == 2
    assert "begun with network = tower (blocks = 4, channels = 32, squeeze_excite = False)" in error.stderr


def test_up_warns_of_games_that_its_settings_leave_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Recording([])
    run.add(RunConfigured(run_id="1", settings=SETTINGS.model_dump(mode="json")))
    write_journal(tmp_path / "journal.sqlite", run.events)
    _check_journal(SqliteLocation(tmp_path / "journal.sqlite"), SETTINGS)
    assert capsys.readouterr().err == ""
    _check_journal(SqliteLocation(tmp_path / "journal.sqlite"), RunSettings(configs=(GAMES["hex7_2p"],)))
    assert f"WARNING: These settings leave out {KEY}" in capsys.readouterr().err


def test_up_warns_of_another_temperature_of_evaluations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Recording([])
    run.add(RunConfigured(run_id="1", settings=SETTINGS.model_dump(mode="json")))
    write_journal(tmp_path / "journal.sqlite", run.events)
    _check_journal(SqliteLocation(tmp_path / "journal.sqlite"), changed(evaluation=EvaluationSettings(temperature=1.0)))
    warning = f"WARNING: games.{KEY}.evaluation.temperature changes from 0.3 to 1:"
    assert capsys.readouterr().err.startswith(warning)


def test_other_settings_and_configurations_may_change():
    check_lasting([], SETTINGS)
    check_lasting([SETTINGS], changed(rows_per_training=5))
    check_lasting([SETTINGS], RunSettings(configs=(GAMES["hex7_2p"],)))


def test_known_configurations_have_the_heuristics_that_they_name():
    for config in map(GAMES.__getitem__, PROFILES["full"]):
        has_one = open_table(config, 0).spec.heuristic is not None
        assert ("heuristic" in config.builtins) == has_one, config.key


@pytest.mark.parametrize(
    ("game", "said"),
    [("cheess", "OpenSpiel has no game 'cheess'. Did you mean chess "), ("hex(size=3)", "Unknown parameter 'size'")],
)
def test_what_openspiel_says_is_said_once_and_in_a_line(capfd, game, said):
    """Keep OpenSpiel's own output off stderr. For an unknown name, OpenSpiel lists all its games there."""
    with pytest.raises(BadSettings) as refused:
        check_playable(changed(game=game, engine="openspiel"))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "fields",
    [
        {"trainer": "no_such_module:train"},
        {"trainer": "no.such.package:train"},
        {"trainer": "no_such_entry_point"},
        {"train_command": ("no-such-program",)},
        {"train_command": ("./mine.py",)},
    ],
)
def test_trainer_that_does_not_exist_is_refused(fields: dict, tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=f"games.{KEY}.{next(iter(fields))}: there is no"):
        check_trainers(changed(**fields), tmp_path)


def test_trainer_in_a_package_that_fails_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing").mkdir()
    (tmp_path / "failing" / "__init__.py").write_text("raise OSError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadSettings, match=r"trainer: the package of 'failing.mine' cannot be imported: OSError: no li"):
        check_trainers(changed(trainer="failing.mine:train"), tmp_path)


@pytest.mark.parametrize(
    "fields", [{"trainer": "json:loads"}, {"train_command": ("python", "mine.py")}, {"train_command": ("./mine.py",)}]
)
def test_trainer_that_exists_is_accepted(fields: dict, tmp_path: Path) -> None:
    program = tmp_path / "mine.py"
    program.touch(0o755)
    check_trainers(changed(**fields), tmp_path)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("def train(spec, report)", "SyntaxError"),
        ("def trian(spec, report): ...", "has no attribute 'train'"),
        ("def train(spec): ...", "cannot be called as a trainer: too many positional arguments"),
        ("train = 3", "cannot be called as a trainer: 3 is not a callable object"),
        ("import sys\nsys.exit('no licence')", "called sys.exit('no licence') while it was imported"),
    ],
)
def test_faulty_trainer_module_is_refused(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "faulty_trainer.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faulty_trainer", raising=False)
    with pytest.raises(BadSettings, match=f"games.{KEY}.trainer: ") as error:
        check_imports_of_trainers(changed(trainer="faulty_trainer:train"))
    assert said in error.value.message
    assert error.value.hint


def test_config_check_imports_a_trainer(tmp_path: Path) -> None:
    """A start only looks for the module, and does not import it."""
    (tmp_path / "flyball.toml").write_text(f'configs = ["{KEY}"]\n[games.{KEY}]\ntrainer = "broken_trainer:train"\n')
    (tmp_path / "broken_trainer.py").write_text("print('importing')\nraise OSError('no licence')\n")
    done = invoke("config", "check", run=tmp_path)
    assert done.exit_code != 0
    assert "OSError: no licence" in " ".join(done.stderr.split())
    check_trainers(changed(trainer="broken_trainer:train"), tmp_path)
