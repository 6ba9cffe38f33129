"""The contract of text games, for every game of the catalogue."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from every_answer import every_answer

from flyball.app.language.text_game import (
    IllegalAnswer,
    TextTable,
    draw_answer,
    parts_of,
    ranks,
)
from flyball.app.language.text_games import TEXT_GAMES

GAMES = 4
MOST_PHASES = 2_000


@pytest.fixture(params=sorted(TEXT_GAMES))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def played(table: TextTable, seed: int, opening: int = 0, bot: str = "random") -> list[list[str]]:
    """Play whole games; return the prompts and answers of each slot."""
    slots = list(range(len(table.running())))
    table.reset(slots, [seed + slot for slot in slots], [opening] * len(slots))
    rng, said = Random(seed), [[] for _ in slots]
    for _ in range(MOST_PHASES):
        turns = table.pending()
        if not turns:
            return said
        for turn in turns:
            answer = table.bot(bot, turn, rng)
            said[turn.slot] += [turn.prompt, answer]
            table.submit(turn.slot, turn.seat, answer)
        table.advance()
    raise AssertionError(f"a game is not over after {MOST_PHASES} phases")


def test_same_seeds_and_answers_give_the_same_games(name: str) -> None:
    first, second = TEXT_GAMES[name](GAMES, None), TEXT_GAMES[name](GAMES, None)
    assert played(first, 1) == played(second, 1)
    assert (first.returns() == second.returns()).all()
    assert [first.history(slot) for slot in range(GAMES)] == [second.history(slot) for slot in range(GAMES)]
    assert played(first, 2) != played(second, 1)


def test_whole_games_have_returns_prompts_bots_and_a_limit(name: str) -> None:
    table = TEXT_GAMES[name](GAMES, None)
    played(table, 3)
    returns = table.returns()
    assert not table.running().any()
    assert returns.shape == table.scores().shape == (GAMES, table.spec.players)
    assert np.allclose(returns.sum(axis=1), 0, atol=1e-5)
    assert (np.abs(returns) <= 1).all()
    assert returns.any(), "no game had a winner"
    for seats in range(GAMES):  # whoever scores more has at least the same return
        order = np.argsort(table.scores()[seats])
        assert (np.diff(returns[seats][order]) >= 0).all()
    table = TEXT_GAMES[name](GAMES, None)
    for said in played(table, 4):
        assert said
        for prompt, answer in zip(said[::2], said[1::2], strict=True):
            assert prompt.startswith(table.spec.preamble)
            assert answer.endswith(table.spec.stop)
            assert answer.count(table.spec.stop) == 1
    table = TEXT_GAMES[name](GAMES, None)
    assert table.spec.bots[0] == "random"
    for bot in table.spec.bots:
        assert all(played(table, 9, bot=bot))
    table = TEXT_GAMES[name](GAMES, 2)
    played(table, 10)
    assert table.truncated().all()
    assert np.isfinite(table.returns()).all()


def test_no_option_is_a_prefix_of_another_one(name: str) -> None:
    table, rng = TEXT_GAMES[name](GAMES, None), Random(5)
    table.reset(range(GAMES), range(GAMES), [0] * GAMES)
    for _ in range(10):
        for turn in table.pending():
            parts: tuple[str, ...] = ()
            while options := turn.answers.options(parts):
                assert not any(later.startswith(sooner) for sooner, later in pairwise(sorted(options)))
                assert len(set(options)) == len(options)
                parts = (*parts, rng.choice(options))
            assert parts_of(turn.answers, "".join(parts)) == parts
            table.submit(turn.slot, turn.seat, "".join(parts))
        table.advance()


def test_answers_are_checked_and_slots_wait_for_all_seats(name: str) -> None:
    table, rng = TEXT_GAMES[name](2, None), Random(6)
    table.reset([0, 1], [0, 1], [0, 0])
    turn = table.pending()[0]
    legal = draw_answer(turn.answers, rng)
    for answer in ("", "nonsense\n", legal + legal, legal.removesuffix(table.spec.stop)):
        assert parts_of(turn.answers, answer) is None
        with pytest.raises(IllegalAnswer, match="Seat"):
            table.submit(turn.slot, turn.seat, answer)
    table.submit(turn.slot, turn.seat, legal)
    with pytest.raises(IllegalAnswer):  # a second answer of the same seat
        table.submit(turn.slot, turn.seat, legal)
    table, rng = TEXT_GAMES[name](2, None), Random(7)
    table.reset([0, 1], [0, 1], [0, 0])
    for turn in table.pending():
        if turn.slot == 0:
            table.submit(turn.slot, turn.seat, draw_answer(turn.answers, rng))
    waiting = [turn.prompt for turn in table.pending() if turn.slot == 1]
    assert not [turn for turn in table.pending() if turn.slot == 0]
    table.advance()
    assert [turn.prompt for turn in table.pending() if turn.slot == 1] == waiting
    assert [turn for turn in table.pending() if turn.slot == 0]


def test_game_is_played_again_from_seed_and_history(name: str) -> None:
    table, again = TEXT_GAMES[name](1, None), TEXT_GAMES[name](1, None)
    played(table, 8, opening=2)
    again.reset([0], [8], [0])
    for seat, answer in table.history(0):
        assert again.running()[0]
        again.submit(0, seat, answer)
        again.advance()
    assert not again.running()[0]
    assert (again.returns() == table.returns()).all()


def test_openings_are_drawn_from_the_seed(name: str) -> None:
    table = TEXT_GAMES[name](3, None)
    table.reset([0, 1, 2], [1, 1, 2], [2, 2, 2])
    prompts = {turn.slot: turn.prompt for turn in table.pending()}
    assert prompts[0] == prompts[1]
    assert table.history(0) == table.history(1) != table.history(2)


def test_ranks_of_equal_scores_are_shared() -> None:
    scores = np.array([[3, 1, 3, 2], [0, 0, 0, 0]], dtype=np.float32)
    assert ranks(scores).tolist() == [[1, 4, 1, 3], [1, 1, 1, 1]]


def test_answers_of_several_parts_are_those_of_their_options() -> None:
    class Two:
        def options(self, parts: tuple[str, ...]) -> tuple[str, ...]:
            return (
                (("a ", "b "), tuple(unit for unit in ("a\n", "b\n") if unit[0] != parts[0][0]) if parts else ())[
                    len(parts)
                ]
                if len(parts) < 2
                else ()
            )

    assert every_answer(Two()) == ["a b\n", "b a\n"]
    assert parts_of(Two(), "a a\n") is None
