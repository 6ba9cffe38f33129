"""Engine jobs: draw a first model, or train one by PPO. Results depend on the spec alone."""

from dataclasses import asdict
from functools import partial

from flyball.app.config import GameConfig, PpoSettings
from flyball.app.core import derive_seed
from flyball.app.engine import Report
from flyball.app.games import TableSpec, open_table
from flyball.app.job_specs import InitialiseSpec, ModelResult, TrainSpec, job
from flyball.app.learning.learner import improve
from flyball.app.learning.network import init_policy, parameters_to_bytes, visible_shape
from flyball.app.learning.ppo import EpochMetrics
from flyball.app.learning.samples import explained_variance, prepare
from flyball.app.learning.torchrun import run_on_ranks
from flyball.app.learning.training import Training
from flyball.app.store import Manifest, open_store, put_checkpoint


def first_model(config: GameConfig, game: TableSpec, seed: int) -> tuple[Manifest, bytes]:
    """Draw a first model from a seed. Return its manifest, at step 0, and its parameters as a safetensors file."""
    shape = visible_shape(config.network, game.shape)
    parameters = init_policy(config.network, shape, seed)
    manifest = Manifest(
        config_key=config.key,
        backend=config.backend,
        network=config.network,
        obs_size=game.observation_size,
        actions=game.actions,
        step=0,
        parent=None,
        optimizer=None,
        planes=shape.planes,
        scale=shape.scale,
        action_planes=shape.action_planes,
        encoding=shape.encoding,
    )
    return manifest, parameters_to_bytes(parameters)


@job
def initialise(spec: InitialiseSpec, report: Report) -> ModelResult:  # noqa: ARG001  # a job, with nothing to report
    """Draw and store a configuration's first parameters, at step 0 (a job)."""
    config = spec.config
    seed = derive_seed(spec.seed, config.key, "parameters")
    manifest, parameters = first_model(config, open_table(config, slots=0).spec, seed)
    model = put_checkpoint(open_store(spec.store), manifest, parameters, None)
    return ModelResult(model=model, parent=None, step=0, rows=0, metrics=None)


@job
def train(spec: TrainSpec, report: Report) -> ModelResult:
    """Train a model by PPO and store the result (a job).

    Return the new model with the metrics of its last epoch. Reports ``epoch``, ``epochs`` and the ``metrics`` after
    each epoch. Nothing is stored after an error. The same spec gives the same model. Raises what ``Training`` raises,
    ``UnfinishedEpisode``, ``TrainingDiverged``, or what ``run_on_ranks`` raises.
    """
    training = Training(spec, report)
    knobs = {"learning_rate": training.learning_rate, "epochs": training.epochs}
    ppo = annealed(PpoSettings.model_validate(training.config.ppo.model_dump() | knobs), training.step)
    samples = prepare(training.shards, ppo, training.game.symmetries, training.seed)

    def report_epoch(epoch: int, metrics: EpochMetrics) -> None:
        training.progress(epoch, ppo.epochs, **_published_metrics(metrics))

    explained = explained_variance(samples)
    work = partial(improve, training.base, samples, ppo, seed=training.seed)
    result = run_on_ranks(work, training.compute, report=report_epoch)
    metrics = _published_metrics(result.metrics) | ({} if explained is None else {"explained_variance": explained})
    return training.store(result.parameters, result.optimizer, metrics)


def annealed(ppo: PpoSettings, step: int) -> PpoSettings:
    """Return the settings with the entropy coefficient of a model's ``step``, so that a rollback restores it."""
    if ppo.entropy_coef_end is None:
        return ppo
    progress = min(1.0, step / ppo.entropy_trainings)
    change = progress * (ppo.entropy_coef_end - ppo.entropy_coef)
    return ppo.replace(entropy_coef=ppo.entropy_coef + change)


def _published_metrics(metrics: EpochMetrics) -> dict[str, float]:
    """Return the epoch's metrics that are published in events."""
    return {name: value for name, value in asdict(metrics).items() if name != "gradient_norm"}
