"""Kept games of people: a file each in the run folder. Nothing learns from them, and no rating counts them."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from flyball.app.api.arguments import Seed
from flyball.app.api.watching import Decision
from flyball.app.config import FrozenModel, GameConfig, RunFolder
from flyball.app.core import ConfigKey, FlyballError, UnusableFile, reading, writing
from flyball.app.games import open_table
from flyball.app.games.session import GameSession

NAME = re.compile(r"[a-z][a-z0-9_]*-\d{8}T\d{6}Z-[0-9a-f]{8}")


class NoSuchGame(FlyballError, code="unknown"):
    """The run folder has no kept game of this name."""


class KeptGame(FrozenModel):
    """A finished game.

    Attributes:
        format: of the file.
        kept: when the game was kept.
        rules_version: of the rules that it was played by.
        players: of each seat: ``PERSON``, a bot, or the hash of a model, perhaps with its search.
        seed: of the session; with ``actions``, it gives the game again.
        actions: all decisions, in the numbers of the seats.
        decisions: those of the models and bots, with their values and probabilities.
        history: as ``Table.history`` returns it.
        returns: each seat's outcome.
        truncated: whether the game was cut off at the move limit.
    """

    format: Literal[1] = 1
    kept: datetime
    config: ConfigKey
    rules_version: str
    players: tuple[str, ...]
    seed: Seed
    actions: tuple[int, ...]
    decisions: tuple[Decision, ...]
    history: tuple[int, ...]
    returns: tuple[float, ...]
    truncated: bool


def keep_game(folder: RunFolder, game: KeptGame, game_id: str) -> str:
    """Write a game, and return its name. The id tells apart games of one second. Raises ``UnusableFile``."""
    name = f"{game.config}-{game.kept:%Y%m%dT%H%M%SZ}-{game_id[:8]}"
    file = _file(folder, name)
    unfinished = file.with_suffix(".unfinished")
    with writing(file):
        file.parent.mkdir(exist_ok=True)
        unfinished.write_text(game.model_dump_json(indent=1), encoding="utf-8")
        unfinished.replace(file)
    return name


def kept_text(folder: RunFolder, name: str) -> str:
    """Return the content of a kept game's file. Raises ``NoSuchGame`` or ``UnusableFile``."""
    file = _file(folder, name)
    if not NAME.fullmatch(name) or not file.exists():
        raise NoSuchGame(f"The run has no kept game {name!r}.", hint="The page Games lists them.")
    with reading(file):
        return file.read_text(encoding="utf-8")


def kept_game(folder: RunFolder, name: str) -> KeptGame:
    """Read a kept game. Raises ``NoSuchGame`` or ``UnusableFile``."""
    try:
        return KeptGame.model_validate_json(kept_text(folder, name))
    except (ValidationError, UnicodeDecodeError) as error:
        raise UnusableFile(f"{_file(folder, name)} holds no game.", hint="Delete it, or put a copy back.") from error


def check_seats(game: KeptGame, config: GameConfig) -> None:
    """Refuse a game that has not as many players and returns as a configuration. Raises ``UnusableFile``."""
    if not len(game.players) == len(game.returns) == config.players:
        raise UnusableFile(
            f"A kept game of {config.key} names {len(game.players)} players and {len(game.returns)} returns, and "
            f"{config.key} has {config.players} seats.",
            hint="Delete its file, or put a copy back.",
        )


def check_rules(game: KeptGame, config: GameConfig) -> None:
    """Refuse to show a game of other rules than a configuration has now, or one that its actions do not give.

    Raises ``UnusableFile``.
    """
    check_seats(game, config)
    now = open_table(config, 0).spec.rules_version
    if now != game.rules_version:
        raise UnusableFile(
            f"This game was played by the rules {game.rules_version}, and {config.key} now has {now}.",
            hint="Download it; it cannot be shown.",
        )
    try:
        standing = GameSession(config, game.seed, game.actions).standing()
    except FlyballError:
        standing = None
    if standing is None or (standing.history, standing.returns) != (game.history, game.returns):
        hint = "Delete its file, or put a copy back."
        raise UnusableFile("The file of this game is damaged: its moves do not lead to its end.", hint=hint)


def kept_names(folder: RunFolder) -> Iterator[str]:
    """Iterate over the names of the kept games, the latest first."""
    names = (file.stem for file in folder.games.glob("*.json") if NAME.fullmatch(file.stem))
    yield from sorted(names, key=lambda name: name.split("-", 1)[1], reverse=True)


def _file(folder: RunFolder, name: str) -> Path:
    return folder.games / f"{name}.json"
