"""Packages of somebody else's, with our packages' names."""

from pathlib import Path

FOREIGN = "somebody else's package was run"


def foreign_packages(folder: Path) -> None:
    """Write packages into a working directory whose import ends the process."""
    for name in ("app", "daemons"):
        package = folder / name
        package.mkdir()
        for module in ("__init__", "__main__", "cli", "engine", "training"):
            (package / f"{module}.py").write_text(f"raise SystemExit({FOREIGN!r})\n")
