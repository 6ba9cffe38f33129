"""Orders and adjudication of Diplomacy, also in positions that no game reaches."""

from random import Random

from diplomacy_oracle import lively_orders
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from flyball.app.games.diplomacy import movement
from flyball.app.games.diplomacy.game import Ending, Game, play_phase
from flyball.app.games.diplomacy.legal import in_order, legal_orders, next_orders
from flyball.app.games.diplomacy.maps import Unit
from flyball.app.games.diplomacy.orders import BadOrder, Order, parse_order, write_order
from flyball.app.games.diplomacy.position import ADJUSTMENTS, MOVEMENT, Phase, Position
from flyball.app.games.diplomacy.small import SMALL
from flyball.app.games.diplomacy.standard import STANDARD

BOARDS = st.sampled_from([STANDARD, SMALL])
SEEDS = st.integers(0, 2**32)


def crowded(board, rng: Random) -> Position:
    """Return a position with units of all powers in any provinces."""
    units = {}
    for province in range(board.provinces):
        if rng.random() < 0.5:
            fleet = bool(board.seas >> province & 1) or (not board.inland >> province & 1 and rng.random() < 0.4)
            at = rng.choice(board.coasts[province]) if fleet and board.coasts[province] else province
            units[province] = Unit(rng.randrange(len(board.powers)), fleet, at)
    return Position(board, Phase(1901, "S", MOVEMENT), units, {}, {}, {})


@given(BOARDS, SEEDS)
@settings(deadline=None, max_examples=examples(60))
def test_every_legal_order_is_accepted_and_keeps_its_text(board, seed):
    position = crowded(board, Random(seed))
    for power in range(len(board.powers)):
        for orders in legal_orders(position, power).values():
            for order in orders:
                assert not movement.why_illegal(board, position.units, order), write_order(board, order)
                assert parse_order(board, write_order(board, order)) == order


@given(st.text("AFHSCRDBWIVE -/NPLOYTM", max_size=30) | st.text(max_size=40))
@settings(deadline=None)
def test_any_text_is_an_order_or_a_clear_error(text):
    try:
        written = write_order(STANDARD, parse_order(STANDARD, text))
    except BadOrder as error:
        written = text if error.message and error.hint else ""
    assert written == text


PLACES = st.sampled_from(STANDARD.locations)


@given(st.sampled_from("AF"), PLACES, st.sampled_from(["H", "D", "B", "- {}", "R {}", "S A {}", "S F {} - {}",
                                                       "C A {} - {}", "- {} VIA"]), PLACES, PLACES)  # fmt: skip
def test_orders_that_parse_write_back_the_same(kind, at, rest, first, second):
    text = f"{kind} {at} {rest.format(first, second)}"
    try:
        order = parse_order(STANDARD, text)
    except BadOrder:
        return
    assert write_order(STANDARD, order) == text


@given(BOARDS, SEEDS)
@settings(deadline=None, max_examples=examples(120))
def test_results_are_consistent_for_any_sequence_of_orders(board, seed):
    rng = Random(seed)
    position = crowded(board, rng)
    orders = [order for own in lively_orders(position, rng) for order in own]
    by_province = {board.province_of[order.at]: order for order in orders}
    rng.shuffle(orders)
    shuffled = {board.province_of[order.at]: order for order in orders}
    units = dict(rng.sample(sorted(position.units.items()), len(position.units)))
    found = movement.adjudicate(board, position.units, by_province)
    again = movement.adjudicate(board, units, shuffled)
    assert (found.moved, found.contested, found.results) == (again.moved, again.contested, again.results)
    assert found.dislodged == again.dislodged

    judge = movement._Resolver(board, position.units, by_province)
    judge.outcome()
    for province in position.units:
        failed = judge.results.get(province, ())[:1]
        paradox = judge.kind[province] == "C" and not judge.success[province]
        if judge.kind[province] != "H" and failed not in ((movement.VOID,), (movement.NO_CONVOY,)) and not paradox:
            assert judge._succeeds(province) == judge.success[province]


@given(BOARDS, SEEDS)
@settings(deadline=None, max_examples=examples(25))
def test_provinces_hold_one_unit_and_units_vanish_for_a_reason(board, seed):
    rng = Random(seed)
    game = Game(board, Ending(last_year=1904))
    while game.outcome is None:
        before = game.position
        game.play(dict(zip(board.powers, lively_orders(before, rng), strict=True)))
        after = game.position
        assert all(board.province_of[unit.at] == province for province, unit in after.units.items())
        if before.phase.kind == MOVEMENT and after.phase.kind != ADJUSTMENTS:
            lost = {unit.power for unit in before.units.values()} - {unit.power for unit in after.units.values()}
            assert lost <= {lost.unit.power for lost in after.dislodged.values()} | set(range(len(board.powers)))
            assert len(before.units) >= len(after.units) + len(after.dislodged)
        if after.phase.season == "S" and after.phase.kind == MOVEMENT:
            assert all(units <= centers for centers, units in after.counts())


@given(BOARDS, SEEDS)
@settings(deadline=None, max_examples=examples(25))
def test_orders_one_by_one_are_those_of_the_phase(board, seed):
    rng = Random(seed)
    game = Game(board, Ending(last_year=1903))
    while game.outcome is None:
        orders = lively_orders(game.position, rng)
        for power, own in enumerate(orders):
            if game.position.phase.kind == ADJUSTMENTS and len(own) < abs(game.position.builds(power)):
                continue
            given_so_far: list[Order] = []
            for order in in_order(game.position, power, own):
                assert order in next_orders(game.position, power, given_so_far)
                given_so_far.append(order)
            assert not next_orders(game.position, power, given_so_far)
        game.play(dict(zip(board.powers, orders, strict=True)))


def test_a_void_order_is_a_hold():
    position = crowded(STANDARD, Random(5))
    void = [[Order("-", unit.fleet, unit.at, unit.at) for unit in position.units_of(power)] for power in range(7)]
    after, results = play_phase(position, void)
    assert after.units == position.units
    assert set(results.values()) == {("void",)}
