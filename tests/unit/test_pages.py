"""References to files, tests and pages in the README and ADR/."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "ADR").glob("[0-9]*.md"))
SECTIONS = ["## Context", "## Options", "## Decision", "## Consequences", "## Confirmation"]
MEASURED = sorted((ROOT / "tests" / "benchmarks" / "results").glob("*.md"))
ROOMS = ("ADR", "deploy", "tests/benchmarks")
PAGES = [ROOT / "README.md", *sorted(page for room in ROOMS for page in (ROOT / room).rglob("*.md"))]
GUIDES = sorted((ROOT / "ADR" / "guide").glob("own_*.md"))
EXAMPLES = ROOT / "tests" / "examples"
LONGEST = {"conv_network.py": 30, "*player*.py": 40, "*controller*.py": 40, "trainer_*.py": 60, "*game*.py": 60}
"""Largest number of lines of examples, by file name."""

REFERRING = [
    *(ROOT / name for name in ("README.md", "Makefile", "pyproject.toml")),
    *(
        file
        for folder in ("app", "daemons", "flyball", "tests", "deploy", "ADR")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in {".md", ".py", ".toml", ".txt"}
    ),
]
"""Files that may refer to decision records."""

FOLDERS = ("app/", "daemons/", "deploy/", "tests/")
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def quoted(page: Path) -> set[str]:
    """Return the texts between backticks, including across line breaks."""
    return {"".join(words.split()) for words in re.findall(r"`([^`]+)`", prose(page))}


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
    for target in re.findall(r"\]\(([^)]+)\)", prose(page)):
        file, _, heading = target.partition("#")
        if "://" in target:
            continue
        linked = page.parent / file if file else page
        assert linked.exists(), target
        assert not heading or heading in anchors(linked), target


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def examples(page: Path) -> list[tuple[str, str]]:
    """Return pairs of example name and code block of a page."""
    blocks = r"^(\S[^\n]*(?:\n[^\n]+)*)\n\n?```(?:python|toml)\n(.*?)^```"
    found = re.findall(blocks, page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    named = [(re.findall(r"tests/examples/([\w.]+)", introduction), block) for introduction, block in found]
    return [(names[-1], block) for names, block in named if names]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_guide_quotes_its_examples_unchanged(page):
    quotations = examples(page)
    for name, block in quotations:
        assert block == (EXAMPLES / name).read_text(encoding="utf-8"), name
    assert {Path(name).suffix for name, _ in quotations} == {".py", ".toml"}


@pytest.mark.parametrize("pattern", LONGEST)
def test_example_is_short(pattern):
    for example in EXAMPLES.glob(pattern):
        assert len(example.read_text(encoding="utf-8").splitlines()) <= LONGEST[pattern], example.name


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name)
def test_decision_record_has_two_pages_and_is_listed(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 90
    number, title = re.fullmatch(r"# ADR-(\d+): (.+)", lines[0]).groups()
    assert f"- [{number}]({page.name}) {title}\n" in (ROOT / "ADR" / "README.md").read_text(encoding="utf-8")
    assert [line for line in lines if line.startswith("## ")] == SECTIONS


def test_decision_records_have_consecutive_numbers():
    assert [int(page.name[:3]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_references_name_decision_records_that_exist():
    numbers = {page.name[:3] for page in DECISIONS}
    for file in REFERRING:
        for number in re.findall(r"(?i)\bADR[-/ ](\d{3})\b", file.read_text(encoding="utf-8")):
            assert number in numbers, f"{file.relative_to(ROOT)}: ADR-{number}"


@pytest.mark.parametrize("page", MEASURED, ids=lambda page: page.name)
def test_measurement_has_date_commit_and_command(page):
    text = page.read_text(encoding="utf-8")
    index = (page.parents[1] / "RESULTS.md").read_text(encoding="utf-8")
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n\n")
        assert re.match(r"\*Recorded \d.* 20\d\d, [0-9a-f]{7}", body), title
        assert f"- [{title}](results/{page.name}#" in index
    for file in re.findall(r"tests/[\w/]+\.py", text):
        assert (ROOT / file).is_file(), file


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
