"""The public API: complete, documented, cheap to import, and shipped."""

import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import flyball

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", flyball.__all__)
def test_facade_name_resolves_and_is_documented(name):
    assert getattr(flyball, name) is not None
    assert name == "__version__" or name in (flyball.__doc__ or "")


def test_facade_lists_what_it_offers_and_what_is_shipped():
    assert set(flyball._HOMES) | {"__version__"} == set(flyball.__all__) == set(dir(flyball))
    assert flyball.__version__ == version("flyball")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        flyball.nothing  # noqa: B018
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    present = {path.name for path in ROOT.glob("*.py")} | {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert set(shipped) == present
    assert all((ROOT / name / "py.typed").is_file() for name in shipped if not name.endswith(".py"))


def test_facade_import_loads_nothing_else():
    program = "import sys; before = {*sys.modules}; import flyball; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", program], cwd="/", capture_output=True, text=True, check=True)
    loaded = {module.partition(".")[0] for module in done.stdout.split()}
    assert loaded - sys.stdlib_module_names == {"flyball"}
