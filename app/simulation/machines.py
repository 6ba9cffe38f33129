"""Machines, whose running jobs share the cores."""

from collections.abc import Callable
from dataclasses import dataclass

from flyball.app.core.clock import SECOND_US
from flyball.app.simulation.agenda import Agenda, Envelopes

Finish = Callable[[int], Envelopes]
"""Function from the virtual time, microseconds since 1970, to the facts about a finished job."""


@dataclass(slots=True, eq=False)
class Task:
    """A job on a machine.

    Attributes:
        remaining: seconds that it would take with a core for each of its processes.
        processes: number of processes that do it.
        source: its daemon.
        number: counts the changes of its pace; appointments of earlier paces are stale.
    """

    remaining: float
    processes: int
    source: str
    finish: Finish
    number: int = 0


class Machine:
    """Runs tasks at once. All their processes share the cores equally, each with at most a core."""

    def __init__(self, cores: int, agenda: Agenda) -> None:
        self._cores, self._agenda = cores, agenda
        self._tasks: list[Task] = []
        self._pace = 1.0
        self._settled_us = agenda.now_us

    def start(self, seconds: float, processes: int, source: str, finish: Finish) -> Task:
        """Start a task of ``seconds`` of work for each of its processes; ``finish`` is called at its end."""
        task = Task(seconds, processes, source, finish)
        self._settle()
        self._tasks.append(task)
        if not self._change_pace():
            self._schedule(task)
        return task

    def stop(self, task: Task) -> None:
        """End a task without calling its ``finish``."""
        self._settle()
        self._tasks.remove(task)
        self._change_pace()

    def _settle(self) -> None:
        """Do the work of the time since the last change."""
        done = self._pace * (self._agenda.now_us - self._settled_us) / SECOND_US
        for task in self._tasks:
            task.remaining -= done
        self._settled_us = self._agenda.now_us

    def _change_pace(self) -> bool:
        """Set the processes' pace, and schedule all tasks' ends if it changed. Return whether it did."""
        processes = sum(task.processes for task in self._tasks)
        before, self._pace = self._pace, min(1.0, self._cores / max(1, processes))
        if self._pace == before:
            return False
        for task in self._tasks:
            self._schedule(task)
        return True

    def _schedule(self, task: Task) -> None:
        task.number += 1
        number = task.number

        def finish(now_us: int) -> Envelopes:
            if task.number != number or task not in self._tasks:
                return ()
            self.stop(task)
            return task.finish(now_us)

        self._agenda.enter(task.remaining / self._pace, task.source, finish)
