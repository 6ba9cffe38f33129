"""Games of Diplomacy, compared phase by phase with the package ``diplomacy``.

Its license is AGPL, so that it serves only as an oracle of tests.
"""

import random

from flyball.app.games.diplomacy.game import Ending, Game
from flyball.app.games.diplomacy.legal import legal_orders
from flyball.app.games.diplomacy.orders import CONVOY, HOLD, MOVE, NOWHERE, SUPPORT, WAIVE, Order, write_order
from flyball.app.games.diplomacy.position import ADJUSTMENTS, MOVEMENT, Position
from flyball.app.games.diplomacy.standard import STANDARD


def lively_orders(position: Position, rng: random.Random) -> list[list[Order]]:  # noqa: C901
    """Return random orders of all powers. Many of them support or convoy other orders."""
    legal = [legal_orders(position, power) for power in range(len(position.board.powers))]
    if position.phase.kind == ADJUSTMENTS:
        return [adjustments(position, power, legal[power], rng) for power in range(len(legal))]
    chosen = {province: rng.choice(orders) for own in legal for province, orders in own.items()}
    if position.phase.kind == MOVEMENT:
        board = position.board
        for own in legal:
            for province, orders in own.items():
                if rng.random() < 0.6:
                    fitting = [order for order in orders if fits(board.province_of, order, chosen)]
                    if fitting:
                        chosen[province] = rng.choice(fitting)
        for province, order in chosen.items():
            if differs_by_decision(position, province, order, chosen):
                chosen[province] = Order(HOLD, order.fleet, order.at)
    return [[chosen[province] for province in own] for own in legal]


def fits(province_of, order, chosen):
    if order.kind not in (SUPPORT, CONVOY):
        return False
    other = chosen[province_of[order.other]]
    if order.to == NOWHERE:
        return other.kind != MOVE
    return other.kind == MOVE and province_of[order.to] == province_of[other.to]


def differs_by_decision(position, province, order, chosen):
    """Return whether the package deliberately judges a support differently. See ADR-023."""
    if order.kind != SUPPORT or order.to == NOWHERE:
        return False
    board = position.board
    target = position.units.get(board.province_of[order.to])
    against_own = target is not None and target.power == position.units[province].power
    wrong_coast = order.to >= board.provinces and chosen[board.province_of[order.other]].to != order.to
    return against_own or wrong_coast


def adjustments(position, power, legal, rng):
    count = abs(position.builds(power))
    sites = rng.sample(sorted(legal), count)
    orders = [rng.choice(legal[site]) for site in sites]
    if orders and position.builds(power) > 0 and rng.random() < 0.1:
        orders[-1] = Order(WAIVE)
    return orders if rng.random() < 0.8 or position.builds(power) > 0 else []


def ours(position: Position):
    """Return a position's units, retreats, centres and builds. They have the package's names."""
    board, places = position.board, position.board.locations
    units, retreats, centers, builds = {}, {}, {}, {}
    for power, name in enumerate(board.powers):
        units[name] = sorted(f"{'FA'[not unit.fleet]} {places[unit.at]}" for unit in position.units_of(power))
        centers[name] = sorted(places[center] for center in position.centers_of(power))
        retreats[name] = {
            f"{'FA'[not lost.unit.fleet]} {places[lost.unit.at]}": sorted(places[to] for to in lost.retreats)
            for lost in position.dislodged.values()
            if lost.unit.power == power
        }
        builds[name] = position.builds(power) if position.phase.kind == ADJUSTMENTS else 0
    return {"units": units, "retreats": retreats, "centers": centers, "builds": builds}


def occupied_by(game):
    """Return the codes of the provinces with undislodged units. The units are those in the package's position."""
    return {unit[2:5] for units in game.get_state()["units"].values() for unit in units if unit[0] != "*"}


def offers_occupied(game):
    """Return whether the package offers a retreat to an occupied province."""
    retreats = [to for power in game.get_state()["retreats"].values() for options in power.values() for to in options]
    return any(to[:3] in occupied_by(game) for to in retreats)


def theirs(game):
    """Return the package's position, without retreats to occupied provinces.

    The package offers such retreats after convoyed attacks.
    """
    state, occupied = game.get_state(), occupied_by(game)
    return {
        "units": {name: sorted(u for u in units if u[0] != "*") for name, units in state["units"].items()},
        "retreats": {
            n: {u: sorted(to for to in options if to[:3] not in occupied) for u, options in r.items()}
            for n, r in state["retreats"].items()
        },
        "centers": {name: sorted(centers) for name, centers in state["centers"].items()},
        "builds": {name: builds["count"] for name, builds in state["builds"].items()},
    }


def compare(seed: int, last_year: int = 1907) -> list[str]:
    """Play a game by both rules; return the first differences.

    They are all differences of the first phase that differs.
    """
    from diplomacy import Game as Oracle

    rng = random.Random(seed)
    game, oracle = Game(STANDARD, Ending(last_year=last_year)), Oracle()
    while game.outcome is None and not oracle.is_game_done:
        orders = lively_orders(game.position, rng)
        for power, name in enumerate(STANDARD.powers):
            oracle.set_orders(name, [write_order(STANDARD, order) for order in orders[power]])
        before = game.position
        turn = game.play(dict(zip(STANDARD.powers, orders, strict=True)))
        oracle.process()
        phase = "COMPLETED" if oracle.is_game_done else oracle.get_current_phase()
        a, b = ours(game.position), theirs(oracle)
        found = [f"{key}: ours {a[key]}\n  theirs {b[key]}" for key in a if a[key] != b[key]]
        if phase != game.position.phase.name and offers_occupied(oracle):
            return found  # the package begins a phase of retreats for such offers alone
        if game.outcome is None and phase != game.position.phase.name:
            found.append(f"phase: ours {game.position.phase.name}, theirs {phase}")
        if found:
            texts = {n: [write_order(STANDARD, o) for o in own] for n, own in zip(STANDARD.powers, orders, strict=True)}
            return [
                f"game {seed} {before.phase.name}",
                *found,
                str(texts),
                str(turn.results),
                str(oracle.result_history.last_value() if oracle.result_history else ""),
            ]
    return []
