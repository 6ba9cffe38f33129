"""Checks of the user's own objects, before a run uses them.

Modules that import PyTorch are imported by the checks that need them, because it takes seconds that games don't need.
"""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from flyball.app.api.arguments import Seed, check_arguments
from flyball.app.api.runs import config_of, locate_run
from flyball.app.config import Compute, GameConfig
from flyball.app.core import Finding
from flyball.app.games import game_check, open_table
from flyball.daemons import contract


def check_game(
    game: str | GameConfig,
    *,
    games: int = game_check.GAMES,
    seed: int = 0,
    run: str | Path = "run",
    config_file: str | Path | None = None,
) -> list[Finding]:
    """Play a configuration's game at random; return its faults.

    The list is empty if the game is sound. `flyball check game` does the same.

    Args:
        game: key of a configuration, or a configuration itself.
        games: games to play, 2 or more.
        seed: of the first game; the others follow.
        run: a folder whose ``flyball.toml`` may define the configuration.
        config_file: read instead of that ``flyball.toml``.

    Raises ``BadUsage``, ``UnknownConfig`` or ``BadSettings``.

    >>> flyball.check_game("tic_tac_toe_2p")
    []
    """
    return examine_game(game, games=games, seed=seed, run=run, config_file=config_file).findings


def examine_game(
    game: str | GameConfig,
    *,
    games: int = game_check.GAMES,
    seed: int = 0,
    run: str | Path = "run",
    config_file: str | Path | None = None,
) -> game_check.GameReport:
    """Return the faults of a game, and what its sampled games showed; arguments and errors as of ``check_game``."""
    check_arguments(Annotated[int, Field(ge=2)], games=games)
    check_arguments(Seed, seed=seed)
    return game_check.examine_game(config_of(game, locate_run(run, config_file)), games, seed)


def check_network(
    game: str | GameConfig, *, seed: int = 0, run: str | Path = "run", config_file: str | Path | None = None
) -> list[Finding]:
    """Check the network of a configuration; return its faults.

    `flyball check network` does the same. The network's parameters and the observations are drawn from ``seed``. See
    ``check_game`` for the other arguments and errors.

    >>> flyball.check_network("tic_tac_toe_2p")
    []
    """
    from flyball.app.learning import network_check

    check_arguments(Seed, seed=seed)
    config = config_of(game, locate_run(run, config_file))
    return network_check.check_network(config.network, open_table(config, 0).spec.shape, seed)


def check_player(
    name: str, game: str | GameConfig, *, run: str | Path = "run", config_file: str | Path | None = None
) -> list[Finding]:
    """Check the user's own bot in a configuration; return its faults.

    `flyball check player` does the same. See ``check_game`` for the other arguments and errors.

    >>> [fault.what for fault in flyball.check_player("mine", "connect_four_2p")]
    ["connect_four_2p has no bot 'mine' of its own."]
    """
    from flyball.app.play import check_player as player_check

    location = locate_run(run, config_file)
    compute = Compute(settings_folder=location.settings_folder)
    return player_check.check_player(name, config_of(game, location), compute)


def check_backend(
    game: str | GameConfig, *, run: str | Path = "run", config_file: str | Path | None = None
) -> list[Finding]:
    """Make, train, judge and play models; return the backend's faults.

    A few games pass through each job of the configuration's backend, with its network and its trainer, as in a run. The
    check takes 5 to 30 seconds. `flyball check backend` does the same. See ``check_game`` for the arguments and errors.

    >>> flyball.check_backend("tic_tac_toe_2p")
    []
    """
    location = locate_run(run, config_file)
    config = config_of(game, location)
    return contract.check_backend(config.backend, config, location.load().folder)
