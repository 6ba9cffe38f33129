"""Stores: single blobs, a full cache, and blobs that a journal names.

Single blobs are in a folder, in a cache, and on a server of this machine. Run with
``pytest tests/benchmarks/bench_store.py -m benchmark -s``. Times are wall time, the median of some rounds. The server
is moto's, which is slower than a real one and nearer; it shows the cost of a request on our side.
"""

import sys
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import pytest
from generated_run import generated, laptop, write_generated

from flyball.app.config.store_address import StoreAddress
from flyball.app.journal import SqliteJournalReader
from flyball.app.replay.reachability import named_blobs
from flyball.app.store import BlobStore, FileStore
from flyball.app.store.cache import BlobCache, CachedStore
from flyball.app.store.objects import ObjectStore
from flyball.daemons.registry import DAEMONS

pytestmark = pytest.mark.benchmark
MIB, ROUNDS, FILES, EVENTS = 1 << 20, 15, 8000, 50_000


def milliseconds(call: Callable[[int], object]) -> float:
    """Return the median time of a call, in ms. The call gets the number of its round."""
    times = []
    for number in range(ROUNDS):
        began = perf_counter()
        call(number)
        times.append(1000 * (perf_counter() - began))
    return median(times)


def test_blobs_of_four_mib(tmp_path: Path, bucket: StoreAddress) -> None:
    remote = ObjectStore(bucket)
    cached = CachedStore(remote, BlobCache(tmp_path / "cache", 1 << 30))
    stores: dict[str, BlobStore] = {"folder": FileStore(tmp_path / "store"), "server": remote, "server, cached": cached}
    sys.stdout.write("\n| store | new blob, ms | again, ms | read, ms |\n|---|---|---|---|\n")
    for place, (name, store) in enumerate(stores.items()):
        blobs = [bytes([place, number]) * (2 * MIB) for number in range(ROUNDS)]
        new, again = (milliseconds(lambda number, put=store.put, of=blobs: put(of[number])) for _ in range(2))
        keys = list(store.keys())[-1:]
        read = milliseconds(lambda _, get=store.get, key=keys[0]: get(key))
        sys.stdout.write(f"| {name} | {new:.1f} | {again:.1f} | {read:.1f} |\n")


def test_a_full_cache(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, FILES * 100)
    for number in range(FILES):
        (tmp_path / f"{number:064x}").write_bytes(bytes(100))
    added = milliseconds(lambda number: cache.add(f"{FILES + number:064x}", bytes(100)))
    sys.stdout.write(f"\nadding to a full cache of {FILES} blobs: {added:.1f} ms\n")


def test_what_a_journal_names(tmp_path: Path) -> None:
    write_generated(tmp_path / "journal.sqlite", generated(EVENTS, settings=laptop()))
    with closing(SqliteJournalReader(tmp_path / "journal.sqlite")) as reader:
        began = process_time()
        named = named_blobs(reader, DAEMONS, datetime.fromisoformat("2100-01-01T00:00:00+00:00"))
        seconds = process_time() - began
    found = f"{len(named.needed)} keys needed, {len(named.shards)} shards played"
    sys.stdout.write(f"\n{EVENTS} events: {seconds:.1f} s of processor time, {found}\n")
