"""Fixtures of the integration tests."""

import shutil
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import Flyball, invoke
from host_stage import Stage


@pytest.fixture
def flyball(tmp_path: Path) -> Flyball:
    """Return the command, on the test's folder as its run folder."""
    return partial(invoke, run=tmp_path)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """Return a stage whose run is configured."""
    stage = Stage()
    await stage.configure()
    yield stage
    await stage.bus.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Launch chromium. Tests without it are skipped."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright for Python")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs chromium")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()
