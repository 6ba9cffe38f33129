"""Somebody else's package that hides one of ours is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import flyball

SCRIPT = "import flyball\nflyball.GAMES\n"


@pytest.mark.parametrize("name", ["app", "daemons"])
@pytest.mark.parametrize("as_package", [True, False], ids=["package", "module"])
def test_package_beside_a_script_is_named(tmp_path: Path, name: str, *, as_package: bool) -> None:
    if as_package:
        (tmp_path / name).mkdir()
    hides = tmp_path / name / "__init__.py" if as_package else tmp_path / f"{name}.py"
    hides.write_text("raise SystemExit('somebody else ran')\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert f"ImportError: {hides} hides Flyball's own package '{name}'. Rename it, " in done.stderr
    (tmp_path / "script.py").write_text(f"import sys\nsys.path.pop(0)\n{SCRIPT}")
    subprocess.run([sys.executable, tmp_path / "script.py"], check=True, cwd=tmp_path)


def test_package_of_pythonpath_is_named_by_the_command(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "flyball", "--version"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {tmp_path / 'app' / '__init__.py'} ")
    assert len(done.stderr.splitlines()) == 1


def test_package_imported_before_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "app", subprocess)
    with pytest.raises(ImportError, match=r"subprocess\.py"):
        _ = flyball.GAMES
