"""The Diplomacy Adjudicator Test Cases (DATC) by Lucas B. Kruijswijk, by their numbers and in our own words.

A case in ``tests/support/datc_cases.txt`` is a number and its subject, then a line of orders for each power, by its
initial. The units are those that get orders; a line ``+`` adds units that get no order, or whose order names them
wrongly (``-`` before such an order keeps it from adding a unit). A line ``>`` says which units go where, ``x`` is
dislodged or gone; all others stay. ``--`` begins the retreats.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from flyball.app.games.diplomacy.game import play_phase
from flyball.app.games.diplomacy.maps import Unit
from flyball.app.games.diplomacy.orders import parse_order
from flyball.app.games.diplomacy.position import ADJUSTMENTS, MOVEMENT, Phase, Position, opening
from flyball.app.games.diplomacy.position import RETREATS as RETREATING
from flyball.app.games.diplomacy.standard import STANDARD

TEXT = (Path(__file__).parents[1] / "support" / "datc_cases.txt").read_text()
CASES = [block.split("\n") for block in re.split(r"\n\n+", TEXT.strip())]
INITIALS = {name[0]: power for power, name in enumerate(STANDARD.powers)}


def unit_of(text: str, power: int) -> Unit:
    kind, code = text.split()[:2]
    return Unit(power, kind == "F", STANDARD.number[code])


def texts_of(line: str) -> tuple[int, list[str]]:
    initial, _, texts = line.partition(": ")
    return INITIALS[initial[-1]], texts.split("; ")


def stages(lines):
    """Return a case's phases: (orders of each power, units, outcomes: locations, or ``x`` for a lost unit)."""
    found = [([[] for _ in INITIALS], {}, {})]
    for line in lines:
        orders, units, goals = found[-1]
        if line == "--":
            found.append(([[] for _ in INITIALS], {}, {}))
        elif line.startswith("> "):
            for text in line[2:].split("; "):
                kind, code, goal = text.split()
                goals[f"{kind} {code}"] = goal
        else:
            power, texts = texts_of(line)
            for text in texts:
                if not line.startswith("+"):
                    orders[power].append(parse_order(STANDARD, text.lstrip("-")))
                if not text.startswith("-"):
                    units[" ".join(text.split()[:2])] = unit_of(text, power)
    return found


def whereabouts(placed: Iterable[tuple[Unit, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for unit, location in placed:
        found.setdefault(f"{unit.power} {unit.fleet}", set()).add(location)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].split()[0])
def test_datc_case_is_judged_as_published(case):
    phases = stages(case[1:])
    units = phases[0][1]
    position = opening(STANDARD)
    placed = {STANDARD.province_of[unit.at]: unit for unit in units.values()}
    position = Position(STANDARD, Phase(1901, "S", MOVEMENT), placed, {}, position.owners, {})
    for number, (orders, _, goals) in enumerate(phases):
        assert position.phase.kind == (RETREATING if number else MOVEMENT)
        position, _ = play_phase(position, orders)
        first = phases[0][2]
        ends = {**{text: goal for text, goal in first.items() if goal != "x"}, **goals} if number else first
        expected = [(unit, ends.get(text, text.split()[1])) for text, unit in units.items()]
        found = [(unit, STANDARD.locations[unit.at]) for unit in position.units.values()]
        assert whereabouts(found) == whereabouts((unit, goal) for unit, goal in expected if goal != "x")


def test_datc_cases_cover_movement_and_retreats():
    numbers = [case[0].split()[0] for case in CASES]
    assert len(set(numbers)) == len(numbers) == 140


def adjusted(power: str, units: str, centers: str, orders: str) -> set[str]:
    number = STANDARD.powers.index(power)
    placed = [unit_of(text, number) for text in units.split(", ") if text]
    owners = {STANDARD.number[code]: number for code in centers.split()}
    board = {STANDARD.province_of[unit.at]: unit for unit in placed}
    position = Position(STANDARD, Phase(1901, "W", ADJUSTMENTS), board, {}, owners, {})
    given = [[] for _ in STANDARD.powers]
    given[number] = [parse_order(STANDARD, text) for text in orders.split("; ") if text]
    position, _ = play_phase(position, given)
    return {f"{'FA'[not unit.fleet]} {STANDARD.locations[unit.at]}" for unit in position.units.values()}


BUILDS = [
    ("6.B.14", "RUSSIA", "", "STP", "F STP B", ""),
    ("6.I.1", "GERMANY", "A RUH, A PRU", "BER KIE MUN", "A WAR B; A KIE B; A MUN B", "A RUH, A PRU, A KIE"),
    ("6.I.2", "RUSSIA", "", "MOS", "F MOS B", ""),
    ("6.I.3", "GERMANY", "A BER", "BER KIE", "A BER B", "A BER"),
    ("6.I.4", "RUSSIA", "F STP/SC", "STP MOS", "F STP/NC B", "F STP/SC"),
    ("6.I.5", "GERMANY", "", "WAR", "A WAR B", ""),
    ("6.I.6", "GERMANY", "", "KIE MUN", "A BER B", ""),
    ("6.I.7", "RUSSIA", "", "MOS SEV", "A MOS B; A MOS B", "A MOS"),
    ("6.J.1", "FRANCE", "A PIC, A PAR", "PAR", "F LYO D; A PIC D; A PAR D", "A PAR"),
    ("6.J.2", "FRANCE", "A PAR, A PIC, F BRE", "PAR", "A PAR D; A PAR D", "F BRE"),
    ("6.J.3", "RUSSIA", "A LVN, A SWE", "WAR", "", "A LVN"),
    ("6.J.4", "RUSSIA", "A LVN, A UKR", "WAR", "", "A UKR"),
    ("6.J.5", "RUSSIA", "F SKA, F BER", "WAR", "", "F SKA"),
    ("6.J.6", "RUSSIA", "F BER, F HEL", "WAR", "", "F HEL"),
    ("6.J.7", "RUSSIA", "A BOH, F SKA, F NTH", "WAR MOS", "", "A BOH, F SKA"),
    ("6.J.8", "RUSSIA", "A TYR, F BAL", "WAR", "", "F BAL"),
    ("6.J.9", "RUSSIA", "A TYR, F SKA", "WAR", "", "F SKA"),
    ("6.J.10", "ITALY", "A GRE, A SIL, F ION", "ROM VEN", "", "A GRE, F ION"),
    ("6.J.11", "ITALY", "A GRE, A SIL", "ROM", "", "A GRE"),
]
"""Number, power, its units, its centres, its orders, its units afterwards."""


@pytest.mark.parametrize("case", BUILDS, ids=lambda case: case[0])
def test_datc_adjustment_is_judged_as_published(case):
    _, power, units, centers, orders, after = case
    assert adjusted(power, units, centers, orders) == {text for text in after.split(", ") if text}
