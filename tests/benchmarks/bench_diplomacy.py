"""Diplomacy: random games by our rules and by the package ``diplomacy``.

Run with ``pytest tests/benchmarks/bench_diplomacy.py -m benchmark -s``, the package installed. The ratio is asserted,
not the figures.
"""

import sys
from random import Random
from statistics import median
from time import process_time

import pytest

from flyball.app.games.diplomacy import BOTS, STANDARD, Ending, Game, legal_orders, play_phase, write_order

pytestmark = [pytest.mark.benchmark, pytest.mark.filterwarnings("ignore")]
ROUNDS = 5
GAMES = 4
LAST_YEAR = 1920


def ours(seed: int) -> Game:
    """Play a game of random orders."""
    rng, game = Random(seed), Game(STANDARD, Ending(last_year=LAST_YEAR))
    while game.outcome is None:
        position = game.position
        game.play({name: BOTS["random"](position, power, rng) for power, name in enumerate(STANDARD.powers)})
    return game


def theirs(seed: int) -> int:
    """Play a random game by the package, as its README does."""
    from diplomacy import Game as Oracle

    rng, game, phases = Random(seed), Oracle(), 0
    while not game.is_game_done and int(game.get_current_phase()[1:5]) <= LAST_YEAR:
        possible = game.get_all_possible_orders()
        for name in game.powers:
            places = [place for place in game.get_orderable_locations(name) if possible[place]]
            game.set_orders(name, [rng.choice(possible[place]) for place in places])
        game.process()
        phases += 1
    return phases


def recorded(seed: int) -> list[dict[str, list[str]]]:
    """Return the orders of a random game, phase by phase. Our rules play it."""
    return [
        {
            name: [write_order(STANDARD, order) for order in own]
            for name, own in zip(STANDARD.powers, turn.orders, strict=True)
        }
        for turn in ours(seed).turns
    ]


def judged(phases: list[dict[str, list[str]]]) -> None:
    """Judge a recorded game by our rules, from its texts."""
    game = Game(STANDARD, Ending(last_year=LAST_YEAR))
    for orders in phases:
        game.play(orders)


def judged_by_oracle(phases: list[dict[str, list[str]]]) -> None:
    """Judge a recorded game by the package."""
    from diplomacy import Game as Oracle

    game = Oracle()
    for orders in phases:
        for name, texts in orders.items():
            game.set_orders(name, texts)
        game.process()


def seconds(play, games) -> float:
    begin = process_time()
    for game in games:
        play(game)
    return (process_time() - begin) / len(games)


@pytest.mark.parametrize(
    ("own", "other", "games", "ratio"),
    [(judged, judged_by_oracle, recorded, 10), (ours, theirs, int, 5)],
    ids=["judging", "judging-and-listing"],
)
def test_random_games_take_a_fraction_of_the_oracles_time(own, other, games, ratio):
    pytest.importorskip("diplomacy", reason="pip install 'flyball[diplomacy-oracle]'")
    own(games(0)), other(games(0))  # warm up, because both compute tables at their first game
    rounds = [[games(seed) for seed in range(k * GAMES, (k + 1) * GAMES)] for k in range(ROUNDS)]
    mine, its = (median(seconds(play, chunk) for chunk in rounds) for play in (own, other))
    sys.stdout.write(f"\nours {1 / mine:.1f} games/s, the package {1 / its:.2f}: {its / mine:.1f}x\n")
    assert its > ratio * mine


def test_judging_a_movement_phase():
    times, rng = [], Random(1)
    for _ in range(20):
        game = Game(STANDARD, Ending(last_year=1903))
        while game.outcome is None:
            position = game.position
            orders = [BOTS["random"](position, power, rng) for power in range(len(STANDARD.powers))]
            begin = process_time()
            play_phase(position, orders)
            if position.phase.kind == "M":
                times.append(process_time() - begin)
            game.play(dict(zip(STANDARD.powers, orders, strict=True)))
    begin = process_time()
    listed = [sum(map(len, legal_orders(game.position, power).values())) for power in range(7)]
    sys.stdout.write(f"\na movement phase {1e6 * median(times):.0f} µs; {sum(listed)} legal orders at the end\n")
