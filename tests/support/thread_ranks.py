"""Ranks of a training as threads of one process.

They compute the same sums as processes, without the cost of starting them.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Barrier
from typing import Any

from torch import Tensor

from app.learning.ranks import Ranks


@dataclass(frozen=True)
class Meeting:
    """A meeting point at which threads exchange tensors."""

    barrier: Barrier
    brought: dict[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class ThreadRanks(Ranks):
    meeting: Meeting = Meeting(Barrier(1))

    def total(self, tensor: Tensor) -> Tensor:
        self.meeting.brought[self.rank] = tensor.clone()
        self.meeting.barrier.wait(60)
        brought = [self.meeting.brought[rank] for rank in range(self.size)]
        self.meeting.barrier.wait(60)  # because otherwise a quick thread could overwrite its tensor with the next one
        return tensor.copy_(sum(brought[1:], brought[0]))


def in_threads(work: Callable[[Ranks], Any], size: int) -> list[Any]:
    """Return the result of ``work`` on each of ``size`` ranks.

    If it raises an error on a rank, the error is that rank's result.
    """
    meeting = Meeting(Barrier(size))

    def call(rank: int) -> Any:
        try:
            return work(ThreadRanks(rank, size, meeting))
        except Exception as error:  # noqa: BLE001  # the caller compares what the ranks raise
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(call, range(size)))
