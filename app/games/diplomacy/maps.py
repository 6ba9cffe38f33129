"""Maps of Diplomacy: provinces, coasts and borders as integers and bit sets.

A *province* is a number below ``Map.provinces``, in the order of the codes. A *location* is where a unit stands or
goes: a province, or one of the coasts of a province that has two, numbered after the provinces. Armies and fleets in a
province with one coast stand at the province's own number. A set of provinces is an integer with a bit for each.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from flyball.app.core import FlyballError

UNREACHABLE = 1_000
"""Distance to a home centre that cannot be reached."""


class BadMap(FlyballError):
    """A table of provinces that contradicts itself."""


class Unit(NamedTuple):
    """An army or fleet: its power's number, its kind, and its location."""

    power: int
    fleet: bool
    at: int


class Province(NamedTuple):
    """A line of a map's table. ``fleets`` has a list of borders for each coast; the key of an only coast is ''."""

    code: str
    name: str
    owner: str
    armies: tuple[str, ...] | None
    fleets: dict[str, tuple[str, ...]]


class Map:
    """A map with all that the rules look up, computed once.

    Attributes:
        name: the name in saved games.
        powers: names, in alphabetical order; a power is its index.
        to_win: the number of centres that wins alone.
        provinces: the number of provinces.
        locations: codes of all locations, such as ``PAR`` and ``SPA/NC``.
        number: location by code.
        names: full names of the provinces.
        province_of: province by location.
        coasts: by province, the locations of its coasts; empty unless it has two.
        seas, inland: sets of provinces.
        centers: all provinces with a supply centre, ascending.
        homes: by power, its home centres, ascending.
        start: the units at the beginning.
        steps: by kind (0 army, 1 fleet) and location, the locations that are a step away, ascending.
        targets: the same steps, as provinces.
        reach: the same steps, as sets of provinces.
        borders: by province, the set of provinces that a unit of any kind may enter from there.
        near: by kind and location, the set of provinces whose units might go to, or stay in, a province that the unit
            might go to.
        distances: by kind, power and location, the steps to the nearest home centre. Armies count steps over land and
            sea alike, as if they could always be convoyed.
    """

    def __init__(self, name: str, table: list[Province], powers: Mapping[str, str], to_win: int) -> None:
        table = sorted(table)
        self.name, self.powers, self.to_win = name, tuple(sorted(powers)), to_win
        self.provinces = len(table)
        self.names = [row.name for row in table]
        self.locations = [row.code for row in table]
        self.province_of = list(range(self.provinces))
        self.coasts: list[tuple[int, ...]] = []
        for province, row in enumerate(table):
            own = [f"{row.code}/{coast}" for coast in row.fleets if coast]
            self.coasts.append(tuple(range(len(self.locations), len(self.locations) + len(own))))
            self.locations += own
            self.province_of += [province] * len(own)
        self.number = {code: number for number, code in enumerate(self.locations)}
        self.seas = sum(1 << k for k, row in enumerate(table) if row.armies is None)
        self.inland = sum(1 << k for k, row in enumerate(table) if not row.fleets)
        self.centers = tuple(k for k, row in enumerate(table) if row.owner)
        self.homes = [tuple(k for k, row in enumerate(table) if row.owner == power) for power in self.powers]
        self._set_borders(table)
        self.start = [self._unit(power, text.strip()) for power in self.powers for text in powers[power].split(",")]
        self._set_distances()

    def _set_borders(self, table: list[Province]) -> None:
        locations = range(len(self.locations))
        steps: list[list[tuple[int, ...]]] = [[() for _ in locations] for _ in range(2)]
        for row in table:
            steps[0][self.number[row.code]] = tuple(sorted(self._border_numbers(row, row.armies or ())))
            for coast, borders in row.fleets.items():
                code = f"{row.code}/{coast}" if coast else row.code
                steps[1][self.number[code]] = tuple(sorted(self._border_numbers(row, borders)))
        self.steps = steps
        for location in locations:
            for fleet in range(2):
                for neighbour in steps[fleet][location]:
                    if location not in steps[fleet][neighbour]:
                        pair = f"{self.locations[location]} and {self.locations[neighbour]}"
                        raise BadMap(f"{self.name}: only one of {pair} names the border.", hint="Name it in both.")
        self.targets = [[tuple(sorted({self.province_of[to] for to in ends})) for ends in kind] for kind in steps]
        self.reach = [[sum(1 << target for target in targets) for targets in kind] for kind in self.targets]
        self.borders = [0] * self.provinces
        for location in locations:
            self.borders[self.province_of[location]] |= self.reach[0][location] | self.reach[1][location]
        self.near = [[self._with_borders(targets) for targets in kind] for kind in self.targets]

    def _with_borders(self, provinces: tuple[int, ...]) -> int:
        around = 0
        for province in provinces:
            around |= self.borders[province] | 1 << province
        return around

    def _border_numbers(self, row: Province, codes: tuple[str, ...]) -> Iterator[int]:
        for code in codes:
            if code not in self.number:
                raise BadMap(f"{self.name}: {row.code} borders on {code}, which is no place.", hint="Correct its code.")
            yield self.number[code]

    def _unit(self, power: str, text: str) -> Unit:
        kind, _, code = text.partition(" ")
        return Unit(self.powers.index(power), kind == "F", self.number[code])

    def _set_distances(self) -> None:
        everywhere = [tuple(bits(self.borders[self.province_of[location]])) for location in range(len(self.locations))]
        self.distances = [
            [self._distances_from(homes, steps) for homes in self.homes] for steps in (everywhere, self.steps[1])
        ]

    def _distances_from(self, homes: tuple[int, ...], steps: list[tuple[int, ...]]) -> list[int]:
        distances = [UNREACHABLE] * len(self.locations)
        edge = [location for home in homes for location in (home, *self.coasts[home])]
        steps_so_far = 0
        while edge:
            for location in edge:
                distances[location] = steps_so_far
            edge = sorted({to for location in edge for to in steps[location] if distances[to] == UNREACHABLE})
            steps_so_far += 1
        return distances

    def shores(self, seas: int) -> int:
        """Return the coastal provinces around a set of seas."""
        around = 0
        for sea in bits(seas):
            around |= self.borders[sea]
        return around & ~self.seas

    def convoy_reach(self, start: int, fleets: int) -> int:
        """Return the provinces to which ``fleets``, a set of seas, can convoy an army from ``start``."""
        reached, around, edge = 0, 0, self.borders[start] & fleets
        while edge:
            reached |= edge
            for sea in bits(edge):
                around |= self.borders[sea]
            edge = around & fleets & ~reached
        return around & ~self.seas & ~(1 << start)


