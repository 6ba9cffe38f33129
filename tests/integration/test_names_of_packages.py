"""Packages of the user's own named ``app`` or ``daemons`` do no harm, and no module of ours has two names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from foreign_packages import FOREIGN, foreign_packages

ROOT = Path(__file__).parents[2]


def python(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["app", "daemons"])
@pytest.mark.parametrize("as_package", [True, False], ids=["package", "module"])
def test_package_beside_a_script_is_the_users(tmp_path: Path, name: str, *, as_package: bool) -> None:
    if as_package:
        (tmp_path / name).mkdir()
    own = tmp_path / name / "__init__.py" if as_package else tmp_path / f"{name}.py"
    own.write_text("GREETING = 'mine'\n")
    (tmp_path / "script.py").write_text(
        f"import flyball, {name}\nimport flyball.daemons.registry\nprint({name}.GREETING, len(flyball.GAMES) > 0)\n"
    )
    done = python(tmp_path, "script.py")
    assert (done.stdout, done.stderr) == ("mine True\n", "")


@pytest.mark.parametrize("words", [("-m", "flyball"), ("-m", "flyball.app.cli")])
def test_package_found_before_ours_is_not_run(tmp_path: Path, words: tuple[str, ...]) -> None:
    foreign_packages(tmp_path)
    done = python(tmp_path, *words, "config", "check", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert (done.returncode, FOREIGN in done.stdout + done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("module", ["app", "app.core", "daemons", "daemons.registry"])
def test_folder_of_a_checkout_cannot_be_imported_twice(tmp_path: Path, module: str) -> None:
    done = python(tmp_path, "-P", "-c", f"import {module}", PYTHONPATH=str(ROOT))
    assert done.returncode == 1
    package = module.partition(".")[0]
    assert f"ImportError: This folder of a checkout of Flyball is the package flyball.{package};" in done.stderr
