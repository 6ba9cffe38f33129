"""Objects named in settings: modules, entry points and helpful errors."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.app.config.loading import load
from flyball.app.core import UnknownPlugin, current_name, import_modules, load_plugin
from flyball.app.core.plugins import FORMER_PACKAGES
from flyball.app.engine.worker import perform
from flyball.app.learning.jobs import train
from flyball.daemons.suitability import check_imports_of_trainers, check_trainers


def test_modules_beside_settings_are_found_after_installed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_settings.py").write_text("ANSWER = 42\n")
    load(tmp_path)
    assert load_plugin("flyball.games", "beside_settings:ANSWER") == 42
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "numpy.py").write_text("array = 'not NumPy'\n")
    load(tmp_path)
    assert callable(load_plugin("flyball.games", "numpy:array"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:game", "'no_such_module:game' cannot be imported: ModuleNotFoundError"),
        ("math:no_such_name", "'math:no_such_name' cannot be imported: AttributeError"),
        (":name", "cannot be imported: ValueError"),
    ],
)
def test_unimportable_name_is_refused(name: str, message: str) -> None:
    with pytest.raises(UnknownPlugin, match=message) as refused:
        load_plugin("flyball.games", name)
    assert "package.module:name" in refused.value.hint


def test_unknown_or_raising_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownPlugin, match="There is no 'policy_gradent' among the flyball backends") as refused:
        load_plugin("flyball.backends", "policy_gradent", ours=["policy_gradient"])
    assert refused.value.hint.startswith("Did you mean policy_gradient?")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "raising_module.py").write_text("raise OSError('no licence')\n")
    with pytest.raises(UnknownPlugin, match="OSError: no licence"):
        load_plugin("flyball.games", "raising_module:game")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make a package ``app`` of the user's own, which is found before a checkout's."""
    package = tmp_path / "app"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "backends.py").write_text("def train(spec, report):\n    return {'mine': spec['answer']}\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in FORMER_PACKAGES]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "current"),
    [
        ("app.learning.jobs", "flyball.app.learning.jobs"),
        ("daemons.registry", "flyball.daemons.registry"),
        ("flyball.app.core", "flyball.app.core"),
        ("app.no_such_module", "app.no_such_module"),
        ("app.no_such_package.module", "app.no_such_package.module"),
        ("application.core", "application.core"),
        ("json", "json"),
    ],
)
def test_former_names_of_modules_have_present_ones(name: str, current: str) -> None:
    assert current_name(name) == current


def test_former_names_in_settings_are_understood(tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text(
        'configs = ["tic_tac_toe_2p"]\n[games.tic_tac_toe_2p]\ntrainer = "app.learning.jobs:train"\n'
    )
    settings = load(tmp_path).run
    check_trainers(settings, tmp_path)
    check_imports_of_trainers(settings)
    assert load_plugin("flyball.trainers", settings.configs[0].trainer) is train
    import_modules(["app.portable", "daemons.registry"])
    assert not sys.modules.keys() & {*FORMER_PACKAGES}


@pytest.mark.usefixtures("own")
def test_own_module_comes_before_a_former_name() -> None:
    assert load_plugin("flyball.trainers", "app.backends:train")({"answer": 42}, print) == {"mine": 42}
    assert current_name("app.learning.jobs") == "flyball.app.learning.jobs"


def test_job_under_its_former_name_runs() -> None:
    frames = []
    perform("app.learning.jobs:initialise", {}, frames.append)
    assert frames[0]["error"]["kind"] != "FlyballError", "the job was found; the spec is empty"
    perform("app.learning.jobs:no_such_job", {}, frames.append)
    assert "'app.learning.jobs:no_such_job' names no job" in frames[1]["error"]["summary"]
