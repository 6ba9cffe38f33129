"""Lengths of docstrings' first lines, and of tests' names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_WORDS = 12
"""Limit of a docstring's first line."""

MOST_CHARACTERS = 60
"""Limit of a test's name."""

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def long_first_lines(source: str) -> Iterator[str]:
    """Yield the first lines of docstrings that are too long."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            first = text.partition("\n")[0]
            if len(first.split()) > MOST_WORDS:
                yield first


def long_names(source: str) -> Iterator[str]:
    """Yield the names of tests that are too long."""
    for node in ast.walk(ast.parse(source)):
        is_test = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if is_test and len(node.name) > MOST_CHARACTERS:
            yield node.name


@pytest.mark.parametrize("package", ["app", "daemons", "flyball", "tests"])
def test_docstrings_begin_with_short_lines(package: str) -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / package).rglob("*.py"))
        if (lines := list(long_first_lines(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


def test_tests_have_short_names() -> None:
    found = [name for path in (ROOT / "tests").rglob("*.py") for name in long_names(path.read_text(encoding="utf-8"))]
    assert found == []


def test_long_first_lines_and_names_are_found() -> None:
    words, name = " ".join(["word"] * (MOST_WORDS + 1)), "test_" + "a" * MOST_CHARACTERS
    source = f'def {name}():\n    """{words}"""\n'
    assert (list(long_first_lines(source)), list(long_names(source))) == ([words], [name])
