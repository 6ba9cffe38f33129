"""Checks of settings: on this machine, and against a run's past."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product

from app.config import RunSettings
from app.config.loading import BadSettings
from app.core import HEURISTIC, FlyballError

LASTING = ("game", "players", "network")
"""Settings of a configuration that can't change once it has models."""


def check_playable(settings: RunSettings) -> None:
    """Load every game once.

    Raises:
        BadSettings: a game does not exist, or not for so many players, or has no heuristic player where one is wanted;
            names the configuration.
    """
    from app.games import open_table  # loads OpenSpiel, which most commands do without

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
    """Drop what OpenSpiel writes to stderr: its exception says the same."""
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
        now: its new settings.

    Raises:
        BadSettings: a configuration that has a past would get another game, number of players or network.
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
