"""The distribution job: a promoted model is verified, those that nobody needs any more are deleted."""

from pathlib import Path

from app.config import Settings
from app.core import ModelHash
from app.store.checkpoints import delete_checkpoint, get_checkpoint
from app.store.files import FileStore


class DistributionSpec(Settings):
    """Arguments of the job."""

    store: Path
    model: ModelHash | None
    discard: tuple[ModelHash, ...]


def distribute(spec: dict[str, object], report: object) -> dict[str, object]:  # noqa: ARG001 - every job's signature
    """Read the model, if there is one, and its optimiser's state, which verifies every bit; delete those to discard.

    Raises ``MissingBlob`` or ``DamagedBlob``; then nothing is deleted.
    """
    wanted = DistributionSpec.model_validate(spec)
    store = FileStore(wanted.store)
    if wanted.model is not None:
        get_checkpoint(store, wanted.model, optimizer=True)
    for model in wanted.discard:
        delete_checkpoint(store, model)
    return {"model": wanted.model}
