"""First lines of docstrings, and lengths of tests' names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUESTIONS = ("What ", "Whom ", "Who ", "Whether ")
"""Words that begin a riddle instead of a statement."""

MOST_CHARACTERS = 60
"""Limit of a test's name."""

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def unclear_first_lines(source: str) -> Iterator[str]:
    """Yield the first lines of docstrings that are no statement, or go on in the next line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            first = text.partition("\n")[0]
            if first.startswith(QUESTIONS) or not first.endswith((".", ":", "…", "?")):
                yield first


def long_names(source: str) -> Iterator[str]:
    """Yield the names of tests that are too long."""
    for node in ast.walk(ast.parse(source)):
        is_test = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if is_test and len(node.name) > MOST_CHARACTERS:
            yield node.name


@pytest.mark.parametrize("package", ["app", "daemons", "flyball", "tests"])
def test_docstrings_begin_with_a_statement_of_one_line(package: str) -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / package).rglob("*.py"))
        if (lines := list(unclear_first_lines(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


def test_tests_have_short_names() -> None:
    found = [name for path in (ROOT / "tests").rglob("*.py") for name in long_names(path.read_text(encoding="utf-8"))]
    assert found == []
