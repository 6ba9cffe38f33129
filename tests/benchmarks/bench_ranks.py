"""A training by two processes against one process.

It shows the wall time and processor time of an epoch, with one thread and with two. Run with
``pytest tests/benchmarks/bench_ranks.py -m benchmark -s``.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter

import numpy as np
import psutil
import pytest
import torch

from flyball.app.config import CPU, GAMES, NetworkSettings, PpoSettings
from flyball.app.games import open_table
from flyball.app.learning.jobs import first_model
from flyball.app.learning.learner import improve
from flyball.app.learning.network import threads
from flyball.app.learning.samples import Samples
from flyball.app.learning.torchrun import run_on_ranks
from flyball.app.store import MemoryStore, get_checkpoint, put_checkpoint

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]
ROWS = 1024
SETTINGS = PpoSettings(learning_rate=1e-5, batch_size=512, epochs=4, target_kl=100, max_kl=100, min_entropy=0)
PROGRAM = "flyball.app.learning.rank_process"


def lesson() -> Callable[..., object]:
    """Return a training of an othello tower on invented rows. The tower has 4 blocks of 32 channels."""
    config = GAMES["othello_2p"].replace(network=NetworkSettings(kind="tower", blocks=4, channels=32))
    game, rng = open_table(config, 0).spec, np.random.default_rng(0)
    store = MemoryStore()
    base = get_checkpoint(store, put_checkpoint(store, *first_model(config, game, 0), None))
    mask = rng.random((ROWS, game.actions)) < 0.2
    mask[:, 0] = True
    noise = torch.from_numpy(rng.normal(size=ROWS).astype(np.float32))
    samples = Samples(
        obs=torch.from_numpy(rng.integers(0, 2, (ROWS, game.observation_size), dtype=np.uint8)),
        mask=torch.from_numpy(mask),
        action=torch.zeros((ROWS, 1), dtype=torch.int64),
        temperature=torch.ones((ROWS, 1)),
        log_prob=-torch.from_numpy(mask.sum(axis=1).astype(np.float32)).log(),
        value=torch.zeros(ROWS),
        advantage=noise,
        target=noise,
    )
    return partial(improve, base, samples, SETTINGS, seed=1)


def processor_seconds(processes: int) -> float:
    """Return the processor time so far of the training processes."""
    own = psutil.Process()
    ranks = [own] if processes == 1 else [rank for rank in own.children(recursive=True) if is_rank(rank)]
    return sum(sum(rank.cpu_times()[:2]) for rank in ranks)


def is_rank(process: psutil.Process) -> bool:
    command = process.cmdline()
    return PROGRAM in command and "--module" not in command


def an_epoch(work: Callable[..., object], processes: int, count: int) -> tuple[float, float, float]:
    """Return wall and processor seconds of an epoch after the first.

    The third value is the wall seconds until the end of the first epoch.
    """
    begun, marks = perf_counter(), []

    def report(_epoch: int, _metrics: object) -> None:
        ending = len(marks) == SETTINGS.epochs - 1  # by then ranks may have ended
        marks.append((perf_counter(), marks[-1][1] if ending else processor_seconds(processes)))

    with threads(count):
        run_on_ranks(work, CPU.replace(processes=processes), report=report)
    (first, used), (last, used_then) = marks[0], marks[-2]
    epochs = SETTINGS.epochs - 2
    return (last - first) / epochs, (used_then - used) / epochs, first - begun


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize(("processes", "count"), [(2, 1), (1, 2)], ids=["two_processes", "two_threads"])
def test_pair_with_one_process_of_one_thread(processes: int, count: int, number: int) -> None:
    work = lesson()
    (one, used, _), (both, together_used, begin) = (an_epoch(work, *kind) for kind in ((1, 1), (processes, count)))
    print(  # noqa: T201
        f"\n1 process: {ROWS / one:,.0f} rows/s; {processes} processes of {count} threads: {ROWS / both:,.0f} rows/s, "
        f"{one / both:.2f} times as fast, {together_used / used:.2f} times the processor time, {begin:.0f} s to the "
        "first epoch's end"
    )
    assert both > 0
