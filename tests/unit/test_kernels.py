"""Compiled kernels: their cache, and processes that start at once."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flyball.app.core.kernels import cache_folder
from flyball.app.games.hearts.cards import count, highest, lowest

KERNEL = """
from flyball.app.core.kernels import config, kernel

@kernel
def total(n):
    result = 0
    for k in range(n):
        result += k
    return result

if __name__ == "__main__":
    print(total(10), total.stats.cache_hits.total())
"""


def run(script: Path, cache: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def script_in(folder: Path, text: str = KERNEL) -> Path:
    script = folder / "script.py"
    script.write_text(text)
    return script


def test_processes_started_at_once_leave_a_cache_for_later_ones(tmp_path: Path) -> None:
    script, cache = script_in(tmp_path), tmp_path / "cache"
    with ThreadPoolExecutor(2) as pool:
        at_once = list(pool.map(lambda _: run(script, cache), range(2)))
    assert {line.split()[0] for line in at_once} == {"45"}
    assert run(script, cache) == "45 1"
    assert not list(cache.rglob("*.tmp.*"))


def test_cache_depends_on_place_and_source(tmp_path: Path) -> None:
    nowhere = tmp_path / "a file"
    nowhere.touch()
    only = KERNEL.replace("@kernel", "config.CACHE_LOCATOR_CLASSES = 'UserProvidedCacheLocator'\n\n@kernel")
    assert run(script_in(tmp_path, only), nowhere) == "45 0"
    (tmp_path / "deeper").mkdir()
    called = tmp_path / "deeper" / "called.py"
    called.write_text("a = 1")
    before = cache_folder(tmp_path, "")
    assert before.parent == tmp_path / "__pycache__"
    assert cache_folder(tmp_path, "/elsewhere") == Path("/elsewhere") / before.name
    called.write_text("a = 2")
    cache_folder.cache_clear()  # within a process the code does not change
    assert cache_folder(tmp_path, "") != before


def test_sets_of_cards_count_and_find_their_ends() -> None:
    for cards in (1, 0b101, 1 << 51, (1 << 52) - 1, 0x5A5A5A5A5A5A5):
        members = [card for card in range(52) if cards >> card & 1]
        assert (count(cards), lowest(cards), highest(cards)) == (len(members), members[0], members[-1])
    assert count(0) == 0
