"""Import of a ``league.json``, whose agents may be folders with adapters."""

import json
from pathlib import Path

from flyball.app.api.runs import RunLocation
from flyball.app.config import LANGUAGE_BACKEND
from flyball.app.core import BadUsage, ConfigKey, ModelHash, parse_json, reading
from flyball.app.league.document import DamagedLeague, LeagueMetadata, load_league
from flyball.app.league.foreign_document import foreign_paths, translated
from flyball.app.league.league import League
from flyball.app.store import open_store


def read_league(file: Path, adapters: Path | None, key: str, location: RunLocation) -> tuple[League, LeagueMetadata]:
    """Read a league, and store the adapters that it names by path.

    Args:
        file: a league.json.
        adapters: the folder that the paths are relative to; None for the file's folder.
        key: the configuration that the league is about.
        location: the run.

    Raises ``DamagedLeague``, ``UnusableFile`` for an adapter that is missing or cannot be used, ``BadUsage`` or
    ``ModelMismatch``.
    """
    with reading(file):
        data = file.read_bytes()
    try:
        document = parse_json(data)
    except ValueError:
        return load_league(data, str(file))  # raises an error that says what is wrong
    paths = foreign_paths(document)
    if paths:
        root = adapters or file.parent
        hashes = _store_adapters({name: root / path for name, path in paths.items()}, key, location)
        try:
            data = json.dumps(translated(document, hashes)).encode()
        except (AttributeError, KeyError, TypeError) as error:
            raise DamagedLeague(
                f"{file} is not a league: {type(error).__name__}: {error}.",
                hint="Its agents need type, path, elo and matches; the entries of its history p1, p2 and result.",
            ) from error
    elif adapters is not None:
        raise BadUsage(f"{file} names no adapter by a path: leave --adapters out.")
    return load_league(data, str(file))


def _store_adapters(folders: dict[str, Path], key: str, location: RunLocation) -> dict[str, ModelHash]:
    from flyball.app.api.text_players import import_adapters  # loads torch

    config = location.config(ConfigKey(key))
    if config.backend != LANGUAGE_BACKEND:
        raise BadUsage(
            f"{next(iter(folders.values()))} is an adapter, and {key} is played by {config.backend}.",
            hint="Name a configuration of language models, such as diplomacy_7p.",
        )
    return import_adapters(folders, config, open_store(location.store))
