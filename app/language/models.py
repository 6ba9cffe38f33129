"""A configuration's base model and generator, loaded once in a process."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from flyball.app.config import Compute, GameConfig
from flyball.app.core import ModelHash
from flyball.app.language.base_model import (
    BaseModel,
    check_fingerprint,
    get_base,
    load_base,
    place_base,
    vocabulary_of,
)
from flyball.app.language.generator import Adapter, Generator, get_adapter
from flyball.app.language.peft_generator import PeftGenerator
from flyball.app.language.served_generator import ServedGenerator
from flyball.app.store import BlobStore

MOST_LOADED = 16
"""Adapters that stay loaded in a process; one of rank 8 of a model of 0.7 million parameters takes 0.3 MB."""


def base_of(store: BlobStore, config: GameConfig, fingerprint: str) -> BaseModel:
    """Return the user's base model or a stored one. Raises ``NoBaseModel``, ``MissingBlob`` or ``DamagedBlob``."""
    if config.language.base is None:
        return get_base(store, fingerprint)
    base = load_base(config.language.base)
    check_fingerprint(config.language.base, base.fingerprint, fingerprint)
    return base


G = TypeVar("G", PeftGenerator, ServedGenerator)


class _Cached(Generic[G]):
    """A cached generator with the key that it was made for."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] | None = None
        self._generator: G | None = None

    def get(
        self,
        store: BlobStore,
        config: GameConfig,
        models: Sequence[ModelHash],
        runtime: object,
        make: Callable[[str], G],
    ) -> G:
        """Return the generator of a base model, with adapters loaded.

        ``runtime`` is where the generator runs. A new generator replaces the last one if the base model or the runtime
        differs.
        """
        adapters = [get_adapter(store, model) for model in dict.fromkeys(models)]
        fingerprint = adapters[0].checkpoint.manifest.base
        assert fingerprint is not None
        key = (store, config.language.base, fingerprint, runtime)
        if self._generator is None or key != self._key:
            if self._generator is not None:
                self._generator.close()
            self._key = self._generator = None  # before the new one is made, because generators are large
            self._generator = make(fingerprint)
            self._key = key
        _make_room(self._generator, adapters)
        for adapter in adapters:
            self._generator.load(adapter)
        return self._generator


def _make_room(generator: Generator, adapters: Sequence[Adapter]) -> None:
    needed = {adapter.name for adapter in adapters}
    idle = [name for name in generator.loaded if name not in needed]
    surplus = len(generator.loaded) + len(needed - {*generator.loaded}) - MOST_LOADED
    for name in idle[: max(0, surplus)]:
        generator.unload(name)


class GeneratorCache:
    """The generators that a process used last.

    There is one that runs in this process, and one that asks servers. A base model is large, so there is only one of
    each. Loaded adapters stay, because their names are hashes of their content. Those used longest ago are unloaded.
    """

    def __init__(self) -> None:
        self._own = _Cached[PeftGenerator]()
        self._served = _Cached[ServedGenerator]()
        self.lock = Lock()
        """Held while a generator is used, because generators are not thread-safe."""

    def get(self, store: BlobStore, config: GameConfig, models: Sequence[ModelHash], compute: Compute) -> Generator:
        """Return a generator with the adapters ``models`` loaded and verified.

        Raises ``ModelMismatch``, ``NoBaseModel``, ``MissingBlob``, ``DamagedBlob`` or ``MissingDevice``; with servers,
        also ``NoServer``, ``ServerRefused`` or ``UnusableFile``.
        """
        servers = compute.text_servers
        if servers is None:
            return self.get_own(store, config, models, compute)

        def make(fingerprint: str) -> ServedGenerator:
            vocabulary = vocabulary_of(store, config.language.base, fingerprint)
            base = place_base(store, config.language.base, fingerprint, Path(servers.folder))
            return ServedGenerator(vocabulary, servers, base)

        return self._served.get(store, config, models, servers, make)

    def get_own(
        self, store: BlobStore, config: GameConfig, models: Sequence[ModelHash], compute: Compute
    ) -> PeftGenerator:
        """Return a generator in this process, even if there are servers. See ``get``."""

        def make(fingerprint: str) -> PeftGenerator:
            return PeftGenerator(base_of(store, config, fingerprint), compute)

        return self._own.get(store, config, models, (compute.device, compute.precision), make)


GENERATORS = GeneratorCache()
