"""Fixtures of the integration tests."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

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
