"""Checks of settings against the installed games, and against a run's earlier settings."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product

from app.config import RunSettings
from app.config.loading import BadSettings
from app.core import HEURISTIC, FlyballError

LASTING = ("game", "players", "network")
"""Settings of a recorded configuration that can't change, because its models would not fit."""


def check_playable(settings: RunSettings) -> None:
    """Check that every configuration's game can be loaded.

    Raises:
        BadSettings: names a configuration whose game does not exist, does not allow its number of players, or lacks
            the heuristic player that the configuration names.
    """
    from app.games import open_table  # imported late, because most commands don't need OpenSpiel

    for config in settings.configs:
        try:
            with _silent_stderr():
                heuristic = open_table(config, slots=0).spec.heuristic
        except FlyballError as error:
            raise BadSettings(f"{config.key} cannot be played: {error.message}", hint=error.hint) from error
        if HEURISTIC in config.builtins and heuristic is None:
            raise BadSettings(
                f"{config.key} has {HEURISTIC!r} among its builtins, and {config.game} has no such player.",
                hint=f"Take it out of games.{config.key}.builtins.",
            )


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Drop OpenSpiel's messages on stderr, because its exception holds the same text."""
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def check_lasting(past: Iterable[RunSettings], now: RunSettings) -> None:
    """Refuse a configuration whose models would not fit its new settings.

    Args:
        past: the run's earlier settings, the latest first; read until every configuration is found in them.
        now: the run's new settings.

    Raises:
        BadSettings: a recorded configuration would get another game, number of players or network.
    """
    unseen = set(now.by_key)
    for before in past:
        for key, name in product(unseen & before.by_key.keys(), LASTING):
            recorded = getattr(before.config(key), name)
            if recorded != getattr(now.config(key), name):
                raise BadSettings(
                    f"{key} was begun with {name} = {recorded}, and its models don't fit another.",
                    hint="Set it back, or give the new one a key or a run folder of its own.",
                )
        unseen -= before.by_key.keys()
        if not unseen:
            return
