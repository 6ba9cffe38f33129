"""Guarantee (ADR-043): with two heads and a journal in PostgreSQL, the death of one loses nothing."""

from pathlib import Path

import pytest
from commands import invoke, refused
from head_deaths import deaths, faults, two_heads

pytest.importorskip("psycopg")

pytestmark = pytest.mark.timeout(400)


async def test_other_head_takes_over_and_nothing_is_lost(database: str, tmp_path: Path) -> None:
    with two_heads(tmp_path, database) as heads:
        seen = await deaths(heads, seed=1, kills=3, stops=1)
    assert len(seen.pauses) == 4
    assert faults(seen, database) == []


def test_two_heads_without_a_shared_journal_are_refused(tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text(
        '[deployment]\nendpoint = "tcp://127.0.0.1:7400"\nother_head = "tcp://127.0.0.1:7401"\n'
    )
    refused(invoke("up", run=tmp_path), 2, "each head would have a journal of its own", "deployment.journal.url")
