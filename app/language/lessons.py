"""Small base models: random weights, trained on a bot's moves."""

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any

import torch

from flyball.app.config import GameConfig
from flyball.app.core import derive_seed
from flyball.app.language.base_model import BaseModel, check_texts, draw_base, train_tokenizer
from flyball.app.language.scoring import answer_logits, log_probs
from flyball.app.language.text_game import TextTable, draw_answer
from flyball.app.language.text_games import open_text_table

TOKENS = 1024
"""Most tokens of a tokenizer trained on a game's text."""

_TOKENIZER_SEATS, _SEATS, _BATCH = 128, 256, 64  # seats of games that are played at once; answers in a step
_WARM_UP = 0.05  # share of the lessons in which the learning rate rises
_OPENING = 8  # most random moves before a lesson, because bots alone would soon repeat themselves
_REPORTS = 10


def small_base(config: GameConfig, seed: int, report: Callable[[int, int, float], None]) -> BaseModel:
    """Return a new base model that plays roughly as the teacher does.

    ``report`` receives the number of parts that are done, the number of all parts, and the loss.
    """
    settings = config.language
    table = open_text_table(config, _TOKENIZER_SEATS // config.players)
    texts = [prompt + answer for prompt, answer in bot_answers(table, "random", derive_seed(seed, "tokenizer"))]
    base = draw_base(
        train_tokenizer(texts, TOKENS),
        derive_seed(seed, "base") % 2**32,
        layers=settings.base_layers,
        width=settings.base_width,
        heads=settings.base_heads,
    )
    check_texts(base, config)  # before the lessons, because they take minutes
    _teach(base, config, derive_seed(seed, "lessons"), report)
    return base


def bot_answers(table: TextTable, bot: str, seed: int) -> Iterator[tuple[str, str]]:
    """Yield the prompts and answers of a bot's games against itself, one in each slot, from random openings."""
    slots = range(len(table.running()))
    rng = Random(seed)
    table.reset(slots, [rng.getrandbits(62) for _ in slots], [rng.randint(0, _OPENING) for _ in slots])
    while turns := table.pending():
        for turn in turns:
            answer = draw_answer(turn.answers, rng) if bot == "random" else table.bot(bot, turn, rng)
            yield turn.prompt, answer
            table.submit(turn.slot, turn.seat, answer)
        table.advance()


def _lessons(
    config: GameConfig, encode: Callable[[str], list[int]], seed: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield token ids of prompts and the teacher's answers without end, in random order within each batch of games."""
    table, number, rng = open_text_table(config, _SEATS // config.players), 0, Random(seed)
    while True:
        games = bot_answers(table, config.language.teacher, derive_seed(seed, "games", number))
        pairs = list(games)
        rng.shuffle(pairs)
        yield from ((encode(prompt), encode(answer)) for prompt, answer in pairs)
        number += 1


def _teach(base: BaseModel, config: GameConfig, seed: int, report: Callable[[int, int, float], None]) -> None:
    """Train all weights of a base model on the teacher's answers."""
    settings, model = config.language, base.model
    steps = settings.lessons // _BATCH
    lessons = _lessons(config, base.encode, seed)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=settings.lesson_rate, weight_decay=0.01)
    for step in range(steps):
        share = (step + 1) / steps
        rate = settings.lesson_rate * min(share / _WARM_UP, (1 - share) / (1 - _WARM_UP) + 0.01)
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = list(islice(lessons, _BATCH))
        answers = [answer for _, answer in batch]
        logits = answer_logits(model, [prompt for prompt, _ in batch], answers)
        scores, _ = log_probs(logits, answers, [()] * len(batch), [1.0] * len(batch))
        loss = -scores.sum(1).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        part = (step + 1) * _REPORTS // steps
        if part > step * _REPORTS // steps:
            report(part, _REPORTS, float(loss.detach()))
