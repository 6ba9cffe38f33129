"""Training runs in this process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flyball.app.api.arguments import Seed, check_arguments
from flyball.app.api.runs import RunLocation, Say, config_of, locate_run, silent
from flyball.app.config import LANGUAGE_BACKEND, GameConfig
from flyball.app.train.methods import network_method
from flyball.app.train.networks import TrainingResult
from flyball.app.train.run import Method
from flyball.app.train.run import train as train_by
from flyball.daemons.clock import SystemClock, boot_id


def prepare_training(
    location: RunLocation,
    config: GameConfig,
    output: Path,
    values: Mapping[str, Any],
    *,
    file: Path | None,
    seed: int | None,
    resume: bool,
) -> Method[Any, Any, Any]:
    """Return the method of the configuration's backend for a run in ``output``, with checked settings."""
    if config.backend != LANGUAGE_BACKEND:
        folder = location.settings_folder
        return network_method(config, file, values, seed, output, resume=resume, settings_folder=folder)
    from flyball.app.train.text import language_method

    loaded = location.load()
    servers = loaded.deployment.text_servers(output, loaded.folder)
    return language_method(config, values, seed, output, resume=resume, servers=servers)


def train(
    game: str | GameConfig,
    settings: Mapping[str, Any] | None = None,
    *,
    output: str | Path | None = None,
    seed: int | None = None,
    resume: bool = False,
    settings_file: str | Path | None = None,
    run: str | Path = "run",
    config_file: str | Path | None = None,
    progress: Say = silent,
) -> TrainingResult:
    """Train a policy in this process, as `flyball train` does; return its best checkpoint and scores.

    Args:
        game: key of a configuration, or a configuration itself.
        settings: by dotted key, or tables; `flyball train GAME --settings` lists them.
        output: folder of the run; by default ``training/GAME``.
        seed: of all random draws; 0 by default.
        resume: continue the run in the folder; ``settings`` hold for its remaining part.
        settings_file: TOML or YAML with settings, which ``settings`` override.
        run: a folder whose ``flyball.toml`` may define the configuration.
        config_file: read instead of that ``flyball.toml``.
        progress: receives lines of text, for instance ``print``.

    Raises ``BadUsage``, ``BadSettings``, ``UnknownConfig``, ``RunExists``, ``RunInUse``, ``NoRun`` or another
    ``FlyballError``.

    >>> brief = {"collection": {"num_iterations": 1, "games_per_iteration": 16}, "training.final_games": 8}
    >>> result = flyball.train("tic_tac_toe_2p", brief, output="trained")
    >>> result.state.iteration, list(result.scores)
    (1, ['random'])
    >>> result.policy.is_file()
    True
    """
    check_arguments(Seed | None, seed=seed)
    location = locate_run(run, config_file)
    config = config_of(game, location)
    folder = Path("training") / config.key if output is None else Path(output)
    file = None if settings_file is None else Path(settings_file)
    method = network_method(
        config, file, settings or {}, seed, folder, resume=resume, settings_folder=location.settings_folder
    )
    method.say = progress
    result = train_by(method, SystemClock(), boot_id())
    assert isinstance(result, TrainingResult)  # that of a network
    return result
