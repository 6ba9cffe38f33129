"""Documentation in the browser: every document listed, every link valid."""

import re
import tomllib
from pathlib import Path

import pytest
from commands import invoke, succeeded
from starlette.testclient import TestClient

from flyball.app.dashboard import documents
from flyball.app.dashboard.documentation import documentation
from flyball.app.dashboard.documents import by_path, images, page_of

ROOT = Path(__file__).parents[2]
PATHS = sorted(by_path())
HREF = re.compile(r'<(?:a|img)[^>]* (?:href|src)="([^"]*)"')


def made(text: str, monkeypatch: pytest.MonkeyPatch, path: str = "ADR/guide/store.md") -> str:
    monkeypatch.setattr(documents, "_text", lambda _: text)
    return page_of.__wrapped__(path).html


def test_every_document_is_listed_and_in_the_wheel() -> None:
    folders = ("ADR", "deploy", "tests/benchmarks")
    written = {f"{path.relative_to(ROOT)}" for folder in folders for path in (ROOT / folder).rglob("*.md")}
    assert {*PATHS} == written | {"README.md"}
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    shown = ("README.md", "ADR", "deploy", "tests/benchmarks/RESULTS.md", "tests/benchmarks/results")
    assert all(wheel["force-include"][name] == f"flyball/app/{name}" for name in shown)
    assert images() == {"ADR/guide/dashboard.png"}


@pytest.mark.parametrize("path", PATHS)
def test_document_links_to_what_is_served_and_needs_no_style(path: str) -> None:
    page = page_of(path)
    assert not re.search(r"<script|<style| style=| on\w+=", page.html)
    for target in HREF.findall(page.html):
        file, _, anchor = target.removeprefix("/docs/").partition("#")
        if target.startswith("/docs/") and file not in images():
            assert file in by_path(), target
            assert not anchor or f'id="{anchor}"' in page_of(file).html, target
        else:
            assert target.startswith(("http", "/docs/ADR/")) or f'id="{target[1:]}"' in page.html, target
    assert all(f'id="{section.anchor}"' in page.html for section in page.sections)


def test_markup_is_text_and_links_are_relative(monkeypatch) -> None:
    links = '[a](javascript:x()) [b](data:text/html,x) ![c]("onerror=x)'
    html = made(f"# T\n\n<script>x()</script> {links}\n\n<style>p {{}}</style>", monkeypatch)
    assert not any(markup in html for markup in ("<script", "<style", "href", 'onerror="'))
    links = "[a](../../README.md#start) [b](ray.md) [c](../../app/run.py) [d](#x-y) [e](https://e.org/) [f](../../../x)"
    html = made(f"{links}\n\n## X `y`\n\n## X y\n", monkeypatch)
    assert HREF.findall(html) == ["/docs/README.md#start", "/docs/ADR/guide/ray.md", "#x-y", "https://e.org/"]
    assert re.findall(r'<h2 id="([^"]*)"', html) == ["x-y", "x-y-1"]
    assert 'rel="noreferrer"' in html


@pytest.fixture(scope="module")
def reader() -> TestClient:
    return TestClient(documentation(), base_url="http://localhost", follow_redirects=False)


def test_documentation_is_served_without_a_run(reader: TestClient) -> None:
    assert reader.get("/").headers["location"] == "/docs"
    index = reader.get("/docs").text
    assert all(f'href="/docs/{path}"' in index for path in PATHS)
    assert "What to do about each finding" in index
    page = reader.get("/docs/ADR/guide/security.md")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "/static/theme.js" in page.text
    assert "/static/flyball.js" not in page.text, "it asks for news, and there are none"
    assert reader.get("/docs/ADR/guide/dashboard.png").headers["content-type"] == "image/png"


@pytest.mark.parametrize(
    "path", ["nothing.md", "pyproject.toml", "ADR/../pyproject.toml", "..%2F..%2Fetc%2Fpasswd", ""]
)
def test_other_files_and_foreign_hosts_are_not_served(reader: TestClient, path: str) -> None:
    assert reader.get(f"/docs/{path}").status_code == 404
    assert reader.get("/docs", headers={"host": "flyball.example"}).status_code == 421


def test_docs_names_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    served = []
    monkeypatch.setattr("flyball.app.dashboard.documentation.serve", lambda socket: served.append(socket.getsockname()))
    succeeded(invoke("docs"), f"Documentation at http://127.0.0.1:{served[0][1]}/docs")
