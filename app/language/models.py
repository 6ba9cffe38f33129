"""A configuration's base model and generator, loaded once in a process."""

from collections.abc import Sequence
from threading import Lock

from app.config import Compute, GameConfig
from app.core import ModelHash
from app.language.base_files import NoBaseModel
from app.language.base_model import BaseModel, get_base, load_base
from app.language.generator import Adapter, get_adapter
from app.language.peft_generator import PeftGenerator
from app.store import BlobStore

MOST_LOADED = 16
"""Adapters that stay loaded in a process; one of rank 8 of a model of 0.7 million parameters takes 0.3 MB."""


def base_of(store: BlobStore, config: GameConfig, fingerprint: str) -> BaseModel:
    """Return the base model of an adapter: the user's own, or one out of the store.

    Raises ``NoBaseModel``, ``MissingBlob`` or ``DamagedBlob``.
    """
    if config.language.base is None:
        return get_base(store, fingerprint)
    base = load_base(config.language.base)
    if base.fingerprint != fingerprint:
        raise NoBaseModel(
            f"MODEL_MISMATCH: the base model {config.language.base!r} is {base.fingerprint}, and the run was begun "
            f"with {fingerprint}.",
            hint="Set language.base back to the model of the run's beginning: adapters fit no other.",
        )
    return base


class GeneratorCache:
    """The generator that a process used last. A base model is large, so there is only one.

    Loaded adapters stay, because their names are hashes of their content; those used longest ago are unloaded.
    """

    def __init__(self) -> None:
        self._key: tuple[object, ...] | None = None
        self._generator: PeftGenerator | None = None
        self.lock = Lock()
        """Held while the generator is used, because it is not thread-safe."""

    def get(self, store: BlobStore, config: GameConfig, models: Sequence[ModelHash], compute: Compute) -> PeftGenerator:
        """Return a generator with the adapters ``models`` loaded, each of which passed its canary.

        Raises ``ModelMismatch``, ``NoBaseModel``, ``MissingBlob``, ``DamagedBlob`` or ``MissingDevice``.
        """
        adapters = [get_adapter(store, model) for model in dict.fromkeys(models)]
        fingerprint = adapters[0].checkpoint.manifest.base
        assert fingerprint is not None
        key = (store, config.language.base, fingerprint, compute.device, compute.precision)
        if self._generator is None or key != self._key:
            self._key = self._generator = None  # the old one goes before the new one comes
            self._generator = PeftGenerator(base_of(store, config, fingerprint), compute)
            self._key = key
        self._make_room(self._generator, adapters)
        for adapter in adapters:
            self._generator.load(adapter)
        return self._generator

    def _make_room(self, generator: PeftGenerator, adapters: Sequence[Adapter]) -> None:
        wanted = {adapter.name for adapter in adapters}
        idle = [name for name in generator.loaded if name not in wanted]
        surplus = len(generator.loaded) + len(wanted - {*generator.loaded}) - MOST_LOADED
        for name in idle[: max(0, surplus)]:
            generator.unload(name)


GENERATORS = GeneratorCache()
