"""User-defined games, by the game strings that name them.

- ``package.module:name``, or an entry point of group ``flyball.games``: a ``Game`` class, or a factory
  ``factory(config, slots)`` of a ``Table``.
- ``pettingzoo:connect_four_v3``: an environment of PettingZoo.
"""

from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any, cast

import numpy as np
import pyspiel

from flyball.app.config import GameConfig
from flyball.app.core import FlyballError, load_plugin, located, misspelling_hint, misspelt
from flyball.app.games.game import BrokenGame, Game, GameTable, game_spec
from flyball.app.games.parity import Checker, ReplayChecker
from flyball.app.games.pettingzoo import PREFIX, pettingzoo_table
from flyball.app.games.scale import implied_scale
from flyball.app.games.spec_check import spec_faults
from flyball.app.games.table import Indices, Mask, Observations, Seats, Table, TableSpec, UnknownGame

GAMES = "flyball.games"
"""Group of entry points that are games."""

TABLE_METHODS = ("reset", "seats", "observe", "view", "step", "earned", "returns", "truncated", "history")
SEARCH_METHODS = ("copy_from", "branch")
"""Further methods of tables whose games can be searched."""


def is_own(game: str) -> bool:
    """Return whether a game string names an object or entry point, and no OpenSpiel game, which would come first."""
    name = game.partition("(")[0]
    return ":" in name or (name not in pyspiel.registered_names() and bool(entry_points(group=GAMES, name=game)))


def open_own(config: GameConfig, slots: int) -> Table:
    """Return a table for ``slots`` games. Raises ``UnknownGame`` or ``UnknownPlugin``."""
    if config.engine != "openspiel":
        raise UnknownGame(
            f"{config.key} has engine = {config.engine!r}, which is for Flyball's own rules, and plays {config.game}.",
            hint="Leave engine out.",
        )
    table = _table(config, slots)
    if table.spec.players != config.players:
        raise UnknownGame(
            f"{config.game!r} is played by {table.spec.players}, the configuration says {config.players}.",
            hint=f"Set players = {table.spec.players}, and the end of the key accordingly.",
        )
    return table


def own_checker(config: GameConfig) -> Checker:
    """Return the parity checker of a user-defined game: the game's own, or a replay."""
    make = getattr(open_own(config, 0), "checker", None)
    if make is None:
        return ReplayChecker(lambda: open_own(config, 1))
    try:
        checker: Checker = make()
    except Exception as error:  # a user's function may raise anything
        raise BrokenGame(
            f"{config.game} has a checker that raised {type(error).__name__}: {error}.",
            hint="It is called without arguments.",
        ) from error
    against = getattr(checker, "against", None)
    if not callable(getattr(checker, "failures", None)) or not isinstance(against, str) or not 1 <= len(against) <= 100:
        raise BrokenGame(
            f"{config.game} has a checker that makes a {type(checker).__name__} without failures, or against = "
            f"{against!r}.",
            hint="Make an object with `failures(record)`, which returns texts, and `against`, the name of its rules: "
            "at most 100 characters.",
        )
    return checker


def _table(config: GameConfig, slots: int) -> Table:
    name = config.game
    if name.startswith(PREFIX):
        return pettingzoo_table(name, slots, config.outcome_scale or 1.0, config.max_moves)
    plugin = load_plugin(GAMES, name)
    if isinstance(plugin, type) and issubclass(plugin, Game):
        spec = _class_spec(plugin, name)  # type: ignore[arg-type]  # mypy does not see that a class is hashable
        if config.outcome_scale is not None:
            spec = replace(spec, outcome_scale=config.outcome_scale)
        return GameTable(plugin, spec, name, slots, max_moves=config.max_moves, checker=plugin.checker)
    if not callable(plugin):
        raise BrokenGame(
            f"{name} is a {type(plugin).__name__}.",
            hint="Name a subclass of flyball.Game, or a function of a GameConfig and a number of slots.",
        )
    try:
        table = plugin(config, slots)
    except FlyballError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise BrokenGame(
            f"{name} makes no table of {slots} slots: {type(error).__name__}: {located(error)}.",
            hint="It is called with a GameConfig and the number of slots, which may be 0.",
        ) from error
    return _check_table(table, name)


@cache
def _class_spec(game: type[Game], name: str) -> TableSpec:
    """Return the description of a class's games, with the scale that they imply unless the class has one."""
    spec = game_spec(game, name)
    return spec if game.scale is not None else replace(spec, scale=implied_scale(game, spec, name))


def _check_table(table: Any, name: str) -> Table:
    """Return a factory's result if it is a complete table. Raises ``BrokenGame`` if anything is missing or wrong."""
    spec = getattr(table, "spec", None)
    methods = (*TABLE_METHODS, *SEARCH_METHODS) if getattr(spec, "searchable", False) else TABLE_METHODS
    if missing := [method for method in methods if not callable(getattr(table, method, None))]:
        raise BrokenGame(
            f"{name} returned an object of {type(table).__name__} without {', '.join(missing)}.",
            hint="Return an object of a subclass of flyball.Table, whose docstrings describe the methods.",
        )
    if not isinstance(spec, TableSpec):
        raise BrokenGame(
            f"{name} returned a table whose spec is not a TableSpec.", hint="Set it to a flyball.TableSpec."
        )
    if unknown := misspelt(table, Table, ("checker",)):
        raise BrokenGame(
            f"{name} returned a table with {unknown[0]}, which no table has.", hint=misspelling_hint(*unknown)
        )
    for fault in spec_faults(table.spec):
        raise BrokenGame(f"{name}: {fault.what}", hint=fault.hint)
    return cast("Table", table if spec.observation_type is np.uint8 else _FiniteTable(table, name))


class _FiniteTable:
    """A user's table whose observations have to be finite, because networks spread a NaN to a whole batch."""

    def __init__(self, table: Table, name: str) -> None:
        self.table, self._name = table, name

    def __getattr__(self, attribute: str) -> Any:
        # A copy has no table at first, and would look for it for ever.
        if attribute.startswith("_") or attribute == "table":
            raise AttributeError(attribute)
        return getattr(self.table, attribute)

    def observe(self, slots: Indices) -> tuple[Observations, Mask]:
        """See ``Table.observe``. Raises ``BrokenGame``."""
        obs, mask = self.table.observe(slots)
        return self._finite(obs, slots, "observe", self.table.seats()[slots]), mask

    def view(self, slots: Indices, seats: Seats) -> Observations:
        """See ``Table.view``. Raises ``BrokenGame``."""
        return self._finite(self.table.view(slots, seats), slots, "view", seats)

    def copy_from(self, other: "_FiniteTable", sources: Indices, targets: Indices) -> None:
        """See ``Table.copy_from``."""
        self.table.copy_from(other.table, sources, targets)

    def _finite(self, obs: Observations, slots: Indices, method: str, seats: Seats) -> Observations:
        finite = np.isfinite(obs)
        if np.ndim(obs) == 2 and not finite.all():  # check_game reports other shapes
            row, index = np.argwhere(~finite)[0]
            raise BrokenGame(
                f"{self._name}: {method} returned {obs[row, index]} at index {index}, for seat {seats[row]} in slot "
                f"{slots[row]}.",
                hint="Look for divisions by 0.",
            )
        return obs
