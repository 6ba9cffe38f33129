"""The wheel beside a user's own packages, in a virtual environment of its own, and an editable install."""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path
from urllib.request import urlopen

import pytest
from foreign_packages import FOREIGN, foreign_packages
from running_loop import RunningLoop

from flyball.app.events import SelfplayComplete

ROOT = Path(__file__).parents[2]
SITE = f"lib/python{sysconfig.get_python_version()}/site-packages"
OWN = "app", "daemons"

pytestmark = pytest.mark.timeout(500)


@dataclass(frozen=True)
class Environment:
    """A virtual environment without pip. It sees the packages of the tests' environment after its own."""

    folder: Path

    @property
    def site(self) -> Path:
        return self.folder / SITE

    def install(self, *words: object) -> None:
        pip = [sys.executable, "-m", "pip", "--python", self.folder / "bin" / "python", "install", "--quiet"]
        checked([*pip, "--no-deps", "--no-index", "--no-build-isolation", *words], cwd=self.folder)

    def start(self, cwd: Path, *words: object, program: str = "flyball") -> subprocess.Popen[str]:
        command = [self.folder / "bin" / program, *map(str, words)]
        return subprocess.Popen(
            command, cwd=cwd, env=plain(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(self, cwd: Path, *words: object, program: str = "flyball") -> str:
        with self.start(cwd, *words, program=program) as process:
            out, errors = process.communicate(timeout=400)
        assert process.returncode == 0, out + errors
        return out


def plain() -> dict[str, str]:
    """Return this process's environment without a path that would lead to the checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def checked(command: list[object], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, env=plain(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def environment(folder: Path) -> Environment:
    checked([sys.executable, "-m", "venv", "--without-pip", folder], cwd=folder.parent)
    made = Environment(folder)
    # A .pth below a folder that a .pth names is not read, so the checkout's editable install stays out.
    (made.site / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a source distribution, and a wheel made of that."""
    pytest.importorskip("hatchling")
    place = tmp_path_factory.mktemp("built")
    build = "import sys; from hatchling.build import *; {}(sys.argv[1])"
    checked([sys.executable, "-c", build.format("build_sdist"), place], cwd=ROOT)
    with tarfile.open(next(place.glob("*.tar.gz"))) as archive:
        archive.extractall(place, filter="data")
    (source,) = [path for path in place.iterdir() if path.is_dir()]
    checked([sys.executable, "-c", build.format("build_wheel"), place], cwd=source)
    shutil.rmtree(source)
    return place


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return an environment with the wheel, and with packages ``app`` and ``daemons`` of the user's own."""
    made = environment(tmp_path_factory.mktemp("installed") / "venv")
    made.install(next(built.glob("*.whl")))
    for name in OWN:
        (made.site / name).mkdir()
        (made.site / name / "__init__.py").write_text(f"GREETING = 'my own {name}'\n")
    return made


def test_wheel_has_one_package_and_every_file(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = wheel.namelist()
        (entries,) = [name for name in names if name.endswith("entry_points.txt")]
        assert "flyball = flyball.__main__:main" in wheel.read(entries).decode()
    assert len(names) == len({*names})
    assert {name.partition("/")[0] for name in names} == {"flyball", entries.partition("/")[0]}
    files = [path.relative_to(ROOT) for name in OWN for path in (ROOT / name).rglob("*") if path.is_file()]
    assert {f"flyball/{path}" for path in files if "__pycache__" not in path.parts} <= {*names}


def test_installed_packages_keep_apart(installed: Environment, tmp_path: Path) -> None:
    distribution = next(installed.site.glob("flyball-*.dist-info"))
    present = {path.name for path in installed.site.iterdir()} - {*OWN, "others.pth"}
    assert present == {"flyball", distribution.name}
    version = Parser().parsestr((distribution / "METADATA").read_text())["Version"]
    assert installed.run(tmp_path, "--version").split()[-1] == version
    code = "import app, daemons, flyball, flyball.app; flyball.GAMES; print(app.GREETING, flyball.app.__file__)"
    greeting, file = installed.run(tmp_path, "-c", code, program="python").rsplit(maxsplit=1)
    assert (greeting, Path(file).is_relative_to(installed.site)) == ("my own app", True)


def test_installed_commands_find_their_files(installed: Environment, tmp_path: Path) -> None:
    installed.run(tmp_path, "init", "--role", "head", "--head", "10.0.0.1", "head")
    assert list((tmp_path / "head" / "systemd").glob("*.target"))
    with installed.start(tmp_path, "docs") as process:
        assert process.stderr is not None
        address = process.stderr.readline().split()[-1]
        with urlopen(f"{address}/ADR/guide/own_game.md") as page:
            assert b"flyball new game" in page.read()
        process.send_signal(signal.SIGINT)
    assert process.returncode == 0


def test_installed_loop_plays_a_game_of_a_package_app(installed: Environment, tmp_path: Path) -> None:
    """The game lies in an installed package ``app``; one in the working directory must not run."""
    installed.run(tmp_path, "new", "game", "my_game", "--folder", installed.site / "app")
    foreign_packages(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    settings = (installed.site / "app" / "my_game.toml").read_text().replace('"my_game:', '"app.my_game:')
    assert 'game = "app.my_game:MyGame"' in settings
    (run / "flyball.toml").write_text(f"{settings}\n[deployment.dashboard]\nport = 0\n")
    with installed.start(tmp_path, "--run", run, "up") as process:
        loop = RunningLoop(run, process)
        try:
            loop.wait_for("games", lambda: loop.events(SelfplayComplete))
            assert loop.leave() == 0
        finally:
            process.kill()
        assert process.stdout is not None
        assert process.stderr is not None
        assert FOREIGN not in process.stdout.read() + process.stderr.read() + loop.logs()


@pytest.mark.timeout(900)  # mypy reads every type that the API names
def test_types_of_an_installed_wheel_are_seen(installed: Environment, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(
        "import flyball\nfrom flyball.app.core.rng import derive_seed\nfrom flyball.daemons.registry import DAEMONS\n\n"
        "SEED: int = derive_seed(7, *DAEMONS)\nWRONG: int = next(iter(flyball.GAMES.values())).key\n"
    )
    python = installed.folder / "bin" / "python"
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "user.py"]
    done = subprocess.run(command, cwd=tmp_path, env=plain(), capture_output=True, text=True, check=False)
    (error, *summary) = done.stdout.splitlines()
    assert error.startswith("user.py:6: error: Incompatible types in assignment"), done.stdout
    assert summary[0].startswith("Found 1 error in 1 file"), done.stdout


def test_editable_install_finds_the_checkout(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    made = environment(tmp_path / "venv")
    made.install("--editable", ROOT)
    code = "import flyball.app, flyball.daemons; print(flyball.app.__file__, flyball.daemons.__file__)"
    files = made.run(tmp_path, "-c", code, program="python").split()
    assert files == [str(ROOT / "flyball" / name / "__init__.py") for name in OWN]
    assert {path.name for path in made.site.iterdir() if path.suffix not in {".pth", ".dist-info"}} <= {"flyball"}
