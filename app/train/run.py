"""The training loop of every backend: collect, update, evaluate, checkpoint.

An iteration depends only on the state and the policy that it begins with, the settings and the seed. So an interrupted
run repeats the iterations after its last checkpoint exactly, and then continues.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any, Generic, Protocol, TypeVar

from flyball.app.core import Clock
from flyball.app.learning.network import threads
from flyball.app.store import Checkpoint
from flyball.app.train.iteration import PHASES, D, E, Games, Iteration, Learned, Sink
from flyball.app.train.state import TrainingFolder, TrainingState


class Result(Protocol):
    """Result of a finished run."""

    @property
    def summary(self) -> str:
        """Text in Markdown, for the reader."""

    def json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""


S = TypeVar("S", bound=TrainingState)


class Method(Protocol[S, D, E]):
    """A backend's part of a training run; state and policy are arguments, because the loop keeps them."""

    folder: TrainingFolder
    iterations: int  # of the whole run
    evaluate_every: int  # iterations; the last one is always evaluated
    save_every: int  # iterations between checkpoints
    threads: int  # of PyTorch
    say: Callable[[str], None]  # receives lines for the reader

    def open(self) -> None:
        """Begin or continue the run in its folder, which is held. Raises ``RunExists`` for a new run in a used one."""

    def sinks(self, clock: Clock, fresh_id: str) -> Iterator[Sink[E]]:
        """Yield the sinks that the settings ask for; ``fresh_id`` is part of the ID of a new W&B run."""
        yield from ()

    def saved(self) -> S | None:
        """Return the last checkpoint, or None before the first."""

    def first(self) -> Checkpoint:
        """Make and store the first policy."""

    def begin(self, policy: Checkpoint, evaluation: E) -> S:
        """Return the state before the first iteration."""

    def ended(self, state: S) -> str | None:
        """Return why the run ends, or None if it goes on. Raises ``TooManyDivergences``."""

    def collect(self, state: S, policy: Checkpoint) -> Games[D]:
        """Play an iteration's games."""

    def update(self, state: S, policy: Checkpoint, games: Games[D], lap: Callable[[str], None]) -> Learned:
        """Learn from the games; ``lap("advantages")`` says that the samples are ready."""

    def evaluate(self, policy: Checkpoint, number: int) -> E:
        """Evaluate the policy after iteration ``number``; 0 is the first policy."""

    def advance(self, state: S, games: Games[D], learned: Learned, evaluation: E | None) -> tuple[S, bool]:
        """Return the state after an iteration, and True if its policy is the best so far and was stored."""

    def show(self, iteration: Iteration[E]) -> None:
        """Say what an iteration did."""

    def save(self, state: S, policy: Checkpoint) -> None:
        """Save a checkpoint, and the report so far."""

    def end(self, state: S, policy: Checkpoint, reason: str) -> None:
        """End the run for ``reason``; by default save it again, because a killed run may have left an older report."""
        self.save(state, policy)

    def finish(self, state: S) -> Result:
        """Report on a run that has ended."""


@dataclass(slots=True, eq=False)
class TrainingRun(Generic[S, D, E]):
    """The loop of a run, new or resumed."""

    method: Method[S, D, E]
    sinks: Sequence[Sink[E]] = ()  # receive every iteration

    def run(self) -> S:
        """Train until the run ends; return its final state.

        An interrupt discards the iteration that is under way, and saves a checkpoint of those before it.
        """
        method = self.method
        state, policy = self._begun()
        while (reason := method.ended(state)) is None:
            try:
                state, policy = self._iterate(state, policy)
            except KeyboardInterrupt:
                saved = method.saved()
                if saved is None or saved.iteration < state.iteration:  # otherwise its models may be gone
                    method.save(state, policy)
                raise
        method.end(state, policy, reason)
        return state

    def _begun(self) -> tuple[S, Checkpoint]:
        method = self.method
        if (state := method.saved()) is not None:
            return state, method.folder.model(state.model)
        policy = method.first()
        evaluation = method.evaluate(policy, 0)
        state = method.begin(policy, evaluation)
        for sink in self.sinks:
            sink.begin(evaluation)
        method.save(state, policy)
        return state, policy

    def _iterate(self, state: S, policy: Checkpoint) -> tuple[S, Checkpoint]:
        method, number = self.method, state.iteration + 1
        begun, laps = process_time(), [perf_counter()]
        seconds = dict.fromkeys(PHASES, 0.0)

        def lap(phase: str) -> None:
            laps.append(perf_counter())
            seconds[phase] = laps[-1] - laps[-2]

        games = method.collect(state, policy)
        lap("collect")
        learned = method.update(state, policy, games, lap)
        lap("update")
        due = number % method.evaluate_every == 0 or number == method.iterations
        evaluation = method.evaluate(learned.policy, number) if due else None
        lap("evaluate")
        after, best = method.advance(state, games, learned, evaluation)
        lap("checkpoint")
        seconds |= {"total": sum(seconds.values()), "processor": process_time() - begun}
        iteration = Iteration(
            number=number,
            games=games.games,
            rows=games.rows,
            mean_return=games.mean_return,
            mean_points=games.mean_points,
            metrics=learned.metrics,
            evaluation=evaluation,
            best=best,
            recovered=learned.complaint is not None,
            seconds=seconds,
            distributions=learned.distributions and learned.distributions(),
        )
        method.show(iteration)
        for sink in self.sinks:
            sink.write(iteration)
        if number % method.save_every == 0:  # after all sinks, because a resumed run does not repeat this iteration
            method.save(after, learned.policy)
        return after, learned.policy


def train(method: Method[S, D, E], clock: Clock, fresh_id: str, *sinks: Sink[E]) -> Result:
    """Train in the method's folder until the run ends, and report on it.

    The method's own sinks follow ``sinks``; see ``Method.sinks`` for ``fresh_id``. Raises ``RunExists``, ``RunInUse``,
    ``TooManyDivergences``, and what the backend's games and updates raise.
    """
    with method.folder.held(), threads(method.threads), ExitStack() as stack:
        method.open()
        opened = [stack.enter_context(closing(sink)) for sink in method.sinks(clock, fresh_id)]
        return method.finish(TrainingRun(method, (*sinks, *opened)).run())
