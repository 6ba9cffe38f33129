"""Texts that a player reads: rules, map, history and position.

The parts are in the order in which they change, so that prompts of one game share a long beginning: ``preamble`` is the
same for all games on a map, ``history`` only grows, and ``situation`` is the same for all powers in a phase.
"""

from collections.abc import Sequence
from functools import cache

from flyball.app.games.diplomacy.game import Turn, unit_text
from flyball.app.games.diplomacy.maps import Map, Unit
from flyball.app.games.diplomacy.orders import write_order
from flyball.app.games.diplomacy.position import ADJUSTMENTS, Position

OPEN, CLOSE = "<orders>\n", "</orders>"
"""Beginning and end of a power's orders."""

_RULES = """Diplomacy. Powers: {powers}. {to_win} of {centers} centres win.
Orders: A PAR H holds. A PAR - BUR moves. A PAR S A MAR - BUR supports a move, A PAR S A MAR a unit that stays.
F NTH C A LON - NWY convoys A LON - NWY VIA. A PAR R GAS retreats. A PAR D disbands. A PAR B builds. WAIVE: no build.
All orders of a phase are judged at once; the stronger side wins, equal sides bounce. An attack cuts a support.
After fall, centres belong to who stands there; units are built at own home centres, or disbanded, up to the centres.
Map, * centres:
"""


@cache
def preamble(board: Map) -> str:
    """Return the rules and the map."""
    rules = _RULES.format(powers=", ".join(board.powers), to_win=board.to_win, centers=len(board.centers))
    return rules + "".join(_province(board, province) for province in range(board.provinces))


def _province(board: Map, province: int) -> str:
    lines = []
    home = next((f" {board.powers[power]}" for power, homes in enumerate(board.homes) if province in homes), "")
    armies = [board.locations[to] for to in board.steps[0][province]]
    if armies:
        lines.append(f"A {' '.join(armies)}")
    for at in board.coasts[province] or (province,):
        fleets = [board.locations[to] for to in board.steps[1][at]]
        if fleets:
            lines.append(f"F{board.locations[at][3:]} {' '.join(fleets)}")
    star = "*" if province in board.centers else ""
    return f"{board.locations[province]}{star}{home}: {'; '.join(lines)}\n"


def history(turns: Sequence[Turn]) -> str:
    """Return the text of played phases: each power's orders, with the results of those that failed."""
    return "".join(_turn(turn) for turn in turns)


def _turn(turn: Turn) -> str:
    board = turn.position.board
    lines = [f"{turn.position.phase.name}\n"]
    for name, orders in zip(board.powers, turn.orders, strict=True):
        if orders:
            texts = []
            for order in orders:
                failed = turn.results.get(unit_text(board, order.fleet, order.at), ()) if order.at >= 0 else ()
                texts.append(write_order(board, order) + (f" ({', '.join(failed)})" if failed else ""))
            lines.append(f"{name}: {'; '.join(texts)}\n")
    return "".join(lines)


def situation(position: Position) -> str:
    """Return the phase, and centres, units, retreats and builds of each power."""
    board = position.board
    lines = [f"Now {position.phase.name}\n"]
    for power, name in enumerate(board.powers):
        centers = [board.locations[center] for center in position.centers_of(power)]
        units = [_unit(board, unit) for unit in position.units_of(power)]
        lines.append(f"{name}: {len(centers)} centres {' '.join(centers)}; units {', '.join(units) or 'none'}\n")
        for unit, retreats in position.dislodged.values():
            if unit.power == power:
                options = " ".join(board.locations[to] for to in retreats)
                lines.append(f"{name} dislodged: {_unit(board, unit)}, may retreat to {options or 'nowhere'}\n")
        if position.phase.kind == ADJUSTMENTS and (builds := position.builds(power)):
            lines.append(f"{name} {'builds' if builds > 0 else 'disbands'} {abs(builds)}\n")
    return "".join(lines)


def _unit(board: Map, unit: Unit) -> str:
    return unit_text(board, unit.fleet, unit.at)


def prompt(position: Position, power: int, turns: Sequence[Turn] = ()) -> str:
    """Return the text that a power reads before it gives orders.

    Args:
        position: the position.
        power: the number of the power that is asked.
        turns: the phases that the power is shown, the latest last.
    """
    name = position.board.powers[power]
    return f"{preamble(position.board)}{history(turns)}{situation(position)}You are {name}.\n{OPEN}"
