"""Players of text games by name: bots, the base model, adapters."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from flyball.app.api.models import check_game, checked_search, fetch_model
from flyball.app.api.runs import RunLocation, Say
from flyball.app.backends import describe
from flyball.app.config import CPU, GameConfig, RunFolder
from flyball.app.core import BadUsage, FlyballError, ModelHash
from flyball.app.language.adapters import export_adapter
from flyball.app.language.base_model import load_base, place_base, vocabulary_of
from flyball.app.language.generator import get_adapter
from flyball.app.language.jobs import canary_texts
from flyball.app.language.peft_generator import PeftGenerator
from flyball.app.language.peft_import import import_adapter, is_adapter
from flyball.app.store import BlobStore, DamagedBlob, FileStore, Manifest, MissingBlob, open_store
from flyball.app.train.text import holds_text_run, read_run


def fetch_text_player(
    name: str, argument: str, location: RunLocation, config: GameConfig, store: BlobStore, *, say: Say
) -> str:
    """Return the name of a bot, or the hash of an adapter.

    An adapter is copied into ``store``, and so is its base model unless the configuration names one. An adapter is
    named as in ``fetch_model``, or by a folder of PEFT. Raises the errors of ``fetch_model``, ``ForeignModel``,
    ``ModelMismatch``, and those of ``import_adapters`` for a folder of PEFT.
    """
    if name in describe(config).bots:
        return name
    _, search = checked_search(name, argument)
    if search:
        raise BadUsage(f"{argument} {name}: language models do not search; leave {search} out.")
    folder = Path(name)
    if is_adapter(folder):
        return import_adapters({name: folder}, config, store)[name]
    model = fetch_model(name, argument, location, config.key, store, say=say)
    manifest = get_adapter(store, model).checkpoint.manifest
    check_game(f"{argument} {name}", manifest, config, location, say)
    _copy_base(manifest, config, store, _stores(folder, location))
    return model


def export_text_model(
    name: str, location: RunLocation, store: BlobStore, model: ModelHash, folder: Path
) -> dict[str, str]:
    """Write an adapter into a folder, for PEFT and vLLM.

    Return the paths of the adapter and of its base model. A small base model is written into ``folder``, too; a user's
    own stays where it is. ``name`` is what the user called the model: a folder of ``flyball train`` holds the base
    model, or says which one it is. Raises ``ModelMismatch``, ``NoBaseModel`` or ``UnusableFile``.
    """
    adapter, training = get_adapter(store, model), Path(name)
    manifest = adapter.checkpoint.manifest
    config = read_run(training).config if holds_text_run(training) else location.config(manifest.config_key)
    fingerprint = _copy_base(manifest, config, store, _stores(training, location))
    vocabulary_of(store, config.language.base, fingerprint)  # refuses a base model that the adapter does not fit
    base = place_base(store, config.language.base, fingerprint, folder)
    return {"folder": str(export_adapter(adapter, folder, base)), "base": base}


def import_adapters(folders: dict[str, Path], config: GameConfig, store: BlobStore) -> dict[str, ModelHash]:
    """Store adapters from folders of PEFT; return their hashes by name.

    Raises ``BadUsage`` if the configuration names no base model, ``NoBaseModel``, and what ``import_adapter`` raises.
    """
    if not folders:
        return {}
    if config.language.base is None:
        raise BadUsage(
            f"{next(iter(folders.values()))} is an adapter of PEFT, and {config.key} does not say of which base model.",
            hint=f"Set games.{config.key}.language.base to the base model that it adapts.",
        )
    base = load_base(config.language.base)
    generator = PeftGenerator(base, CPU)
    canary = canary_texts(config, base)
    return {name: import_adapter(store, generator, folder, config, canary=canary) for name, folder in folders.items()}


def _stores(folder: Path, location: RunLocation) -> Iterator[BlobStore]:
    """Yield the stores that may hold the base model of an adapter; those of ``folder``, if it exists, come first."""
    if folder.is_dir():
        yield FileStore(folder / "models")
        yield open_store(RunLocation(RunFolder(folder), None).store)
    yield open_store(location.store)


def _copy_base(manifest: Manifest, config: GameConfig, store: BlobStore, sources: Iterator[BlobStore]) -> str:
    """Copy an adapter's base model into ``store`` unless it is the user's own; return its fingerprint."""
    assert manifest.base is not None  # every adapter names its base model
    if config.language.base is not None:
        return manifest.base
    for source in sources:
        with suppress(MissingBlob, DamagedBlob):
            store.put(source.get(manifest.base))
            return manifest.base
    raise FlyballError(
        f"The base model {manifest.base} of the adapter is missing.",
        hint="Name the run that the adapter is from, or the folder of its training instead of a file. If the "
        f"base model is your own, set games.{config.key}.language.base.",
    )
