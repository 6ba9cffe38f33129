"""Legal orders: by unit, order by order, and as tries of characters."""

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

from flyball.app.games.diplomacy.maps import Map, bits
from flyball.app.games.diplomacy.movement import connected_fleets, fleets_at_sea
from flyball.app.games.diplomacy.orders import (
    BUILD,
    CONVOY,
    DISBAND,
    HOLD,
    MOVE,
    NOWHERE,
    RETREAT,
    SUPPORT,
    WAIVE,
    Order,
)
from flyball.app.games.diplomacy.position import ADJUSTMENTS, MOVEMENT, Position


@lru_cache(maxsize=512)
def legal_orders(position: Position, power: int) -> dict[int, list[Order]]:
    """Return the legal orders of a power in the position's phase.

    The orders are by the province of the unit or build site. In an adjustment phase, the power gives as many of them as
    ``Position.builds`` says, no two in one province.
    """
    if position.phase.kind == MOVEMENT:
        return _moves(position).of(power)
    if position.phase.kind == ADJUSTMENTS:
        return _adjustments(position, power)
    return {
        province: [
            *(Order(RETREAT, lost.unit.fleet, lost.unit.at, to) for to in lost.retreats),
            Order(DISBAND, lost.unit.fleet, lost.unit.at),
        ]
        for province, lost in sorted(position.dislodged.items())
        if lost.unit.power == power
    }


def next_orders(position: Position, power: int, previous: Sequence[Order]) -> list[Order]:
    """Return the legal orders that may follow those already given.

    The list is empty if the power has given all. Units, builds and disbands are in the alphabetical order of their
    provinces, and waived builds come last. So each set of orders can be given in one way only.
    """
    legal = legal_orders(position, power)
    provinces = sorted(legal)
    if position.phase.kind != ADJUSTMENTS:
        return legal[provinces[len(previous)]] if len(previous) < len(provinces) else []
    builds = position.builds(power)
    missing = abs(builds) - len(previous)
    if not missing:
        return []
    if previous and previous[-1].kind == WAIVE:
        return [Order(WAIVE)]
    last = position.board.province_of[previous[-1].at] if previous else -1
    left = [province for province in provinces if province > last]
    if builds < 0:
        left = left[: len(left) - missing + 1]  # later ones would leave too few
    orders = [order for province in left for order in legal[province]]
    return orders if builds < 0 else [*orders, Order(WAIVE)]


def in_order(position: Position, power: int, orders: Sequence[Order]) -> list[Order]:
    """Return legal orders in the order of ``next_orders``; missing builds are waived."""
    board = position.board
    ordered = sorted((order for order in orders if order.kind != WAIVE), key=lambda order: board.province_of[order.at])
    if position.phase.kind == ADJUSTMENTS:
        ordered += [Order(WAIVE)] * (position.builds(power) - len(ordered))
    return ordered


@lru_cache(maxsize=256)
def _moves(position: Position) -> "Moves":
    """Return the legal moves of a position, computed once for all powers."""
    return Moves(position)


def _adjustments(position: Position, power: int) -> dict[int, list[Order]]:
    board, builds = position.board, position.builds(power)
    if builds < 0:
        units = position.units_of(power)
        return {board.province_of[unit.at]: [Order(DISBAND, unit.fleet, unit.at)] for unit in units}
    sites = position.build_sites(power) if builds else []
    return {site: [Order(BUILD, fleet, at) for fleet, at in _buildable(board, site)] for site in sites}


def _buildable(board: Map, site: int) -> Iterable[tuple[bool, int]]:
    yield False, site
    if not board.inland >> site & 1:
        yield from ((True, at) for at in board.coasts[site] or (site,))


