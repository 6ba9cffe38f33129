"""What the README and the pages in ADR/ say of files, tests and each other."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "ADR").glob("[0-9]*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "ADR").glob("*.md"))]
FOLDERS = ("app/", "daemons/", "deploy/", "tests/")
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


def quoted(page: Path) -> set[str]:
    """Return what stands between backticks, beyond line breaks too."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {"".join(words.split()) for words in re.findall(r"`([^`]+)`", text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_names_files_and_tests_that_exist(page):
    for name in quoted(page):
        if name.startswith(FOLDERS):
            assert any(ROOT.glob(name.rstrip("/"))), name
        elif re.fullmatch(r"test_\w+", name):
            assert f"def {name}(" in TESTS, name
        elif re.fullmatch(r"test_[\w*]+\.py", name):
            assert any((ROOT / "tests").rglob(name)), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_links_to_what_exists(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name)
def test_decision_record_has_two_pages_and_is_listed(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 90
    number, title = re.fullmatch(r"# ADR-(\d+): (.+)", lines[0]).groups()
    assert f"- [{number}]({page.name}) {title}\n" in (ROOT / "ADR" / "README.md").read_text(encoding="utf-8")
    assert {"## Context", "## Outcome", "## Confirmation"} <= set(lines)


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
