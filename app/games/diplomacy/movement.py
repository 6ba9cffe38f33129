"""Adjudication of movement: Kruijswijk's algorithm, with Szykman's rule for convoy paradoxes.

Each order of a unit succeeds or fails, and whether it does may depend on others. ``_Resolver.resolve`` asks for those
recursively. Where it comes back to an order that it is just resolving, it guesses that the order fails, and then that it
succeeds. If both guesses lead to the same result, that is it. Otherwise the orders hang together in a circle, which has
two causes only: units that move in a circle, all of which succeed, or a convoy paradox, in which the convoys fail.

Source: Lucas B. Kruijswijk, "The Math of Adjudication" (The Diplomatic Pouch, 2009); terms and choices after his
"Diplomacy Adjudicator Test Cases" (DATC). ADR/050-adjudication.md says which of its alternatives are ours.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.games.diplomacy.maps import Map, Unit, bits
from app.games.diplomacy.orders import CONVOY, HOLD, MOVE, NOWHERE, SUPPORT, Order

VOID, BOUNCE, CUT, NO_CONVOY, DISRUPTED, DISLODGED = "void", "bounce", "cut", "no convoy", "disrupted", "dislodged"
"""Results of orders, in the words of saved games. An order that succeeds has none."""

_UNRESOLVED, _GUESSED, _RESOLVED = range(3)


@dataclass(slots=True)
class Movement:
    """What the orders of a movement phase led to.

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
    """Return why a unit cannot be given an order of the movement phase; '' if it can.

    Coasts are read leniently: that of the ordered unit, and those of armies, do not count. A fleet's move to a
    province with two coasts names one, unless it reaches only one of them.
    """
    here = board.province_of[order.at]
    unit = units.get(here)
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
    """Return the location where a move ends if it succeeds; NOWHERE if no unit could go there from its place."""
    to, here = order.to, board.province_of[unit.at]
    target = board.province_of[to]
    if unit.fleet:
        steps = board.steps[1][unit.at]
        if to in steps:
            return to
        reached = [coast for coast in board.coasts[target] if coast in steps]
        return reached[0] if len(reached) == 1 and to == target else NOWHERE
    if board.reach[0][unit.at] >> target & 1:  # with VIA too: without a convoy the army walks
        return target
    by_sea = board.convoy_reach(here, fleets_at_sea(board, units))
    return target if by_sea >> target & 1 else NOWHERE


def fleets_at_sea(board: Map, units: Mapping[int, Unit]) -> int:
    """Return the seas that have a fleet."""
    fleets = 0
    for province in units:
        fleets |= 1 << province
    return fleets & board.seas


def _why_no_support(board: Map, units: Mapping[int, Unit], unit: Unit, order: Order) -> str:
    here, source = board.province_of[unit.at], board.province_of[order.other]
    other = units.get(source)
    if other is None or other.fleet != order.other_fleet or source == here:
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
        seas = fleets_at_sea(board, units) & ~(1 << here)  # a fleet that supports does not convoy
        able = bool((board.reach[0][other.at] | board.convoy_reach(source, seas)) >> target & 1)
    return "" if able and target != source else "the supported unit cannot go there"


def _why_no_convoy(board: Map, units: Mapping[int, Unit], unit: Unit, order: Order) -> str:
    here, start, target = (board.province_of[place] for place in (unit.at, order.other, order.to))
    other = units.get(start)
    if not unit.fleet or not board.seas >> here & 1:
        return "only a fleet at sea convoys"
    if other is None or other.fleet:
        return "there is no such army to convoy"
    shores = board.shores(connected_fleets(board, here, fleets_at_sea(board, units)))
    return "" if shores >> start & shores >> target & 1 and start != target else "no chain of fleets leads there"


def connected_fleets(board: Map, sea: int, fleets: int) -> int:
    """Return the seas with fleets that are connected with one of them."""
    found, edge = 0, 1 << sea
    while edge:
        found |= edge
        around = 0
        for member in bits(edge):
            around |= board.borders[member]
        edge = around & fleets & ~found
    return found


