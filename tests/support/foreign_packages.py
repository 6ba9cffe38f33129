"""Foreign packages that have the names of our packages."""

from pathlib import Path

FOREIGN = "somebody else's package was run"


def foreign_packages(folder: Path) -> None:
    """Write packages into a working directory; importing them ends the process."""
    for name in ("app", "daemons"):
        package = folder / name
        package.mkdir()
        for module in ("__init__", "__main__", "cli", "engine", "training"):
            (package / f"{module}.py").write_text(f"raise SystemExit({FOREIGN!r})\n")
