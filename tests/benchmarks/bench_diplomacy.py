"""Diplomacy: random games by our rules and by the package ``diplomacy``.

Run with ``pytest tests/benchmarks/bench_diplomacy.py -m benchmark -s``, the package installed. The ratio is asserted,
not the figures.
"""

import sys
from random import Random
from statistics import median
from time import process_time

import pytest

from app.games.diplomacy import BOTS, STANDARD, Ending, Game, legal_orders, play_phase

pytestmark = [pytest.mark.benchmark, pytest.mark.filterwarnings("ignore")]
ROUNDS = 3
GAMES = 5
LAST_YEAR = 1920


def ours(seed: int) -> int:
    """Play a game of random orders; return its phases."""
    rng, game = Random(seed), Game(STANDARD, Ending(last_year=LAST_YEAR))
    while game.outcome is None:
        position = game.position
        game.play({name: BOTS["random"](position, power, rng) for power, name in enumerate(STANDARD.powers)})
    return len(game.turns)


def theirs(seed: int) -> int:
    """Play a game of random orders by the package, as its README does."""
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


def seconds(play, seeds) -> float:
    begin = process_time()
    for seed in seeds:
        play(seed)
    return (process_time() - begin) / len(seeds)


def test_random_games_take_a_tenth_of_the_oracles_time():
    pytest.importorskip("diplomacy", reason="pip install 'flyball[diplomacy-oracle]'")
    ours(0), theirs(0)  # both compute tables at their first game
    rounds = [range(k * GAMES, (k + 1) * GAMES) for k in range(ROUNDS)]
    own = [seconds(ours, seeds) for seeds in rounds]
    other = [seconds(theirs, seeds) for seeds in rounds]
    ratio = median(other) / median(own)
    sys.stdout.write(f"\nours {1 / median(own):.1f} games/s, the package {1 / median(other):.2f}: {ratio:.1f}x\n")
    assert median(other) > 10 * median(own)


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
