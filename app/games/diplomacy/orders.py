"""Orders, and their standard notation.

| order | text |
|---|---|
| hold | ``A PAR H`` |
| move; by convoy | ``A PAR - BUR``, ``F MAO - SPA/NC``; ``A LON - NWY VIA`` |
| support a unit in its province; a move | ``A PAR S A BUR``; ``F ENG S F NTH - BEL``, ``A MAR S F MAO - SPA/NC`` |
| convoy | ``F NTH C A LON - NWY`` |
| retreat; disband | ``A PAR R GAS``; ``A PAR D`` |
| build; leave out a build | ``F STP/NC B``; ``WAIVE`` |

The text is strict, so that each order has one: capitals, single spaces.
"""

import re
from difflib import get_close_matches
from functools import cache
from typing import NamedTuple

from flyball.app.core import FlyballError
from flyball.app.games.diplomacy.maps import Map

HOLD, MOVE, SUPPORT, CONVOY, RETREAT, DISBAND, BUILD, WAIVE = "H", "-", "S", "C", "R", "D", "B", "WAIVE"

NOWHERE = -1
"""Value of a location that an order does not name."""

LONGEST = 40
"""No order has as many characters."""


class BadOrder(FlyballError):
    """A text that is no order, or an order that is impossible."""


class Order(NamedTuple):
    """An order to one unit."""

    kind: str  # HOLD, …, WAIVE
    fleet: bool = False  # the unit's kind
    at: int = NOWHERE  # its location
    to: int = (
        NOWHERE  # the goal of a move, retreat, supported or convoyed move; NOWHERE in a support of a unit that stays
    )
    other: int = NOWHERE  # the location of the unit that is supported or convoyed
    other_fleet: bool = False
    via: bool = False  # a move that asks for a convoy


def hold(fleet: bool, at: int) -> Order:  # noqa: FBT001 - a unit's kind, as everywhere
    """Return the order to hold."""
    return Order(HOLD, fleet, at)


@cache
def write_order(board: Map, order: Order) -> str:
    """Return the text of an order."""
    if order.kind == WAIVE:
        return WAIVE
    places = board.locations
    unit = f"{'F' if order.fleet else 'A'} {places[order.at]}"
    if order.kind in (HOLD, DISBAND, BUILD):
        return f"{unit} {order.kind}"
    if order.kind in (MOVE, RETREAT):
        return f"{unit} {order.kind} {places[order.to]}{' VIA' if order.via else ''}"
    other = f"{'F' if order.other_fleet else 'A'} {places[order.other]}"
    return f"{unit} {order.kind} {other}" + ("" if order.to == NOWHERE else f" - {places[order.to]}")


_PLACE = r"([A-Z]{3}(?:/[A-Z]C)?)"
_ORDER = re.compile(
    rf"(WAIVE)|([AF]) {_PLACE} (?:([HDB])|(-|R) {_PLACE}( VIA)?|([SC]) ([AF]) {_PLACE}(?: - {_PLACE})?)", re.ASCII
)


def parse_order(board: Map, text: str) -> Order:
    """Parse the text of an order, legal in a position or not.

    Raises:
        BadOrder: the text is unreadable, or names a place that the map does not have.
    """
    match = _ORDER.fullmatch(text)
    if not match:
        raise BadOrder(f"{text[:LONGEST]!r} is no order.", hint=_hint(text))
    waive, unit, at, plain, goes, to, via, helps, other_unit, other, towards = match.groups()
    if waive:
        return Order(WAIVE)
    fleet, location = unit == "F", _location(board, text, at)
    if plain:
        return Order(plain, fleet, location)
    if goes:
        if via and (goes == RETREAT or fleet):
            raise BadOrder(f"{text!r} is no order: only an army's move goes by convoy.", hint="Leave VIA out.")
        return Order(goes, fleet, location, _location(board, text, to), via=bool(via))
    target = _location(board, text, towards) if towards else NOWHERE
    if helps == CONVOY and (not towards or not fleet or other_unit == "F"):
        raise BadOrder(f"{text!r} is no order: a fleet convoys a moving army.", hint="Write F NTH C A LON - NWY.")
    return Order(helps, fleet, location, target, _location(board, text, other), other_unit == "F")


def _location(board: Map, text: str, code: str) -> int:
    location = board.number.get(code)
    if location is None:
        close = get_close_matches(code, board.locations, n=3, cutoff=0.5) or board.locations[:3]
        raise BadOrder(f"{text!r} names {code}, which is no place of this map.", hint=f"Places: {', '.join(close)} ….")
    return location


def _hint(text: str) -> str:
    tidy = " ".join(text[:LONGEST].upper().split())
    if tidy != text and _ORDER.fullmatch(tidy):
        return f"Write {tidy}."
    return "Write for instance A PAR - BUR, A PAR S A MAR - BUR, F NTH C A LON - NWY, A PAR H."
