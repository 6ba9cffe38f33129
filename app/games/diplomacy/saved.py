"""Saved games in the common JSON format, that of the package ``diplomacy``.

A game is ``id``, ``map``, ``rules`` and ``phases``; a phase is ``name``, ``state``, ``orders``, ``results`` and
``messages``; the last phase is the present position. A dislodged unit's text begins with ``*`` among the units. Our
settings are among the rules, such as ``END_TO_WIN_18``; other rules are ignored. The last phase of a game that is over
has a ``note``: how the game ended, in which phase, and who won.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from flyball.app.core import FlyballError
from flyball.app.games.diplomacy.game import Ending, Game, Outcome, Turn, unit_text
from flyball.app.games.diplomacy.maps import Map, Unit
from flyball.app.games.diplomacy.orders import BadOrder, parse_order, write_order
from flyball.app.games.diplomacy.position import ADJUSTMENTS, Dislodged, Phase, Position
from flyball.app.games.diplomacy.small import SMALL
from flyball.app.games.diplomacy.standard import STANDARD

MAPS: dict[str, Map] = {board.name: board for board in (STANDARD, SMALL)}
"""The maps by name."""

COMPLETED = "COMPLETED"
"""The name of the last phase of a game that is over."""

_SETTINGS = {"END_TO_WIN": "to_win", "END_LAST_YEAR": "last_year", "END_QUIET_YEARS": "quiet_years"}


class BadSavedGame(FlyballError):
    """A document that is no saved game, or of an unknown map."""


def save(game: Game, name: str = "") -> dict[str, Any]:
    """Return a game as a document for JSON.

    Args:
        game: the game, over or not.
        name: its id.
    """
    board = game.board
    rules = [f"{rule}_{value}" for rule, key in _SETTINGS.items() if (value := getattr(game.ending, key)) is not None]
    phases = [
        {
            "name": turn.position.phase.name,
            "state": _state(turn.position, turn.position.phase.name),
            "orders": {
                power: [write_order(board, order) for order in orders]
                for power, orders in zip(board.powers, turn.orders, strict=True)
            },
            "results": {unit: list(unit_results) for unit, unit_results in turn.results.items()},
            "messages": [],
        }
        for turn in game.turns
    ]
    last = COMPLETED if game.outcome else game.position.phase.name
    state = _state(game.position, last)
    if game.outcome:
        winners = (board.powers[power] for power in game.outcome.powers)
        state["note"] = " ".join((game.outcome.kind, game.position.phase.name, *winners))
    phases.append({"name": last, "state": state, "orders": {}, "results": {}, "messages": []})
    return {"id": name, "map": board.name, "rules": rules, "phases": phases}


def _state(position: Position, name: str) -> dict[str, Any]:
    board, powers = position.board, range(len(position.board.powers))
    places = board.locations
    lost = position.dislodged.values()

    def by_power(values: Iterable[Any]) -> dict[str, Any]:
        return dict(zip(board.powers, values, strict=True))

    def units(power: int) -> list[str]:
        own = [unit_text(board, unit.fleet, unit.at) for unit in position.units_of(power)]
        return own + [f"*{unit_text(board, unit.fleet, unit.at)}" for unit, _ in lost if unit.power == power]

    def retreats(power: int) -> dict[str, list[str]]:
        return {
            unit_text(board, unit.fleet, unit.at): [places[to] for to in options]
            for unit, options in lost
            if unit.power == power
        }

    def builds(power: int) -> dict[str, Any]:
        count = position.builds(power) if position.phase.kind == ADJUSTMENTS else 0
        return {"count": count, "homes": [places[site] for site in position.build_sites(power)] if count > 0 else []}

    def influence(power: int) -> list[str]:
        return [places[province] for province, owner in sorted(position.influence.items()) if owner == power]

    return {
        "name": name,
        "map": board.name,
        "units": by_power(map(units, powers)),
        "retreats": by_power(map(retreats, powers)),
        "centers": by_power([places[center] for center in position.centers_of(power)] for power in powers),
        "homes": by_power([places[home] for home in homes] for homes in board.homes),
        "influence": by_power(map(influence, powers)),
        "builds": by_power(map(builds, powers)),
    }


def load(document: Mapping[str, Any]) -> Game:
    """Return the game of a document.

    Positions and results are taken from the document, and not adjudicated again.

    Raises:
        BadSavedGame: a field is missing or unreadable, or the map is unknown.
    """
    try:
        board = MAPS.get(document["map"])
        if board is None:
            hint = f"Maps: {', '.join(MAPS)}."
            raise BadSavedGame(f"The saved game is on the map {document['map']!r:.40}, which is unknown.", hint=hint)
        game = Game(board, _ending(document["rules"]))
        for row in document["phases"][:-1]:
            game.turns.append(_turn(board, row))
        name, state = document["phases"][-1]["name"], document["phases"][-1]["state"]
        if name == COMPLETED:
            kind, name, *winners = state["note"].split()
            game.outcome = Outcome(kind, tuple(board.powers.index(winner) for winner in winners))
        game.position = _position(board, state, _phase(name))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, BadOrder) as error:
        raise BadSavedGame(
            f"The document is no saved game: {type(error).__name__} {error!s:.100}.", hint="See ADR/guide/diplomacy.md."
        ) from error
    return game


def _ending(rules: Iterable[str]) -> Ending:
    ending: dict[str, int] = {}
    for rule in rules:
        name, _, value = rule.rpartition("_")
        if name in _SETTINGS:
            ending[_SETTINGS[name]] = int(value)
    return Ending(**ending)


def _phase(name: str) -> Phase:
    season, year_text, kind = name[0], name[1:-1], name[-1]
    if season not in "SFW" or kind not in "MRA":
        raise ValueError(f"{name!r} is no phase")
    return Phase(int(year_text), season, kind)


def _turn(board: Map, row: Mapping[str, Any]) -> Turn:
    position = _position(board, row["state"], _phase(row["name"]))
    orders = tuple(tuple(parse_order(board, text) for text in row["orders"].get(power) or ()) for power in board.powers)
    return Turn(position, orders, {unit: tuple(unit_results) for unit, unit_results in row["results"].items()})


def _position(board: Map, state: Mapping[str, Any], phase: Phase) -> Position:
    units: dict[int, Unit] = {}
    dislodged: dict[int, Dislodged] = {}
    owners: dict[int, int] = {}
    influence: dict[int, int] = {}
    for power, name in enumerate(board.powers):
        for text in state["units"][name]:
            kind, _, code = text.lstrip("*").partition(" ")
            unit = Unit(power, {"A": False, "F": True}[kind], board.number[code])
            if text.startswith("*"):
                options = state["retreats"][name][text[1:]]
                dislodged[board.province_of[unit.at]] = Dislodged(unit, tuple(board.number[to] for to in options))
            else:
                units[board.province_of[unit.at]] = unit
        owners.update({board.number[code]: power for code in state["centers"][name]})
        influence.update({board.number[code]: power for code in state["influence"][name]})
    return Position(board, phase, units, dislodged, owners, influence)
