"""Which model or built-in player a command is about."""

from pathlib import Path

import click

from app.cli.output import note
from app.cli.place import Place
from app.cli.selecting import open_journal
from app.cli.watching import read_board
from app.config import GameConfig
from app.core import HEURISTIC, RANDOM, FlyballError, ModelHash
from app.games import open_table
from app.portable import FORMATS
from app.store import BlobStore, FileStore, get_checkpoint, imported_checkpoint

BUILT_IN = (RANDOM, HEURISTIC)
CURRENT = ("current", "champion")
SHORTEST_HASH = 6
"""Digits of a hash that are enough to name a model, if no other has them too."""


class UnknownModel(FlyballError):
    """A model that is not there."""


def fetch_player(name: str, place: Place, config: GameConfig, store: BlobStore) -> str:
    """Copy a model, if it is one, into ``store``, and return what ``load_player`` calls it.

    Raises ``UnknownModel``.
    """
    if name in open_table(config, 0).spec.levels:
        return name
    return fetch_model(name, place, config.key, store) or name


def fetch_model(name: str, place: Place, config_key: str | None, store: BlobStore) -> ModelHash | None:
    """Copy a model into ``store`` and return its hash; None for a player that is built in.

    Args:
        name: a file, be it a checkpoint or an exported policy; the folder of a run of ``flyball train``, whose best
            model is meant; a hash or its beginning; ``current``.
        place: the run that hashes are of.
        config_key: the configuration whose model is current; None where that is not to be said.
        store: where to.

    Raises ``UnknownModel``, ``UnusablePolicy`` or ``DamagedBlob``.
    """
    if name in BUILT_IN:
        return None
    if (file := Path(name)).is_dir():
        data = _trained(file)
    elif file.is_file():
        data = imported_checkpoint(file) if file.suffix in FORMATS else file.read_bytes()
    else:
        if not place.folder.store.is_dir():
            raise UnknownModel(f"{name!r} is no file, and {place.folder.path} has no models.", hint="Look at --run.")
        models = FileStore(place.folder.store)
        data = models.get(_current(place, config_key) if name in CURRENT else _full_hash(name, models))
    model = ModelHash(store.put(data))
    get_checkpoint(store, model)  # refuses what is no model before anything is played
    return model


def _trained(folder: Path) -> bytes:
    from app.pipeline import NoRun, RunPlace  # loads torch

    run = RunPlace(folder)
    state = run.state()
    if state is None:
        raise NoRun(
            f"{folder} holds no training run with a model.", hint="Name a file, or the folder of flyball train."
        )
    return FileStore(run.models).get(state.best.model)


def _full_hash(name: str, store: FileStore) -> str:
    found = [key for key in store.keys() if key.startswith(name)]  # noqa: SIM118 - a store is no mapping
    if len(name) < SHORTEST_HASH:
        found = []
    if len(found) != 1:
        what = f"{len(found)} models begin with" if found else "There is no model"
        raise UnknownModel(
            f"{what} {name!r}.", hint="Write a file, the folder of a training, a hash of at least 6 digits, or current."
        )
    return found[0]


def _current(place: Place, config_key: str | None) -> ModelHash:
    if config_key is None:
        raise click.UsageError("Say of which configuration: --config KEY.")
    with open_journal(place) as reader:
        board = read_board(place.folder, reader, lambda letter: note(f"{letter.position}: {letter.error}"))
    model = next((row.model for row in board.state().configs if row.key == config_key), None)
    if model is None:
        raise UnknownModel(f"{config_key} has no current model yet.", hint="Name a model by its hash or file.")
    return model