def adjudicate(board: Map, units: Mapping[int, Unit], orders: Mapping[int, Order]) -> Movement:
    """Return what orders of a movement phase lead to.

    Args:
        board: the map.
        units: all units, by province.
        orders: by province of the unit. A unit without an order, or with an illegal one, holds.
    """
    return _Resolver(board, units, orders).outcome(sorted(units))


class _Resolver:
    """The orders of a phase, by province, and what is known of their success.

    ``going`` is the province where a unit moves, NOWHERE if it does not move. ``attackers`` has the provinces whose
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
        self.carriers: dict[int, int] = {}  # sets; only armies that move by sea have one
        self.results: dict[int, tuple[str, ...]] = {}
        self.state = [_UNRESOLVED] * count
        self.success = [False] * count
        self.guessed: list[int] = []  # orders whose result depends on a guess, in the order of their discovery
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

    def _read_moves(self, legal: Mapping[int, Order]) -> None:
        convoys: dict[tuple[int, int], int] = {}  # sets of fleets, by start and target
        for province, order in legal.items():
            if order.kind == CONVOY:
                self.kind[province] = CONVOY
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
            if not on_foot or order.via or self._own(fleets, self.units[province].power):
                if self._path(province, going, fleets):
                    self.carriers[province] = fleets
                    used |= fleets
                elif not on_foot:
                    self.results[province] = (NO_CONVOY,)
                    self.state[province] = _RESOLVED
                    continue
            self.attackers[going].append(province)
        for fleets in convoys.values():
            for province in bits(fleets & ~used):
                self.results[province] = (VOID,)

    def _own(self, fleets: int, power: int) -> bool:
        """Return whether a power has one of some fleets: its own convoy says that an army is to go by sea."""
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
                self.helpers[other].append(province)
            else:
                self.results[province] = (VOID,)

    def outcome(self, provinces: Iterable[int]) -> Movement:
        """Resolve all orders, in any order of provinces, and return what they lead to."""
        for province in provinces:
            if self.kind[province] != HOLD:
                self.resolve(province)
        found = Movement(results=self.results)
        for province in self.units:
            if self.kind[province] == MOVE and self.success[province]:
                found.moved[province] = self.ends[province]
        for province in found.moved:
            going = self.going[province]
            if going in self.units and going not in found.moved:
                found.dislodged[going] = NOWHERE if province in self.carriers else province
        self._describe(found)
        return found

    def _describe(self, found: Movement) -> None:
        """Add the results of orders, and the provinces that standoffs have left vacant."""
        occupied = 0
        for province in self.units:
            if province in found.moved:
                occupied |= 1 << self.going[province]
            elif province not in found.dislodged:
                occupied |= 1 << province
        for province in self.units:
            kind = self.kind[province]
            if kind == MOVE and province not in self.results and not self.success[province]:
                if not self.arrives(province):
                    self.results[province] = (DISRUPTED,)
                else:
                    self.results[province] = (BOUNCE,)
                    if not self._beaten_by_opponent(province):
                        found.contested |= 1 << self.going[province]
            elif kind == SUPPORT and province not in self.results and not self.success[province]:
                self.results[province] = (CUT,)
            if province in found.dislodged:
                self.results[province] = (*self.results.get(province, ()), DISLODGED)
        found.contested &= ~occupied

    def resolve(self, province: int) -> bool:
        """Return whether the order of a unit succeeds; while it is being resolved, the guess."""
        state = self.state[province]
        if state == _RESOLVED:
            return self.success[province]
        guessed = self.guessed
        if state == _GUESSED:
            if province not in guessed:
                guessed.append(province)
            return self.success[province]
        before = len(guessed)
        self.success[province], self.state[province] = False, _GUESSED
        first = self._succeeds(province)
        if len(guessed) == before:  # it depends on no guess
            self.success[province], self.state[province] = first, _RESOLVED
            return first
        if guessed[before] != province:  # it depends on a guess about an order that is resolved further up
            guessed.append(province)
            self.success[province] = first
            return first
        self._forget(before)
        self.success[province], self.state[province] = True, _GUESSED
        second = self._succeeds(province)
        if first == second:
            self._forget(before)
            self.success[province], self.state[province] = first, _RESOLVED
            return first
        self._break_circle(before)
        return self.resolve(province)

    def _forget(self, before: int) -> None:
        for province in self.guessed[before:]:
            self.state[province] = _UNRESOLVED
        del self.guessed[before:]

    def _break_circle(self, before: int) -> None:
        """Settle orders that depend on each other: units in a circle move, otherwise the convoys fail."""
        members = self.guessed[before:]
        self._forget(before)
        settled = [province for province in members if self.kind[province] == CONVOY]
        success = not settled
        if success:
            settled = [province for province in members if self._in_circle(province, set(members))]
        if not settled:
            raise AssertionError("orders hang together neither by a circle of moves nor by a convoy")
        for province in settled:
            self.success[province], self.state[province] = success, _RESOLVED

    def _in_circle(self, province: int, members: set[int]) -> bool:
        place = self.going[province]
        for _ in members:
            if place == province:
                return True
            if place not in members:
                return False
            place = self.going[place]
        return False

    def _succeeds(self, province: int) -> bool:
        kind = self.kind[province]
        if kind == MOVE:
            return self._move_succeeds(province)
        if kind == SUPPORT:
            return self._support_succeeds(province)
        return not any(self.resolve(attacker) for attacker in self.attackers[province])  # a convoy

    def _move_succeeds(self, province: int) -> bool:
        """Return whether a unit gets into the province where it goes."""
        if not self.arrives(province):
            return False
        going, power = self.going[province], self.power
        if self._swaps(province, going):
            if power[going] == power[province]:
                return False
            strength = self._strength(province, power[going])
            if strength <= self._strength(going):  # a head-to-head battle
                return False
        elif power[going] == NOWHERE or (self.kind[going] == MOVE and self.resolve(going)):
            strength = self._strength(province)
        else:
            if power[going] == power[province]:
                return False
            strength = self._strength(province, power[going])
            if strength <= (1 if self.kind[going] == MOVE else self._strength(going)):
                return False
        for rival in self.attackers[going]:
            if rival != province and strength <= self._hindrance(rival):
                return False
        return True

    def _swaps(self, province: int, going: int) -> bool:
        """Return whether the unit in the target moves the opposite way, and none of the two by sea."""
        return self.going[going] == province and province not in self.carriers and going not in self.carriers

    def _strength(self, province: int, without: int = NOWHERE) -> int:
        """Return 1 and the number of supports of a unit, not counting those of the power ``without``."""
        strength = 1
        for helper in self.helpers[province]:
            if self.power[helper] != without and self.resolve(helper):
                strength += 1
        return strength

    def _hindrance(self, rival: int) -> int:
        """Return the strength with which a unit keeps others out of the province where it goes."""
        if not self.arrives(rival) or self._beaten_by_opponent(rival):
            return 0
        return self._strength(rival)

    def _beaten_by_opponent(self, province: int) -> bool:
        """Return whether a unit is dislodged from the very province where it goes, head to head."""
        going = self.going[province]
        return self._swaps(province, going) and self.resolve(going)

    def arrives(self, province: int) -> bool:
        """Return whether a moving unit gets as far as the border: on foot always, by sea if its convoy holds."""
        fleets = self.carriers.get(province)
        if fleets is None:
            return True
        holding = 0
        for fleet in bits(fleets):
            if self.resolve(fleet):
                holding |= 1 << fleet
        return self._path(province, self.going[province], holding)

    def _support_succeeds(self, province: int) -> bool:
        """Return whether no attack cuts a support.

        Any attack of another power cuts it, except one from the province that the support is directed at. That one has
        to dislodge the unit.
        """
        target = self.target[province]
        for attacker in self.attackers[province]:
            if self.power[attacker] == self.power[province]:
                continue
            if self.resolve(attacker) if attacker == target else self.arrives(attacker):
                return False
        return True
