"""Games: positions from phase to phase, their history and their end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from flyball.app.core import BadUsage
from flyball.app.games.diplomacy.adjustments import adjust, after_movement, retreat
from flyball.app.games.diplomacy.maps import Map, Unit
from flyball.app.games.diplomacy.movement import VOID, adjudicate
from flyball.app.games.diplomacy.orders import WAIVE, Order, parse_order
from flyball.app.games.diplomacy.position import ADJUSTMENTS, MOVEMENT, RETREATS, Phase, Position, opening

Results = dict[str, tuple[str, ...]]
"""Failures of orders by unit text, such as ``A PAR``; empty: success."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Rules for the end of a game.

    Attributes:
        to_win: the number of centres that wins alone; None: the map's own.
        last_year: the year after which the game ends; None: no such year.
        quiet_years: the game is drawn after so many years in which no centre has changed hands; None: never.
    """

    to_win: int | None = None
    last_year: int | None = None
    quiet_years: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A played phase: its position, the orders by power, and the results."""

    position: Position
    orders: tuple[tuple[Order, ...], ...]
    results: Results


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of a game.

    Attributes:
        kind: ``solo``, ``draw``, or ``limit`` after the last year.
        powers: the winner, or all powers that are left.
    """

    kind: str
    powers: tuple[int, ...]


@dataclass(slots=True)
class Game:
    """A game that is being played.

    >>> from flyball.app.games.diplomacy.standard import STANDARD
    >>> game = Game(STANDARD)
    >>> game.play({"FRANCE": ["A PAR - BUR", "A MAR S A PAR - BUR"]}).results["A PAR"]
    ()
    >>> game.position.phase.name
    'F1901M'
    """

    board: Map
    ending: Ending = Ending()
    position: Position = field(init=False)
    turns: list[Turn] = field(default_factory=list)
    outcome: Outcome | None = None

    def __post_init__(self) -> None:
        self.position = opening(self.board)

    def play(self, orders: Mapping[str, Sequence[str | Order]]) -> Turn:
        """Play a phase with the orders of each power, and return it.

        ``orders`` is by the power's name. An order that is not legal is void, and its unit holds. Of several orders to
        a unit, the first one counts. Units without orders hold, or are disbanded if they have to retreat; missing
        disbands follow from civil disorder.

        Raises:
            BadOrder: a text is no order.
            BadUsage: the game is over, or a name is no power's.
        """
        if self.outcome is not None:
            raise BadUsage("The game is over.", hint="Begin another one.")
        for name in orders:
            if name not in self.board.powers:
                raise BadUsage(f"{name!r} is no power.", hint=f"The powers: {', '.join(self.board.powers)}.")
        by_power = tuple(tuple(self._read(order) for order in orders.get(name, ())) for name in self.board.powers)
        after, results = play_phase(self.position, by_power)
        turn = Turn(self.position, by_power, results)
        self.turns.append(turn)
        self.position = after
        self.outcome = self._outcome()
        return turn

    def _read(self, order: str | Order) -> Order:
        return parse_order(self.board, order) if isinstance(order, str) else order

    def draw(self) -> None:
        """End the game in a draw of all powers that are left."""
        self.outcome = Outcome("draw", self._left())

    def _left(self) -> tuple[int, ...]:
        return tuple(power for power, counts in enumerate(self.position.counts()) if any(counts))

    def _outcome(self) -> Outcome | None:
        centers = [count for count, _ in self.position.counts()]
        most = max(centers)
        if most >= (self.ending.to_win or self.board.to_win) and centers.count(most) == 1:
            return Outcome("solo", (centers.index(most),))
        if self.ending.last_year is not None and self.position.phase.year > self.ending.last_year:
            return Outcome("limit", self._left())
        if self.ending.quiet_years is not None and self._quiet(self.ending.quiet_years):
            return Outcome("draw", self._left())
        return None

    def _quiet(self, years: int) -> bool:
        """Return whether, in a spring movement phase, no centre has changed hands in the last ``years`` years."""
        before = Phase(self.position.phase.year - years, "S", MOVEMENT)
        if self.position.phase[1:] != before[1:]:
            return False
        since = [turn.position.owners for turn in self.turns if turn.position.phase >= before]
        return any(turn.position.phase == before for turn in self.turns) and all(
            owners == self.position.owners for owners in since
        )


def play_phase(position: Position, orders: Sequence[Sequence[Order]]) -> tuple[Position, Results]:
    """Return the position after a phase, and the results of its orders.

    The position is that of the next phase in which somebody has a choice.

    Args:
        position: the position before.
        orders: the orders of each power.
    """
    if position.phase.kind == MOVEMENT:
        return _play_movement(position, orders)
    if position.phase.kind == RETREATS:
        return _play_retreats(position, orders)
    units, carried = adjust(position, dict(enumerate(orders)))
    results: Results = {}
    for power_orders, done in zip(orders, carried, strict=True):
        for order, ok in zip(power_orders, done, strict=True):
            if order.kind != WAIVE:
                results.setdefault(unit_text(position.board, order.fleet, order.at), () if ok else (VOID,))
    phase = Phase(position.phase.year + 1, "S", MOVEMENT)
    return replace(position, phase=phase, units=units, influence=_influence(position, units)), results


def _play_movement(position: Position, orders: Sequence[Sequence[Order]]) -> tuple[Position, Results]:
    board = position.board
    by_province: dict[int, Order] = {}
    for power, own in enumerate(orders):
        for order in own:
            province = board.province_of[order.at]
            unit = position.units.get(province)
            if unit is not None and unit.power == power:
                by_province.setdefault(province, order)
    movement = adjudicate(board, position.units, by_province)
    units, dislodged = after_movement(position, movement)
    results = {
        unit_text(board, unit.fleet, unit.at): movement.results.get(province, ())
        for province, unit in sorted(position.units.items())
    }
    after = replace(position, units=units, dislodged=dislodged, influence=_influence(position, units))
    return _advance(after), results


def _play_retreats(position: Position, orders: Sequence[Sequence[Order]]) -> tuple[Position, Results]:
    board = position.board
    by_province: dict[int, Order] = {}
    for power, own in enumerate(orders):
        for order in own:
            lost = position.dislodged.get(board.province_of[order.at])
            if lost is not None and (lost.unit.power, lost.unit.fleet) == (power, order.fleet):
                by_province.setdefault(board.province_of[order.at], order)
    units, results_by_province = retreat(position, by_province)
    results = {
        unit_text(board, lost.unit.fleet, lost.unit.at): results_by_province.get(province, ())
        for province, lost in position.dislodged.items()
    }
    after = replace(position, units=units, dislodged={}, influence=_influence(position, units))
    return _advance(after), results


def _advance(position: Position) -> Position:
    """Return the position with its next phase, skipping phases without a choice."""
    year, season, kind = position.phase
    if kind == MOVEMENT and any(lost.retreats for lost in position.dislodged.values()):
        return replace(position, phase=Phase(year, season, RETREATS))
    position = replace(position, dislodged={})
    if season == "S":
        return replace(position, phase=Phase(year, "F", MOVEMENT))
    owners = {**position.owners}
    for center in position.board.centers:
        if center in position.units:
            owners[center] = position.units[center].power
    position = replace(position, owners=owners, phase=Phase(year, "W", ADJUSTMENTS))
    if any(position.builds(power) for power in range(len(position.board.powers))):
        return position
    return replace(position, phase=Phase(year + 1, "S", MOVEMENT))


def _influence(position: Position, units: Mapping[int, Unit]) -> dict[int, int]:
    return {**position.influence, **{province: unit.power for province, unit in units.items()}}


def unit_text(board: Map, fleet: bool, at: int) -> str:  # noqa: FBT001
    """Return the text of a unit, such as ``F STP/SC``."""
    return f"{'F' if fleet else 'A'} {board.locations[at]}"
