"""The first policy of a run: drawn at random, or cloned from a bot."""

from collections.abc import Callable
from pathlib import Path

import torch

from app.config import CloningSettings, PipelineSettings
from app.core import ModelHash, derive_seed, reading
from app.learning.jobs import first_model
from app.learning.learner import imitate
from app.learning.network import missing_device
from app.learning.samples import make_samples
from app.store import Checkpoint, Manifest, MemoryStore, Shard, get_checkpoint, load_experience, put_checkpoint
from app.train.collecting import lessons
from app.train.game import RunGame, UnfitSettings


def check_start(settings: PipelineSettings, *, begun: bool) -> None:
    """Make sure that there is what a run needs before it begins, or goes on if it has ``begun``: then it has its clone.

    Raises ``UnfitSettings`` or ``UnusableFile``.
    """
    if reason := missing_device(settings.training.device):
        raise UnfitSettings(f"training.device: {reason}.", hint="Leave it at cpu.")
    if not begun and settings.collection.initial_policy == "behavioral_clone" and settings.cloning.experience:
        path = Path(settings.cloning.experience)
        with reading(path):
            path.open("rb").close()


def first_policy(game: RunGame, settings: PipelineSettings, seed: int, say: Callable[[str], None]) -> Checkpoint:
    """Return the policy that a run begins with; ``say`` receives the progress of cloning."""
    drawn = _checkpoint(*first_model(game.config, game.spec, derive_seed(seed, "parameters")), None)
    return drawn if settings.collection.initial_policy == "random" else _cloned(game, drawn, settings, seed, say)


def successor(base: Checkpoint, parameters: bytes, optimizer: bytes | None) -> Checkpoint:
    """Return what came of a training of ``base`` as a checkpoint."""
    return _checkpoint(base.manifest.successor(base.model), parameters, optimizer)


def _cloned(
    game: RunGame, student: Checkpoint, settings: PipelineSettings, seed: int, say: Callable[[str], None]
) -> Checkpoint:
    """Let the teacher play, learn from its games and forget them, round after round; or learn from a file."""
    asked, device = settings.cloning, torch.device(settings.training.device)
    given = load_experience(Path(asked.experience), game.config) if asked.experience else None
    for number in range(1, asked.rounds + 1):
        shard = given or _lesson(game, asked, student.model, derive_seed(seed, "lesson", number))
        samples = make_samples([shard], settings.ppo.gamma, gae_lambda=1.0)  # the critic learns whole returns
        result = imitate(student, samples, asked, seed=derive_seed(seed, "cloning", number), device=device)
        metrics = result.metrics
        say(
            f"cloning {number}/{asked.rounds}: {len(samples):,} rows of {asked.experience or asked.teacher}, accuracy "
            f"{metrics.accuracy:.3f}, cross-entropy {metrics.cross_entropy:.3f}, value loss {metrics.value_loss:.4f}"
        )
        # What Adam knows of imitating is no help in reinforcement.
        student = successor(student, result.parameters, result.optimizer if number < asked.rounds else None)
    return student


def _lesson(game: RunGame, asked: CloningSettings, student: ModelHash, seed: int) -> Shard:
    return lessons(game, game.bot(asked.teacher), student, asked.games_per_round, seed).shard


def _checkpoint(manifest: Manifest, parameters: bytes, optimizer: bytes | None) -> Checkpoint:
    store = MemoryStore()
    return get_checkpoint(store, put_checkpoint(store, manifest, parameters, optimizer), optimizer=True)
