"""Objects named in settings: modules, entry points and helpful errors."""

import sys
from pathlib import Path

import pytest

from flyball.app.config.loading import load
from flyball.app.core import UnknownPlugin, load_plugin


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
