"""Ranks of a training as threads of one process: the same sums as among processes, without their start."""

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
        self.meeting.barrier.wait(60)  # otherwise a quick thread would bring its next tensor already
        return tensor.copy_(sum(brought[1:], brought[0]))


def in_threads(work: Callable[[Ranks], Any], size: int) -> list[Any]:
    """Return what ``work`` returns on each of ``size`` ranks, or the error that it raises there."""
    meeting = Meeting(Barrier(size))

    def call(rank: int) -> Any:
        try:
            return work(ThreadRanks(rank, size, meeting))
        except Exception as error:  # noqa: BLE001  # the caller compares what the ranks raise
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(call, range(size)))
