"""Built-in players: hold, random, chaos, defensive, territorial and coordinated.

A bot is a function of a position, a power and a random generator, and returns legal orders for all units of the power.
The last three look one phase ahead, and do not take the orders of others into account.
"""

from collections.abc import Callable
from functools import cache
from random import Random

from flyball.app.games.diplomacy.adjustments import civil_disorder
from flyball.app.games.diplomacy.legal import legal_orders
from flyball.app.games.diplomacy.maps import UNREACHABLE, Map, Unit
from flyball.app.games.diplomacy.orders import DISBAND, HOLD, MOVE, RETREAT, SUPPORT, Order
from flyball.app.games.diplomacy.position import ADJUSTMENTS, MOVEMENT, Position

Bot = Callable[[Position, int, Random], list[Order]]


def hold_bot(position: Position, power: int, rng: Random) -> list[Order]:  # noqa: ARG001 - the signature of bots
    """Hold with all units, and build nothing.

    Dislodged units are disbanded. Required disbands take the units farthest from home.
    """
    if position.phase.kind == ADJUSTMENTS:
        return _disbands(position, power)
    return [
        next(order for order in orders if order.kind in (HOLD, DISBAND))
        for orders in legal_orders(position, power).values()
    ]


def random_bot(position: Position, power: int, rng: Random) -> list[Order]:
    """Draw from the legal orders of each unit. The bot builds or disbands as much as possible."""
    legal = legal_orders(position, power)
    provinces = sorted(legal)
    if position.phase.kind == ADJUSTMENTS:
        provinces = rng.sample(provinces, abs(position.builds(power)))
    return [rng.choice(legal[province]) for province in provinces]


def chaos_bot(position: Position, power: int, rng: Random) -> list[Order]:
    """Move or retreat with every unit that can, anywhere. Otherwise the bot plays as the random bot."""
    if position.phase.kind == ADJUSTMENTS:
        return random_bot(position, power, rng)
    chosen = []
    for _, orders in sorted(legal_orders(position, power).items()):
        moves = [order for order in orders if order.kind in (MOVE, RETREAT)]
        chosen.append(rng.choice(moves or orders))
    return chosen


def defensive_bot(position: Position, power: int, rng: Random) -> list[Order]:
    """Garrison own centres that others could enter; other units support the garrisons, or approach such centres."""
    if position.phase.kind != MOVEMENT:
        return _between_movements(position, power, rng)
    board = position.board
    threatened = {center for center in position.centers_of(power) if _enemies_near(position, power, center)}
    units = position.units_of(power)
    orders: dict[int, Order] = {}
    open_centers = [center for center in sorted(threatened) if center not in position.units]
    for unit in units:
        province = board.province_of[unit.at]
        if province in threatened:
            orders[province] = Order(HOLD, unit.fleet, unit.at)
    for unit in units:
        province = board.province_of[unit.at]
        goals = [to for to in board.steps[unit.fleet][unit.at] if board.province_of[to] in open_centers]
        if province not in orders and goals:
            to = rng.choice(goals)
            open_centers.remove(board.province_of[to])
            orders[province] = Order(MOVE, unit.fleet, unit.at, to)
    for unit in units:
        province = board.province_of[unit.at]
        if province not in orders:
            orders[province] = _help(position, unit, orders, rng) or _approach(position, unit, threatened, orders, rng)
    return list(orders.values())


def territorial_bot(position: Position, power: int, rng: Random) -> list[Order]:
    """Move each unit towards the nearest centre not yet owned. No two units move into one province."""
    if position.phase.kind != MOVEMENT:
        return _between_movements(position, power, rng)
    goals = set(position.board.centers) - set(position.centers_of(power))
    orders: dict[int, Order] = {}
    for unit in rng.sample(units := position.units_of(power), len(units)):
        province = position.board.province_of[unit.at]
        waits = province in goals and position.phase.season == "F"  # it gets the centre by staying there
        orders[province] = Order(HOLD, unit.fleet, unit.at) if waits else _approach(position, unit, goals, orders, rng)
    return list(orders.values())


def coordinated_bot(position: Position, power: int, rng: Random) -> list[Order]:  # noqa: C901
    """Attack centres with as many supports as the defence seems to need. The other units support or approach."""
    if position.phase.kind != MOVEMENT:
        return _between_movements(position, power, rng)
    board = position.board
    own = set(position.centers_of(power))
    goals = set(board.centers) - own
    orders: dict[int, Order] = {}
    for unit in position.units_of(power):
        province = board.province_of[unit.at]
        if position.phase.season == "F" and province in goals:
            orders[province] = Order(HOLD, unit.fleet, unit.at)
    for goal in sorted(goals, key=lambda goal: (_resistance(position, power, goal), rng.random())):
        _attack(position, power, goal, orders)
    for unit in position.units_of(power):
        province = board.province_of[unit.at]
        if province in own and province not in orders and _enemies_near(position, power, province) > 1:
            orders[province] = Order(HOLD, unit.fleet, unit.at)
    for unit in rng.sample(units := position.units_of(power), len(units)):
        province = board.province_of[unit.at]
        if province not in orders:
            orders[province] = _help(position, unit, orders, rng) or _approach(position, unit, goals, orders, rng)
    return list(orders.values())


BOTS: dict[str, Bot] = {
    "random": random_bot,
    "hold": hold_bot,
    "chaos": chaos_bot,
    "defensive": defensive_bot,
    "territorial": territorial_bot,
    "coordinated": coordinated_bot,
}
"""The bots by name."""


