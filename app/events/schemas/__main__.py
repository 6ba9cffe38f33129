"""``python -m flyball.app.events.schemas check|write``."""

import sys
from collections.abc import Sequence
from pathlib import Path

from flyball.app.events.schemas import documents, problems, render

FOLDER = Path(__file__).parent


def read(folder: Path) -> dict[str, str]:
    """Return the text of every document in a folder by file name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.json"))}


def write(folder: Path) -> None:
    """Write all documents, unless a problem needs a decision first."""
    if all(problem.rewrites for problem in problems(read(folder))):
        for name, document in documents().items():
            (folder / name).write_text(render(document), encoding="utf-8")


def main(arguments: Sequence[str], folder: Path = FOLDER) -> int:
    """Check the documents in a folder, and return the exit code. The argument ``write`` writes the documents first."""
    if list(arguments) not in (["check"], ["write"]):
        sys.stderr.write("usage: python -m flyball.app.events.schemas check|write\n")
        return 2
    if list(arguments) == ["write"]:
        write(folder)
    found_problems = problems(read(folder))
    sys.stderr.writelines(f"{problem.text}\n" for problem in found_problems)
    return 1 if found_problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
