"""Docstrings begin with a line that is read at a glance."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_WORDS = 12
"""Limit of a docstring's first line."""

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def long_first_lines(source: str) -> Iterator[str]:
    """Yield the first lines of docstrings that are too long."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            first = text.partition("\n")[0]
            if len(first.split()) > MOST_WORDS:
                yield first


@pytest.mark.parametrize("package", ["app", "daemons", "flyball", "tests/support"])
def test_docstrings_begin_with_short_lines(package: str) -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / package).rglob("*.py"))
        if (lines := list(long_first_lines(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


def test_long_first_line_is_found() -> None:
    words = " ".join(["word"] * (MOST_WORDS + 1))
    assert list(long_first_lines(f'def f():\n    """{words}"""\n')) == [words]