def _enemies_near(position: Position, power: int, province: int) -> int:
    """Return the number of other powers' units one step from a province."""
    reach = position.board.reach
    return sum(unit.power != power and reach[unit.fleet][unit.at] >> province & 1 for unit in position.units.values())


def _resistance(position: Position, power: int, goal: int) -> int:
    """Return the strength that an attack on a province seems to need: more than may defend or want it."""
    occupant = position.units.get(goal)
    rivals = _enemies_near(position, power, goal)
    if occupant is None:
        return 1 + min(rivals, 1)
    return UNREACHABLE if occupant.power == power else 2 + min(rivals, 1)


def _attack(position: Position, power: int, goal: int, orders: dict[int, Order]) -> None:
    """Order a supported attack on a province if enough units are free."""
    board = position.board
    free = [
        unit
        for unit in position.units_of(power)
        if board.province_of[unit.at] not in orders and board.reach[unit.fleet][unit.at] >> goal & 1
    ]
    needed = _resistance(position, power, goal)
    if len(free) < (needed if goal in position.units else 1) or _is_occupied(position, goal, orders):
        return
    mover, *helpers = free
    to = next(to for to in board.steps[mover.fleet][mover.at] if board.province_of[to] == goal)
    orders[board.province_of[mover.at]] = Order(MOVE, mover.fleet, mover.at, to)
    for helper in helpers[: needed - 1]:
        help_ = Order(SUPPORT, helper.fleet, helper.at, goal, mover.at, mover.fleet)
        orders[board.province_of[helper.at]] = help_


def _is_occupied(position: Position, province: int, orders: dict[int, Order]) -> bool:
    """Return whether an ordered unit goes to a province or stays there."""
    board = position.board
    return (province in orders and orders[province].kind != MOVE) or any(
        order.kind == MOVE and board.province_of[order.to] == province for order in orders.values()
    )


def _help(position: Position, unit: Unit, orders: dict[int, Order], rng: Random) -> Order | None:
    """Return a support of another unit's move or hold with an enemy near its target, or None."""
    board, supports = position.board, []
    for province, order in orders.items():
        target = board.province_of[order.to] if order.kind == MOVE else province
        near = board.reach[unit.fleet][unit.at] >> target & 1
        if order.kind in (MOVE, HOLD) and near and _enemies_near(position, unit.power, target):
            to = target if order.kind == MOVE else -1
            supports.append(Order(SUPPORT, unit.fleet, unit.at, to, order.at, order.fleet))
    return rng.choice(supports) if supports else None


def _approach(position: Position, unit: Unit, goals: set[int], orders: dict[int, Order], rng: Random) -> Order:
    """Return a step towards the nearest goal; a hold if each such step is blocked by a unit of the same power."""
    board = position.board
    far = _distances(board, unit.fleet)

    def left(at: int) -> int:
        return min((far[at][goal] for goal in goals), default=UNREACHABLE)

    def blocked(to: int) -> bool:
        province = board.province_of[to]
        other = position.units.get(province)
        stays = other is not None and other.power == unit.power and province not in orders
        return stays or _is_occupied(position, province, orders)

    steps = [to for to in board.steps[unit.fleet][unit.at] if left(to) < left(unit.at) and not blocked(to)]
    if not steps:
        return Order(HOLD, unit.fleet, unit.at)
    nearest = min(left(to) for to in steps)
    return Order(MOVE, unit.fleet, unit.at, rng.choice([to for to in steps if left(to) == nearest]))


@cache
def _distances(board: Map, fleet: bool) -> list[list[int]]:  # noqa: FBT001
    """Return the steps from each location to each province."""
    return [_steps_from(board, fleet, start) for start in range(len(board.locations))]


def _steps_from(board: Map, fleet: bool, start: int) -> list[int]:  # noqa: FBT001
    distances = [UNREACHABLE] * board.provinces
    reached, edge, count = {start}, [start], 0
    while edge:
        for at in edge:
            distances[board.province_of[at]] = min(count, distances[board.province_of[at]])
        edge = [to for to in dict.fromkeys(to for at in edge for to in board.steps[fleet][at]) if to not in reached]
        reached.update(edge)
        count += 1
    return distances


def _between_movements(position: Position, power: int, rng: Random) -> list[Order]:
    """Return the orders of a retreat or adjustment phase.

    Units retreat into a centre if possible. Builds go where most enemies are near. Disbands take the units farthest
    from home.
    """
    board = position.board
    if position.phase.kind == ADJUSTMENTS:
        if position.builds(power) < 0:
            return _disbands(position, power)
        sites = position.build_sites(power)
        sites.sort(key=lambda site: (-_enemies_near(position, power, site), rng.random()))
        legal = legal_orders(position, power)
        return [rng.choice(legal[site]) for site in sites[: position.builds(power)]]
    chosen = []
    for _, orders in sorted(legal_orders(position, power).items()):
        retreats = [order for order in orders if order.kind == RETREAT]
        good = [order for order in retreats if board.province_of[order.to] in board.centers]
        chosen.append(rng.choice(good or retreats or orders))
    return chosen


def _disbands(position: Position, power: int) -> list[Order]:
    lost = civil_disorder(position, power, position.units, max(-position.builds(power), 0))
    return [Order(DISBAND, position.units[province].fleet, position.units[province].at) for province in lost]
