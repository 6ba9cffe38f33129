"""Positions: units, dislodged units, centres, and the phase that comes next."""

from dataclasses import dataclass
from typing import NamedTuple

from flyball.app.games.diplomacy.maps import Map, Unit

MOVEMENT, RETREATS, ADJUSTMENTS = "M", "R", "A"

FIRST_YEAR = 1901


class Phase(NamedTuple):
    """A phase: movement or retreats in spring or fall, adjustments in winter."""

    year: int
    season: str  # S, F or W
    kind: str  # MOVEMENT, RETREATS or ADJUSTMENTS

    @property
    def name(self) -> str:
        """The name in saved games, for instance ``S1901M``."""
        return f"{self.season}{self.year}{self.kind}"


class Dislodged(NamedTuple):
    """A unit that has to retreat, and where it may go."""

    unit: Unit
    retreats: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Position:
    """A position; its dictionaries are never changed.

    Two positions are equal only if they are the same object.

    Attributes:
        board: the map.
        phase: the phase whose orders come next.
        units: by province; none of them dislodged.
        dislodged: by the province that the unit has lost.
        owners: power by supply centre, for centres that have an owner.
        influence: the last power by province whose unit was there, for provinces where any was.
    """

    board: Map
    phase: Phase
    units: dict[int, Unit]
    dislodged: dict[int, Dislodged]
    owners: dict[int, int]
    influence: dict[int, int]

    def centers_of(self, power: int) -> list[int]:
        """Return the centres of a power, ascending."""
        return sorted(center for center, owner in self.owners.items() if owner == power)

    def units_of(self, power: int) -> list[Unit]:
        """Return the units of a power that are not dislodged, by province."""
        return [unit for _, unit in sorted(self.units.items()) if unit.power == power]

    def counts(self) -> list[tuple[int, int]]:
        """Return each power's numbers of centres and units, dislodged units included."""
        centers, units = [0] * len(self.board.powers), [0] * len(self.board.powers)
        for owner in self.owners.values():
            centers[owner] += 1
        for unit in self.units.values():
            units[unit.power] += 1
        for lost in self.dislodged.values():
            units[lost.unit.power] += 1
        return list(zip(centers, units, strict=True))

    def build_sites(self, power: int) -> list[int]:
        """Return the vacant home centres that a power owns, to build in."""
        return [home for home in self.board.homes[power] if self.owners.get(home) == power and home not in self.units]

    def builds(self, power: int) -> int:
        """Return how many units a power may build. If it is negative, the power has to disband that many."""
        centers, units = self.counts()[power]
        return min(centers - units, len(self.build_sites(power)))


def opening(board: Map) -> Position:
    """Return the position at the beginning of a game."""
    units = {board.province_of[unit.at]: unit for unit in board.start}
    owners = {home: power for power, homes in enumerate(board.homes) for home in homes}
    influence = {**owners, **{province: unit.power for province, unit in units.items()}}
    return Position(board, Phase(FIRST_YEAR, "S", MOVEMENT), units, {}, owners, influence)
