"""Adjudication of movement: deduction, and Szykman's rule for convoy paradoxes.

Each order succeeds or fails, which may depend on other orders. What is known decides some orders, those decide more,
and so on. The orders that are left depend on each other in circles. The solutions of a circle are all ways in which its
orders can succeed or fail without contradiction. A single solution decides the circle. Otherwise the circle is a convoy
paradox, where the convoys that the solutions disagree on fail, or it consists of units that move in a circle, where the
moves succeed.

Terms and choices are those of Lucas B. Kruijswijk's "Diplomacy Adjudicator Test Cases" (DATC) and "The Math of
Adjudication" (The Diplomatic Pouch, 2009). ADR/023-adjudication.md compares the methods, and says which of DATC's
alternatives we chose.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flyball.app.games.diplomacy.maps import Map, Unit, bits
from flyball.app.games.diplomacy.orders import CONVOY, HOLD, MOVE, NOWHERE, SUPPORT, Order

VOID, BOUNCE, CUT, NO_CONVOY, DISRUPTED, DISLODGED = "void", "bounce", "cut", "no convoy", "disrupted", "dislodged"
"""Results of failed orders and dislodged units, as in saved games."""


@dataclass(slots=True)
class Movement:
    """Result of the orders of a movement phase.

    Attributes:
        moved: the new location by the province that the unit has left.
        dislodged: by province of a dislodged unit, the province that the attacker came from; NOWHERE if by convoy.
        contested: the set of provinces that a standoff has left vacant.
        results: by province of a unit, how its order failed, and whether the unit was dislodged.
    """

    moved: dict[int, int] = field(default_factory=dict)
    dislodged: dict[int, int] = field(default_factory=dict)
    contested: int = 0
    results: dict[int, tuple[str, ...]] = field(default_factory=dict)


def why_illegal(board: Map, units: Mapping[int, Unit], order: Order) -> str:
    """Return why a movement order is illegal; '' if it is legal.

    Coasts are read leniently: the coast of the ordered unit, and those of armies, do not count. A fleet's move to a
    province with two coasts names one, unless it reaches only one of them.
    """
    province = board.province_of[order.at]
    unit = units.get(province)
    if unit is None or unit.fleet != order.fleet:
        return "there is no such unit"
    if order.kind == HOLD:
        return ""
    if order.kind == MOVE:
        return "" if move_target(board, units, unit, order) != NOWHERE else "the unit cannot go there"
    if order.kind == SUPPORT:
        return _why_no_support(board, units, unit, order)
    if order.kind == CONVOY:
        return _why_no_convoy(board, units, unit, order)
    return "it is no order of a movement phase"


def move_target(board: Map, units: Mapping[int, Unit], unit: Unit, order: Order) -> int:
    """Return the location where a move ends if it succeeds; NOWHERE if the unit could never go there."""
    to, province = order.to, board.province_of[unit.at]
    target = board.province_of[to]
    if unit.fleet:
        steps = board.steps[1][unit.at]
        if to in steps:
            return to
        reached = [coast for coast in board.coasts[target] if coast in steps]
        return reached[0] if len(reached) == 1 and to == target else NOWHERE
    if board.reach[0][unit.at] >> target & 1:  # with VIA too: without a convoy the army walks
        return target
    by_sea = board.convoy_reach(province, fleets_at_sea(board, units))
    return target if by_sea >> target & 1 else NOWHERE


def fleets_at_sea(board: Map, units: Mapping[int, Unit]) -> int:
    """Return the seas that have a fleet."""
    fleets = 0
    for province in units:
        fleets |= 1 << province
    return fleets & board.seas


def _why_no_support(board: Map, units: Mapping[int, Unit], unit: Unit, order: Order) -> str:
    province, source = board.province_of[unit.at], board.province_of[order.other]
    other = units.get(source)
    if other is None or other.fleet != order.other_fleet or source == province:
        return "there is no such unit to support"
    target = source if order.to == NOWHERE else board.province_of[order.to]
    if not board.reach[unit.fleet][unit.at] >> target & 1:
        return "the unit itself cannot go to the province of the support"
    if order.to == NOWHERE:
        return ""
    if other.fleet:
        able = any(board.province_of[to] == target for to in board.steps[1][other.at])
        able &= order.to in (target, *board.steps[1][other.at])
    else:
        seas = fleets_at_sea(board, units) & ~(1 << province)  # a fleet that supports does not convoy
        able = bool((board.reach[0][other.at] | board.convoy_reach(source, seas)) >> target & 1)
    return "" if able and target != source else "the supported unit cannot go there"


def _why_no_convoy(board: Map, units: Mapping[int, Unit], unit: Unit, order: Order) -> str:
    province, start, target = (board.province_of[location] for location in (unit.at, order.other, order.to))
    other = units.get(start)
    if not unit.fleet or not board.seas >> province & 1:
        return "only a fleet at sea convoys"
    if other is None or other.fleet:
        return "there is no such army to convoy"
    shores = board.shores(connected_fleets(board, province, fleets_at_sea(board, units)))
    return "" if shores >> start & shores >> target & 1 and start != target else "no chain of fleets leads there"


def connected_fleets(board: Map, sea: int, fleets: int) -> int:
    """Return the bit set of ``sea`` and all seas with fleets that a chain of such seas connects with it."""
    connected, edge = 0, 1 << sea
    while edge:
        connected |= edge
        around = 0
        for member in bits(edge):
            around |= board.borders[member]
        edge = around & fleets & ~connected
    return connected


def adjudicate(board: Map, units: Mapping[int, Unit], orders: Mapping[int, Order]) -> Movement:
    """Adjudicate the orders of a movement phase.

    Args:
        board: the map.
        units: all units, by province.
        orders: by province of the unit. A unit without an order, or with an illegal one, holds.
    """
    return _Resolver(board, units, orders).outcome()


class _Resolver:
    """Orders of a phase by province, and what is known so far.

    ``going`` is the province to which a unit moves, NOWHERE if it does not move. ``attackers`` has the provinces whose
    units move to a province, ``helpers`` those whose supports match what a unit does, ``carriers`` those whose convoys
    match an army's move by sea.
    """

    def __init__(self, board: Map, units: Mapping[int, Unit], orders: Mapping[int, Order]) -> None:
        self.board, self.units = board, units
        count = board.provinces
        self.power = [NOWHERE] * count
        for province, unit in units.items():
            self.power[province] = unit.power
        self.kind = [HOLD] * count
        self.going = [NOWHERE] * count
        self.ends = [NOWHERE] * count  # the location where a move ends
        self.target = [NOWHERE] * count  # the province that a support is directed at
        self.attackers: list[list[int]] = [[] for _ in range(count)]
        self.helpers: list[list[int]] = [[] for _ in range(count)]
        self.carriers: dict[int, int] = {}  # sets of fleets; only armies that move by sea have one
        self.results: dict[int, tuple[str, ...]] = {}
        self.success: list[bool | None] = [False] * count  # None: not decided yet
        legal = {}
        for province, order in orders.items():
            if order.kind == HOLD:
                continue
            if board.province_of[order.at] != province or why_illegal(board, units, order):
                self.results[province] = (VOID,)
            else:
                legal[province] = order
        self._read_moves(legal)
        self._read_supports(legal)

    def _read_moves(self, legal: Mapping[int, Order]) -> None:  # noqa: C901 - a rule reads from top to bottom
        convoys: dict[tuple[int, int], int] = {}  # sets of fleets, by start and target
        for province, order in legal.items():
            if order.kind == CONVOY:
                self.kind[province], self.success[province] = CONVOY, None
                start, target = self.board.province_of[order.other], self.board.province_of[order.to]
                convoys[start, target] = convoys.get((start, target), 0) | 1 << province
        used = 0
        for province, order in legal.items():
            if order.kind != MOVE:
                continue
            ends = move_target(self.board, self.units, self.units[province], order)
            going = self.board.province_of[ends]
            self.kind[province], self.going[province], self.ends[province] = MOVE, going, ends
            on_foot = self.board.reach[order.fleet][self.units[province].at] >> going & 1
            fleets = convoys.get((province, going), 0)
            if not on_foot or order.via or self._has_own(fleets, self.units[province].power):
                if self._path(province, going, fleets):
                    self.carriers[province] = fleets
                    used |= fleets
                elif not on_foot:
                    self.results[province] = (NO_CONVOY,)
                    continue
            self.success[province] = None
            self.attackers[going].append(province)
        for fleets in convoys.values():
            for province in bits(fleets & ~used):
                self.results[province], self.success[province] = (VOID,), False

    def _has_own(self, fleets: int, power: int) -> bool:
        """Return whether a power has one of some fleets.

        An order to convoy by the power's own fleet means that its army is to go by sea.
        """
        return any(self.power[fleet] == power for fleet in bits(fleets))

    def _path(self, start: int, target: int, fleets: int) -> bool:
        return bool(fleets) and bool(self.board.convoy_reach(start, fleets) >> target & 1)

    def _read_supports(self, legal: Mapping[int, Order]) -> None:
        province_of = self.board.province_of
        for province, order in legal.items():
            if order.kind != SUPPORT:
                continue
            other = province_of[order.other]
            self.kind[province] = SUPPORT
            if order.to == NOWHERE:
                matches, self.target[province] = self.kind[other] != MOVE, other
            else:
                target = self.target[province] = province_of[order.to]
                ends = self.ends[other]
                matches = self.going[other] == target and (order.to in (target, ends) or not order.other_fleet)
            if matches:
                self.success[province] = None
                self.helpers[other].append(province)
            else:
                self.results[province] = (VOID,)

    def outcome(self) -> Movement:
        """Resolve all orders, and return their result."""
        self._settle()
        movement = Movement(results=self.results)
        for province in self.units:
            if self.kind[province] == MOVE and self.success[province]:
                movement.moved[province] = self.ends[province]
        for province in movement.moved:
            going = self.going[province]
            if going in self.units and going not in movement.moved:
                movement.dislodged[going] = NOWHERE if province in self.carriers else province
        self._describe(movement)
        return movement

    def _describe(self, movement: Movement) -> None:  # noqa: C901 - all kinds of results
        """Add the results of orders, and provinces left vacant by standoffs."""
        occupied = 0
        for province in self.units:
            if province in movement.moved:
                occupied |= 1 << self.going[province]
            elif province not in movement.dislodged:
                occupied |= 1 << province
        for province in self.units:
            kind = self.kind[province]
            if kind == MOVE and province not in self.results and not self.success[province]:
                if not self.arrives(province):
                    self.results[province] = (DISRUPTED,)
                else:
                    self.results[province] = (BOUNCE,)
                    going = self.going[province]
                    if not (self._swaps(province, going) and self.success[going]):
                        movement.contested |= 1 << going
            elif kind == SUPPORT and province not in self.results and not self.success[province]:
                self.results[province] = (CUT,)
            if province in movement.dislodged:
                self.results[province] = (*self.results.get(province, ()), DISLODGED)
        movement.contested &= ~occupied

    def _settle(self) -> None:
        """Decide all orders."""
        left = self._deduce([province for province in sorted(self.units) if self.success[province] is None])
        while left:
            circle = _first_circle({province: self._depends_on(province) & set(left) for province in left})
            solutions = self._solutions(circle)
            settled = solutions[0] if len(solutions) == 1 else self._broken(circle, solutions)
            for province, success in settled.items():
                self.success[province] = success
            left = self._deduce([province for province in left if province not in settled])

    def _deduce(self, left: list[int]) -> list[int]:
        """Decide orders that follow from decided ones; return the undecided rest."""
        before = len(left) + 1
        while len(left) < before:
            before = len(left)
            for province in left:
                self.success[province] = self._succeeds(province)
            left = [province for province in left if self.success[province] is None]
        return left

    def _solutions(self, circle: list[int]) -> list[dict[int, bool]]:
        """Return all ways to decide a circle of orders without contradiction."""
        solutions: list[dict[int, bool]] = []

        def search(left: list[int], guessed: tuple[int, ...]) -> None:
            left = self._deduce(left)
            if any(self._succeeds(province) not in (None, self.success[province]) for province in guessed):
                return
            if not left:
                solutions.append({province: bool(self.success[province]) for province in circle})
            for guess in (False, True) if left else ():
                self.success[left[0]] = guess
                search(left[1:], (*guessed, left[0]))
                for province in left:
                    self.success[province] = None

        search(circle, ())
        for province in circle:
            self.success[province] = None
        return solutions

    def _broken(self, circle: list[int], solutions: list[dict[int, bool]]) -> dict[int, bool]:
        """Return the results of a circle that has no solution, or several.

        Disputed convoys fail by Szykman's rule. If there are none, units that move in a circle succeed.
        """
        disputed = [
            province for province in circle if not solutions or len({solution[province] for solution in solutions}) == 2
        ]
        convoys = {province: False for province in disputed if self.kind[province] == CONVOY}
        moving = {province: True for province in disputed if self._in_circle(province, set(disputed))}
        if not convoys and not moving:
            raise AssertionError("orders hang together neither by a convoy nor by units that move in a circle")
        return convoys or moving

    def _in_circle(self, province: int, members: set[int]) -> bool:
        """Return whether units of ``members`` move in a circle with this one."""
        location = self.going[province]
        for _ in members:
            if location == province:
                return True
            if location not in members:
                return False
            location = self.going[location]
        return False

    def _depends_on(self, province: int) -> set[int]:
        """Return the orders that may have to be known to decide another."""
        kind = self.kind[province]
        if kind == CONVOY:
            return set(self.attackers[province])
        orders: set[int] = set()
        if kind == SUPPORT:
            for attacker in self.attackers[province]:
                by_sea = bits(self.carriers.get(attacker, 0))
                orders.update((attacker,) if attacker == self.target[province] else by_sea)
            return orders
        going = self.going[province]
        orders.update(self.helpers[going], [going] if self.kind[going] == MOVE else [])
        for mover in self.attackers[going]:
            orders.update(self.helpers[mover], bits(self.carriers.get(mover, 0)))
        return orders

    def _succeeds(self, province: int) -> bool | None:
        """Return whether an order succeeds, None if that is still open."""
        kind = self.kind[province]
        if kind == MOVE:
            return self._move_succeeds(province)
        if kind == SUPPORT:
            return _none_of(
                self.success[attacker] if attacker == self.target[province] else self.arrives(attacker)
                for attacker in self.attackers[province]
                if self.power[attacker] != self.power[province]
            )
        return _none_of(self.success[attacker] for attacker in self.attackers[province])  # a convoy

    def _move_succeeds(self, province: int) -> bool | None:
        """Return whether a move succeeds, None if that is still open."""
        arrives = self.arrives(province)
        if arrives is False:
            return False
        least, most, hold_least, hold_most = self._attack(province)
        for rival in self.attackers[self.going[province]]:
            if rival != province:
                rival_least, rival_most = self._hindrance(rival)
                hold_least, hold_most = max(hold_least, rival_least), max(hold_most, rival_most)
        if most <= hold_least:
            return False
        return True if arrives and least > hold_most else None

    def _attack(self, province: int) -> tuple[int, int, int, int]:
        """Return bounds of a move's strength and of its target's defence.

        They are the least and most of the strength, then of the defence. A power does not dislodge its own unit, and
        its supports do not help others to do so.
        """
        going, power = self.going[province], self.power
        strength = self._strength(province)
        leaves = self.success[going] if self.kind[going] == MOVE else False
        swaps = self._swaps(province, going)
        if power[going] == NOWHERE or (leaves and not swaps):
            return (*strength, 0, 0)
        dislodging = (0, 0) if power[going] == power[province] else self._strength(province, power[going])
        holding = self._strength(going) if swaps or self.kind[going] != MOVE else (1, 1)
        if leaves is None and not swaps:
            return dislodging[0], strength[1], 0, holding[1]
        return (*dislodging, *holding)

    def _swaps(self, province: int, target: int) -> bool:
        """Return whether the unit in the target moves to the province of its attacker, and neither goes by sea."""
        return self.going[target] == province and province not in self.carriers and target not in self.carriers

    def _strength(self, province: int, without: int = NOWHERE) -> tuple[int, int]:
        """Return bounds of 1 plus the number of a unit's supports. Supports of the power ``without`` do not count."""
        least = most = 1
        for helper in self.helpers[province]:
            if self.power[helper] != without and self.success[helper] is not False:
                most += 1
                least += self.success[helper] is True
        return least, most

    def _hindrance(self, rival: int) -> tuple[int, int]:
        """Return bounds of the strength with which a move blocks others. The others are moves to the same province."""
        going = self.going[rival]
        arrives, beaten = self.arrives(rival), self.success[going] if self._swaps(rival, going) else False
        if arrives is False or beaten:
            return 0, 0
        least, most = self._strength(rival)
        return (0 if arrives is None or beaten is None else least), most

    def arrives(self, province: int) -> bool | None:
        """Return whether a moving unit gets to the border: by sea only if its convoy holds; None if still open."""
        fleets = self.carriers.get(province)
        if fleets is None:
            return True
        holding = possible = 0
        for fleet in bits(fleets):
            if self.success[fleet] is not False:
                possible |= 1 << fleet
                holding |= self.success[fleet] is True and 1 << fleet
        going = self.going[province]
        if self._path(province, going, holding):
            return True
        return None if self._path(province, going, possible) else False


def _none_of(values: Iterable[bool | None]) -> bool | None:
    """Return whether no value is true; None if unknown values matter."""
    unknown = False
    for value in values:
        if value:
            return False
        unknown |= value is None
    return None if unknown else True


def _first_circle(depends_on: Mapping[int, set[int]]) -> list[int]:
    """Return the smallest set of orders that depend only on each other."""

    def reached(start: int) -> set[int]:
        orders, edge = {start}, [start]
        while edge:
            edge = [other for order in edge for other in depends_on[order] if other not in orders]
            orders.update(edge)
        return orders

    circles = [sorted(reached(order)) for order in depends_on]
    return min(circles, key=lambda circle: (len(circle), circle))