def bits(members: int) -> Iterator[int]:
    """Yield the members of a set, ascending."""
    while members:
        lowest = members & -members
        yield lowest.bit_length() - 1
        members ^= lowest


_LINE = re.compile(r"([A-Z]{3}) ([^,:]+)(?:, (?:home of ([A-Z]+)|(centre)))?: (.+)")


def parse_map(name: str, provinces: str, powers: Mapping[str, str], to_win: int) -> Map:
    """Return the map that a table of provinces describes.

    The table has a line for each province; ``powers`` gives the units of each power at the start.

    Raises:
        BadMap: a line is unreadable, a border has one side only, or a place does not exist.
    """
    table = []
    for line in provinces.strip().splitlines():
        match = _LINE.fullmatch(line)
        if not match:
            raise BadMap(f"{name}: the line {line!r} is unreadable.", hint="See app/games/diplomacy/standard.py.")
        code, full, home, neutral, borders = match.groups()
        armies: tuple[str, ...] | None = None
        fleets = {}
        for part in borders.split("; "):
            kind, *codes = part.split()
            if kind == "armies":
                armies = tuple(codes)
            else:
                fleets[kind.partition("/")[2]] = tuple(codes)
        table.append(Province(code, full, home or neutral or "", armies, fleets))
    return Map(name, table, powers, to_win)
