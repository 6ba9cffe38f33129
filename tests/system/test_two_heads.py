"""Guarantee (ADR-043): with two heads and a journal in PostgreSQL, the death of one loses nothing."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from commands import invoke, refused
from cut_network import HOST, network
from head_deaths import Death, deaths, faults, two_heads, under_load
from postgres_server import new_schema, postgres_server, replicated_servers, url_of

pytest.importorskip("psycopg")

pytestmark = pytest.mark.timeout(400)


async def test_other_head_takes_over_and_nothing_is_lost(database: str, tmp_path: Path) -> None:
    with two_heads(tmp_path, database) as (heads, keys):
        seen = await deaths(heads, keys, seed=1, counts={Death.KILL: 3, Death.STOP: 1})
    assert len(seen.pauses) == 4
    assert faults(seen, database) == []


async def test_head_that_is_cut_off_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with network(2) as nodes, postgres_server(HOST) as server:
        url = new_schema(server.url)
        with two_heads(tmp_path, url, nodes) as (heads, keys):
            seen = await deaths(heads, keys, seed=1, counts={Death.PARTITION: 2})
        assert len(seen.pauses) == 2
        assert faults(seen, url) == []


async def test_acknowledged_events_survive_a_failover_of_postgres(tmp_path: Path) -> None:
    """Guarantee (ADR-040): commits wait for the replica, which hangs and then loses what it has not written."""
    with replicated_servers() as (primary, replica):
        schema = new_schema(primary.url).removeprefix(primary.url)
        url = f"{url_of(primary, replica)}&target_session_attrs=read-write{schema}"
        with two_heads(tmp_path, url) as (heads, keys):
            async with under_load(heads, keys) as seen:
                receiver = replica.receiver()
                os.kill(receiver, signal.SIGSTOP)
                await asyncio.sleep(1)
                primary.crash()
                died = time.monotonic()
                os.kill(receiver, signal.SIGKILL)
                replica.crash()
                await asyncio.sleep(2)
                replica.start()
                replica.promote()
                await seen.resumed(died)
        assert faults(seen, url) == []


def test_two_heads_without_a_shared_journal_are_refused(tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text(
        '[deployment]\nendpoint = "tcp://127.0.0.1:7400"\nother_head = "tcp://127.0.0.1:7401"\n'
    )
    refused(invoke("up", run=tmp_path), 2, "each head would have a journal of its own", "deployment.journal.url")