class Moves:
    """The legal orders of a movement phase.

    A unit may support any other unit, of any power, in anything that the other unit might do. An army moves by sea, and
    a fleet convoys it, wherever a chain of fleets could carry it.
    """

    def __init__(self, position: Position) -> None:
        board = self._board = position.board
        self._units = position.units
        self._fleets = fleets_at_sea(board, self._units)
        self._by_sea: dict[int, int] = {}  # the set of provinces that an army reaches by convoy, by its province
        for province, unit in self._units.items():
            if not unit.fleet and board.borders[province] & self._fleets:
                self._by_sea[province] = board.convoy_reach(province, self._fleets)

    def of(self, power: int) -> dict[int, list[Order]]:
        """Return the legal orders of a power's units, by province."""
        return {province: self.of_unit(province) for province, unit in self._units.items() if unit.power == power}

    def of_unit(self, province: int) -> list[Order]:
        """Return the legal orders of the unit in a province."""
        board, units = self._board, self._units
        _, fleet, at = units[province]
        orders = list(_own_orders(board, fleet, at))
        if province in self._by_sea:
            orders += [_by_sea(board, at, target) for target in bits(self._by_sea[province])]
        at_sea, near, reach = self._fleets >> province & 1, board.near[fleet][at], board.reach[fleet][at]
        for source, (_, other_fleet, other) in units.items():
            if near >> source & 1 and source != province:
                orders += _supports(board, fleet, at, other_fleet, other)
        for source, by_sea in self._by_sea.items():
            for target in bits(by_sea & reach & ~board.reach[0][source]):
                if source != province and not (at_sea and self._needs(province, source, target)):
                    orders.append(_support(board, fleet, at, source, target))
        if at_sea:
            orders += self._convoys(province, at)
        return orders

    def _needs(self, helper: int, source: int, target: int) -> bool:
        """Return whether an army needs the convoy of ``helper``, which cannot support it then, to reach a province."""
        return not self._board.convoy_reach(source, self._fleets & ~(1 << helper)) >> target & 1

    def _convoys(self, province: int, at: int) -> list[Order]:
        board = self._board
        shores = board.shores(connected_fleets(board, province, self._fleets))
        starts = [start for start in self._by_sea if shores >> start & 1]
        return [_convoy(board, at, start, target) for start in starts for target in bits(shores & ~(1 << start))]


@cache
def _own_orders(board: Map, fleet: bool, at: int) -> tuple[Order, ...]:  # noqa: FBT001
    """Return the orders to hold and to move a step."""
    return (Order(HOLD, fleet, at), *(Order(MOVE, fleet, at, to) for to in board.steps[fleet][at]))


@cache
def _by_sea(board: Map, at: int, target: int) -> Order:  # noqa: ARG001 - each map has orders of its own
    return Order(MOVE, at=at, to=target, via=True)


@cache
def _convoy(board: Map, at: int, start: int, target: int) -> Order:  # noqa: ARG001
    return Order(CONVOY, fleet=True, at=at, to=target, other=start)


@cache
def _support(board: Map, fleet: bool, at: int, source: int, target: int) -> Order:  # noqa: ARG001, FBT001
    """Return the order that supports an army's move by sea."""
    return Order(SUPPORT, fleet, at, target, source)


@cache
def _supports(board: Map, fleet: bool, at: int, other_fleet: bool, other: int) -> tuple[Order, ...]:  # noqa: FBT001
    """Return supports of another unit's hold or steps, with and without naming the coast of a step."""
    province_of, reach = board.province_of, board.reach[fleet][at]
    places = {NOWHERE} if reach >> province_of[other] & 1 else set()
    for to in board.steps[other_fleet][other]:
        if reach >> province_of[to] & 1:
            places |= {province_of[to], to}
    return tuple(Order(SUPPORT, fleet, at, to, other, other_fleet) for to in sorted(places))


def trie(texts: Iterable[str]) -> dict[str, dict]:  # type: ignore[type-arg]
    """Return texts as a trie: nested dictionaries by character, with an empty one at the end of a text."""
    root: dict[str, dict] = {}  # type: ignore[type-arg]
    for text in texts:
        node = root
        for character in text:
            node = node.setdefault(character, {})
    return root
