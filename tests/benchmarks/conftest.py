"""Fixtures of several benchmarks."""

from os import environ
from typing import Any

import pytest


@pytest.fixture
def pgx_mctx(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module ``pgx_mctx``, on one thread of the processor."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", f"{environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false")
    for name in ("jax", "pgx", "mctx", "optax"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    import pgx_mctx

    return pgx_mctx
