"""Rollouts of text games. In each phase, the turns of all games and seats are answered together."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from flyball.app.core import derive_seed
from flyball.app.language.generator import Completion, Generator, PromptRequest, Sampling
from flyball.app.language.text_game import TextTable, draw_answer, parts_of

HERO = 0
"""The agent whose answers are recorded: the first of the list."""


@dataclass(frozen=True, slots=True)
class TextPlayer:
    """A player: an adapter, the base model itself, or a bot."""

    adapter: str | None = None  # name of a loaded adapter; None: the base model
    bot: str | None = None  # name of a built-in player, if it is one
    temperature: float = 1.0
    constrained: bool = True  # answers are drawn among the legal ones


@dataclass(frozen=True, slots=True, eq=False)
class TextSchedule:
    """The games of a rollout."""

    starts: Sequence[int]  # number of the start of each of G games; games of one start begin alike
    seeds: Sequence[int]  # of each start
    openings: Sequence[int]  # of each start: random phases
    seating: NDArray[np.int8]  # [G, P] which agent sits where
    seed: int  # of the agents' choices, together with a game's number
    first: int = 0  # number of the first game; a schedule played in parts has the same games


@dataclass(frozen=True, slots=True)
class HeroAnswer:
    """A hero's answer."""

    game: int
    seat: int
    step: int
    completion: Completion
    legal: bool  # it was played; otherwise a random answer was played instead


@dataclass(frozen=True, slots=True, eq=False)
class TextOutcomes:
    """Results of G games of P seats."""

    returns: NDArray[np.float32]  # [G, P]
    scores: NDArray[np.float32]  # [G, P]
    truncated: NDArray[np.bool_]  # [G]
    lengths: NDArray[np.int64]  # [G] answers, of all seats
    openings: NDArray[np.int64]  # [G] random answers among them, the first ones
    histories: list[list[tuple[int, str]]]  # what was played


def play_texts(
    table: TextTable,
    agents: Sequence[TextPlayer],
    schedule: TextSchedule,
    generator: Generator | None,
    *,
    most_tokens: int,
) -> tuple[TextOutcomes, list[HeroAnswer]]:
    """Play a schedule, a game in each slot of ``table`` at once; return outcomes and the hero's answers."""
    games, seats = schedule.seating.shape
    outcomes = TextOutcomes(
        returns=np.zeros((games, seats), np.float32),
        scores=np.zeros((games, seats), np.float32),
        truncated=np.zeros(games, np.bool_),
        lengths=np.zeros(games, np.int64),
        openings=np.zeros(games, np.int64),
        histories=[[] for _ in range(games)],
    )
    answers: list[HeroAnswer] = []
    slots = len(table.running())
    for first in range(0, games, slots):
        numbers = range(first, min(first + slots, games))
        begun = list(range(len(numbers)))
        starts = [schedule.starts[game] for game in numbers]
        _begin(table, [schedule.seeds[start] for start in starts], [schedule.openings[start] for start in starts])
        outcomes.openings[numbers] = [len(table.history(slot)) for slot in begun]
        answers += _play_batch(
            table, agents, schedule, generator, most_tokens=most_tokens, first=first, count=len(numbers)
        )
        outcomes.returns[numbers], outcomes.scores[numbers] = table.returns()[begun], table.scores()[begun]
        outcomes.truncated[numbers] = table.truncated()[begun]
        for slot, game in zip(begun, numbers, strict=True):
            outcomes.histories[game] = table.history(slot)
            outcomes.lengths[game] = len(outcomes.histories[game])
    return outcomes, answers


def _begin(table: TextTable, seeds: Sequence[int], openings: Sequence[int]) -> None:
    """Begin a game in each of the first slots, with a shorter opening if chance alone would decide it."""
    plies, slots = list(openings), list(range(len(seeds)))
    while slots:
        table.reset(slots, [seeds[slot] for slot in slots], [plies[slot] for slot in slots])
        running = table.running()
        slots = [slot for slot in slots if plies[slot] and not running[slot]]
        for slot in slots:
            plies[slot] -= 1


def _play_batch(
    table: TextTable,
    agents: Sequence[TextPlayer],
    schedule: TextSchedule,
    generator: Generator | None,
    *,
    most_tokens: int,
    first: int,
    count: int,
) -> list[HeroAnswer]:
    """Play the begun games to their ends; return the hero's answers.

    They are the games ``first`` to ``first + count - 1`` of the schedule, in the first ``count`` slots.
    """
    answers: list[HeroAnswer] = []
    step = 0
    while turns := [turn for turn in table.pending() if turn.slot < count]:
        for number, agent in enumerate(agents):
            mine = [turn for turn in turns if schedule.seating[first + turn.slot, turn.seat] == number]
            if not mine:
                continue
            seeds = [derive_seed(schedule.seed, schedule.first + first + turn.slot, turn.seat, step) for turn in mine]
            if agent.bot is not None:
                for turn, seed in zip(mine, seeds, strict=True):
                    table.submit(turn.slot, turn.seat, table.bot(agent.bot, turn, Random(seed)))
                continue
            assert generator is not None  # because the agent is a model
            completions = generator.generate(
                [
                    PromptRequest(turn.prompt, agent.adapter, turn.answers if agent.constrained else None, seed)
                    for turn, seed in zip(mine, seeds, strict=True)
                ],
                Sampling(agent.temperature, table.spec.stop, most_tokens),
            )
            for turn, completion, seed in zip(mine, completions, seeds, strict=True):
                legal = parts_of(turn.answers, completion.text) is not None
                table.submit(
                    turn.slot, turn.seat, completion.text if legal else draw_answer(turn.answers, Random(seed))
                )
                if number == HERO:
                    answers.append(HeroAnswer(first + turn.slot, turn.seat, step, completion, legal))
        table.advance()
        step += 1
    return answers
