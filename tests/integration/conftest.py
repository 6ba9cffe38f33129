"""Fixtures of the integration tests."""

from collections.abc import AsyncIterator

import pytest
from host_stage import Stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """Return a stage whose run is configured."""
    stage = Stage()
    await stage.configure()
    yield stage
    await stage.bus.close()
