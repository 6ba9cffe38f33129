"""Looking up models by the names that people give them."""

import os
from dataclasses import replace
from pathlib import Path

from flyball.app.api.runs import RunLocation, Say, check_played, current_model, open_journal
from flyball.app.config import FEWEST_SIMULATIONS, MOST_SIMULATIONS, GameConfig, RunFolder
from flyball.app.config.loading import UnknownConfig
from flyball.app.core import BadUsage, FlyballError, ModelHash, UnusableFile, split_search
from flyball.app.games import own_hearts
from flyball.app.games.hearts.rules import HeartsRules
from flyball.app.journal.history import last_settings
from flyball.app.store import BlobStore, FileStore, Manifest, get_checkpoint, open_store, read_model

CURRENT = ("current", "champion")
SHORTEST_HASH = 6
"""Fewest digits that name a model, if no other hash begins with them."""

MODELS = f"a file, a folder of flyball train, a run folder, a hash of at least {SHORTEST_HASH} digits, or current"


class UnknownModel(FlyballError, code="unknown"):
    """No model or bot has this name."""


class ForeignModel(FlyballError, code="usage"):
    """A model of another game."""


class ConfigNotNamed(BadUsage, code="config_not_named"):
    """A model's name alone does not say which configuration is meant."""


def checked_search(name: str, argument: str) -> tuple[str, str]:
    """Split a name such as ``champion+64`` into the model and ``+64``.

    Without a search, the second part is empty. Raises ``BadUsage`` for too few or too many positions.
    """
    model, simulations = split_search(name)
    if simulations is None:
        return name, ""
    if not FEWEST_SIMULATIONS <= simulations <= MOST_SIMULATIONS:
        raise BadUsage(
            f"{argument} {name}: a search looks at {FEWEST_SIMULATIONS} to {MOST_SIMULATIONS} positions for a move."
        )
    return model, f"+{simulations}"


def fetch_model(
    name: str, argument: str, location: RunLocation, config_key: str | None, store: BlobStore, *, say: Say
) -> ModelHash:
    """Copy a model into ``store`` and return its hash.

    ``name`` is a file with a checkpoint or an exported policy; a folder of ``flyball train``, for its best model; a
    run folder, for its current model of ``config_key``; a hash in the run's store, or its beginning; or ``current``,
    for the current model of ``config_key``. ``argument`` names the argument in messages.

    Raises ``UnknownModel``, ``UnusableFile``, ``NoRun``, ``NotAJournal``, ``NoModel`` or ``DamagedBlob``.
    """
    if not name:
        raise BadUsage(f"{argument} is empty; it takes {MODELS}.")
    if (file := Path(name)).is_dir():
        data = _in_folder(file, argument, config_key, say)
    elif file.exists():
        data = read_model(file)
    elif os.sep in name or file.suffix:
        raise UnusableFile(f"{argument}: there is no file {name}.", hint=f"It takes {MODELS}.")
    elif name in CURRENT:
        data = open_store(location.store).get(_current_hash(argument, location, config_key, say))
    else:
        data = open_store(location.store).get(_full_hash(name, argument, location))
    model = ModelHash(store.put(data))
    get_checkpoint(store, model)  # refuses data that is not a model before anything is played
    return model


def _in_folder(folder: Path, argument: str, config_key: str | None, say: Say) -> bytes:
    if not RunFolder(folder).has_journal:
        return _trained_model(folder)
    location = RunLocation(RunFolder(folder), None)
    return open_store(location.store).get(_current_hash(argument, location, config_key or _only_config(location), say))


def _only_config(location: RunLocation) -> str | None:
    """Return the configuration that a run plays; None if it plays several."""
    with open_journal(location) as reader:
        settings = last_settings(reader)
    return settings.configs[0].key if settings and len(settings.configs) == 1 else None


def _trained_model(folder: Path) -> bytes:
    from flyball.app.train.state import NoRun, TrainingFolder  # loads torch
    from flyball.app.train.text import holds_text_run, read_run

    run = TrainingFolder(folder)
    if holds_text_run(folder):
        return FileStore(run.models).get(read_run(folder).model)
    state = run.state()
    if state is None:
        hint = "Name a file, or the folder of flyball train."
        raise NoRun(f"{folder} holds no training run with a model.", hint=hint)
    return FileStore(run.models).get(state.best.model)


def _full_hash(name: str, argument: str, location: RunLocation) -> str:
    hashes = list(open_store(location.store).keys()) if len(name) >= SHORTEST_HASH else []
    matches = [key for key in hashes if key.startswith(name)]
    if len(matches) != 1:
        what = f"{len(matches)} models of {location.folder.path} begin with" if matches else "there is nothing called"
        run = "" if hashes else f" The run in {location.folder.path} has no models."
        raise UnknownModel(f"{argument}: {what} {name!r}.", hint=f"It takes {MODELS}.{run}")
    return matches[0]


def _current_hash(argument: str, location: RunLocation, config_key: str | None, say: Say) -> ModelHash:
    if config_key is None:
        raise ConfigNotNamed("Name the configuration whose current model is meant, too.")
    with open_journal(location) as reader:
        model = current_model(location, reader, config_key, say)
        if model is None:
            check_played(reader, location, config_key)
    if model is None:
        raise UnknownModel(f"{argument}: {config_key} has no current model yet.", hint="Name a hash or a file.")
    return model


def check_game(what: str, manifest: Manifest, config: GameConfig, location: RunLocation, say: Say) -> None:
    """Refuse a model of other rules or another number of players. Raises ``ForeignModel``."""
    theirs = manifest.config_key
    if theirs == config.key:
        return
    try:
        trained = location.config(theirs)
    except UnknownConfig:
        say(f"{what} was trained for {theirs}, which is not known here; it plays if it has the same shape.")
        return
    if _rules(trained) != _rules(config):
        raise ForeignModel(
            f"{what} was trained for {theirs}, not for {config.key}.",
            hint=f"Name a model of {config.key}, or play {theirs} with it.",
        )


def _rules(config: GameConfig) -> tuple[str | HeartsRules, int]:
    """Return the rules, without the number of hands in Hearts, and the number of players."""
    hearts = own_hearts(config)
    return config.game if hearts is None else replace(hearts, hands=1), config.players
