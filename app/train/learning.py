"""A network's first policy, which is random or cloned, and the successors of a policy."""

from collections.abc import Callable
from pathlib import Path

from flyball.app.config import PipelineSettings
from flyball.app.core import derive_seed, reading
from flyball.app.learning.devices import missing_device
from flyball.app.learning.jobs import first_model
from flyball.app.learning.learner import imitate
from flyball.app.learning.samples import make_samples
from flyball.app.store import Checkpoint, Manifest, MemoryStore, get_checkpoint, load_experience, put_checkpoint
from flyball.app.train.game import RunGame, UnfitSettings, lessons


def check_start(settings: PipelineSettings, *, begun: bool) -> None:
    """Check that a run can start with its settings.

    The devices must exist and, before a run has ``begun``, the file to clone from. Raises ``UnfitSettings`` or
    ``UnusableFile``.
    """
    for key, compute in (("training.device", settings.updates), ("collection.device", settings.games)):
        if reason := missing_device(compute.device, compute.processes):
            raise UnfitSettings(
                f"{key}: {reason}.", hint="Leave it at cpu or set auto, and training.processes to no more than GPUs."
            )
    if not begun and settings.collection.initial_policy == "behavioral_clone" and settings.cloning.experience:
        path = Path(settings.cloning.experience)
        with reading(path):
            path.open("rb").close()


def first_policy(game: RunGame, settings: PipelineSettings, seed: int, say: Callable[[str], None]) -> Checkpoint:
    """Return the policy that a run begins with; ``say`` receives the progress of cloning."""
    drawn = _checkpoint(*first_model(game.config, game.spec, derive_seed(seed, "parameters")), None)
    return drawn if settings.collection.initial_policy == "random" else _cloned(game, drawn, settings, seed, say)


def _cloned(
    game: RunGame, student: Checkpoint, settings: PipelineSettings, seed: int, say: Callable[[str], None]
) -> Checkpoint:
    """Clone the teacher in rounds, each on new games of its own, or the player of a file's rows."""
    cloning = settings.cloning
    experience = load_experience(Path(cloning.experience), game.config) if cloning.experience else None
    if experience is None:  # the first round may take minutes
        say(f"Cloning {cloning.teacher} in {cloning.rounds} rounds of {cloning.games_per_round:,} games.")
    for number in range(1, cloning.rounds + 1):
        fresh = derive_seed(seed, "lesson", number)
        shard = experience or lessons(
            game,
            game.bot(cloning.teacher),
            student.model,
            cloning.games_per_round,
            fresh,
            opening_plies=settings.collection.opening_plies,
        )
        samples = make_samples([shard], settings.ppo.gamma, gae_lambda=1.0)  # the critic learns whole returns
        result = imitate(student, samples, cloning, seed=derive_seed(seed, "cloning", number), compute=settings.updates)
        metrics = result.metrics
        say(
            f"cloning {number}/{cloning.rounds}: {len(samples):,} rows of {cloning.experience or cloning.teacher}, "
            f"accuracy {metrics.accuracy:.3f}, cross-entropy {metrics.cross_entropy:.3f}, "
            f"value loss {metrics.value_loss:.4f}"
        )
        # Adam's state is dropped at the end, because moments from imitation do not fit what follows.
        student = successor(student, result.parameters, result.optimizer if number < cloning.rounds else None)
    return student


def successor(base: Checkpoint, parameters: bytes, optimizer: bytes | None) -> Checkpoint:
    """Return the model that training made from ``base``."""
    return _checkpoint(base.manifest.successor(base.model), parameters, optimizer)


def _checkpoint(manifest: Manifest, parameters: bytes, optimizer: bytes | None) -> Checkpoint:
    store = MemoryStore()
    return get_checkpoint(store, put_checkpoint(store, manifest, parameters, optimizer), optimizer=True)
