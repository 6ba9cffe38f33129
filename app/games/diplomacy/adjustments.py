"""Retreats and adjustments, and what happens to units without orders."""

from collections.abc import Mapping, Sequence

from flyball.app.games.diplomacy.maps import Map, Unit
from flyball.app.games.diplomacy.movement import BOUNCE, VOID, Movement
from flyball.app.games.diplomacy.orders import BUILD, DISBAND, NOWHERE, RETREAT, WAIVE, Order
from flyball.app.games.diplomacy.position import Dislodged, Position

DISBANDED = "disband"
"""Result of a disbanded unit."""


def retreats_of(board: Map, unit: Unit, attacked_from: int, forbidden: int) -> tuple[int, ...]:
    """Return where a dislodged unit may go.

    Args:
        board: the map.
        unit: the dislodged unit.
        attacked_from: the province of the attacker, NOWHERE if it came by convoy.
        forbidden: the set of provinces that are occupied, or vacant after a standoff.
    """
    if attacked_from != NOWHERE:
        forbidden |= 1 << attacked_from
    return tuple(to for to in board.steps[unit.fleet][unit.at] if not forbidden >> board.province_of[to] & 1)


def after_movement(position: Position, movement: Movement) -> tuple[dict[int, Unit], dict[int, Dislodged]]:
    """Return units and dislodged units after a movement phase."""
    board = position.board
    units = {
        province: unit
        for province, unit in position.units.items()
        if province not in movement.moved and province not in movement.dislodged
    }
    for province, to in movement.moved.items():
        units[board.province_of[to]] = position.units[province]._replace(at=to)
    forbidden = movement.contested
    for province in units:
        forbidden |= 1 << province
    dislodged = {}
    for province, attacker in sorted(movement.dislodged.items()):
        unit = position.units[province]
        dislodged[province] = Dislodged(unit, retreats_of(board, unit, attacker, forbidden))
    return units, dislodged


def retreat(position: Position, orders: Mapping[int, Order]) -> tuple[dict[int, Unit], dict[int, tuple[str, ...]]]:
    """Return units after retreats, and results by province; units without a legal or unique target are disbanded."""
    board = position.board
    goals: dict[int, int] = {}
    results: dict[int, tuple[str, ...]] = {}
    for province, lost in position.dislodged.items():
        order = orders.get(province)
        to = _retreat_target(board, lost, order) if order is not None and order.kind == RETREAT else NOWHERE
        if to != NOWHERE:
            goals[province] = to
        elif order is None or order.kind == DISBAND:
            results[province] = (DISBANDED,)
        else:
            results[province] = (VOID, DISBANDED)
    entered = [board.province_of[to] for to in goals.values()]
    units = dict(position.units)
    for province, to in goals.items():
        if entered.count(board.province_of[to]) > 1:
            results[province] = (BOUNCE, DISBANDED)
        else:
            units[board.province_of[to]] = position.dislodged[province].unit._replace(at=to)
    return units, results


def _retreat_target(board: Map, lost: Dislodged, order: Order) -> int:
    """Return the location of a retreat, NOWHERE if it is not allowed. A coast need not be named if only one is left."""
    if order.to in lost.retreats:
        return order.to
    matching = [to for to in lost.retreats if board.province_of[to] == board.province_of[order.to]]
    named = order.to >= board.provinces and lost.unit.fleet
    return matching[0] if len(matching) == 1 and not named else NOWHERE


def adjust(position: Position, orders: Mapping[int, Sequence[Order]]) -> tuple[dict[int, Unit], list[list[bool]]]:
    """Return the units after adjustments, and which orders were carried out.

    The second value has a flag for each order of each power. Orders count in the order given, as long as the power may
    build or has to disband. Missing disbands follow from ``civil_disorder``; missing builds are waived.
    """
    board = position.board
    units = dict(position.units)
    carried = []
    for power in range(len(board.powers)):
        builds = position.builds(power)
        power_orders = orders.get(power, ())
        done = [False] * len(power_orders)
        left = abs(builds)
        for number, order in enumerate(power_orders):
            if left and _adjust(position, units, power, order, builds > 0):
                done[number] = True
                left -= 1
        for province in civil_disorder(position, power, units, left if builds < 0 else 0):
            del units[province]
        carried.append(done)
    return units, carried


def _adjust(position: Position, units: dict[int, Unit], power: int, order: Order, builds: bool) -> bool:  # noqa: FBT001
    """Carry out one adjustment order; return whether it is legal."""
    board = position.board
    if order.kind == WAIVE:
        return builds
    province = board.province_of[order.at]
    if not builds:
        unit = units.get(province)
        if order.kind != DISBAND or unit is None or (unit.power, unit.fleet) != (power, order.fleet):
            return False
        del units[province]
        return True
    if order.kind != BUILD or province not in position.build_sites(power) or province in units:
        return False
    if order.fleet and (board.inland >> province & 1 or (board.coasts[province] and order.at == province)):
        return False
    units[province] = Unit(power, order.fleet, order.at if order.fleet else province)
    return True


def civil_disorder(position: Position, power: int, units: Mapping[int, Unit], count: int) -> list[int]:
    """Return the provinces of ``count`` units to disband in civil disorder.

    A power loses these units when it orders too few disbands. The farthest from its homes go first, fleets before
    armies, then in alphabetical order. Distances are to the nearest home centre, whoever owns it; see
    ``Map.distances``.
    """
    board = position.board
    own = [province for province, unit in units.items() if unit.power == power]

    def order_of_loss(province: int) -> tuple[int, bool, str]:
        unit = units[province]
        return -board.distances[unit.fleet][power][unit.at], not unit.fleet, board.locations[province]

    return sorted(own, key=order_of_loss)[:count]
