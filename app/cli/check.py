"""``flyball check``: check a user's own object before a run."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NoReturn

import click

from flyball.app.api.runs import RunLocation
from flyball.app.cli.options import json_option, run_options, seed_option
from flyball.app.cli.output import data_only_on_stdout, echo, note, with_options, write_json
from flyball.app.config import GameConfig, NetworkSettings
from flyball.app.config.loading import UnknownConfig
from flyball.app.config.settings import CONFIG_KEY
from flyball.app.core import ConfigKey, Finding

FAULTY = 2
"""Exit code of a check that found faults."""


@click.group()
def check() -> None:
    """Check an object of your own before a run uses it.

    Exits with 0 if it is sound, otherwise with 2, and says what is wrong and what to do.
    """


@check.command()
@click.argument("name")
@click.option(
    "--players",
    type=click.IntRange(2, 7),
    help="Of a game string.  [default: OpenSpiel's number for its games, else 2]",
)
@click.option("--games", default=16, type=click.IntRange(2, 1000), help="Games to play at random.")
@seed_option
@json_option
@run_options
def game(location: RunLocation, name: str, *, players: int | None, games: int, seed: int, as_json: bool) -> None:
    """Check the game NAME.

    NAME is a configuration's key, or a game string such as my_games:Nim. The game is played at random. Masks, seeds,
    perspective, outcomes, truncation and symmetries are checked. The range of outcomes is printed, in the game's own
    units and as training sees them; in OpenSpiel's games with something hidden also how many states observations tell
    apart.
    """
    from flyball.app.api.checking import examine_game  # loads games

    config = _config(location, name, players)
    with data_only_on_stdout():  # a game may print
        result = examine_game(
            config, games=games, seed=seed, run=location.folder.path, config_file=location.config_file
        )
    if result.outcomes is not None:
        lowest, highest = result.outcomes
        scaled = f" ({lowest:.3g} to {highest:.3g} in training)" if result.scale != 1 else ""
        note(f"outcomes seen: {lowest * result.scale:.4g} to {highest * result.scale:.4g}{scaled}")
    elif not result.findings:
        note("outcomes seen: none, because all games were cut off")
    if result.told_apart is not None:
        note("{:,} of {:,} states seen are told apart by what is observed".format(*result.told_apart))
    seen = {name: value for name, value in asdict(result).items() if name != "findings"}
    report(f"game {name}", result.findings, as_json=as_json, seen=seen)


@check.command()
@click.argument("name")
@click.option("--config", "config_key", default="connect_four_2p", help="Whose observations the network gets.")
@seed_option
@json_option
@run_options
def network(location: RunLocation, name: str, *, config_key: str, seed: int, as_json: bool) -> None:
    """Check the network NAME.

    NAME is a configuration's key, or a kind such as my_networks:build, which is built with default options. The network
    is built from one seed twice, and run on random observations. Parameters, shapes, batches, gradients and bfloat16
    are checked.
    """
    from flyball.app.api.checking import check_network  # loads games

    if CONFIG_KEY.fullmatch(name):
        config = location.config(name)
    else:
        config = location.config(config_key).replace(network=NetworkSettings(kind=name))
    with data_only_on_stdout():
        findings = check_network(config, seed=seed, run=location.folder.path, config_file=location.config_file)
    report(f"network {name}", findings, as_json=as_json)


@check.command()
@click.argument("name")
@click.option("--config", "config_key", default="tic_tac_toe_2p", help="What to play.")
@json_option
@run_options
def backend(location: RunLocation, name: str, *, config_key: str, as_json: bool) -> None:
    """Check the backend NAME.

    NAME is a configuration's key, or an object such as my_backend:BACKEND. A few games pass through each of its jobs,
    twice, as in a run. A configuration is checked with its network and its trainer. The check takes 5 to 30 seconds.
    """
    from flyball.app.api.checking import check_backend  # loads games

    config = location.config(name) if CONFIG_KEY.fullmatch(name) else location.config(config_key).replace(backend=name)
    with data_only_on_stdout():
        findings = check_backend(config, run=location.folder.path, config_file=location.config_file)
    report(f"backend {name}", findings, as_json=as_json)


@check.command()
@click.argument("name")
@click.option("--config", "config_key", required=True, metavar="KEY", help="Whose bot it is.")
@json_option
@run_options
def player(location: RunLocation, name: str, *, config_key: str, as_json: bool) -> None:
    """Check the player NAME, one of a configuration's bots.

    A bot is a Python player or an engine. It is asked about the same positions together, again, one by one, loaded
    twice and restarted; then it plays some games. Shapes, legality, repeatability and probabilities are checked.
    """
    from flyball.app.api.checking import check_player  # loads games
    from flyball.app.config import Compute
    from flyball.app.play.check_player import measure_player

    config, compute = location.config(config_key), Compute(settings_folder=location.settings_folder)
    with data_only_on_stdout():
        findings = check_player(name, config, run=location.folder.path, config_file=location.config_file)
        figures = {} if findings else measure_player(name, config, compute)
    for figure, value in figures.items():
        note(f"{figure.replace('_', ' ')}: {value:.3g}")
    report(f"player {name}", findings, as_json=as_json)


def report(what: str, findings: Sequence[Finding], *, as_json: bool, seen: Mapping[str, Any] | None = None) -> NoReturn:
    """Write the findings of a check, and exit.

    JSON also has what was ``seen``, if it is given. The exit code is ``FAULTY`` if there are findings, otherwise 0.
    """
    if as_json:
        faults = [asdict(finding) for finding in findings]
        write_json({"checked": what, "ok": not findings, "findings": faults} | ({"seen": seen} if seen else {}))
    else:
        for finding in findings:
            echo(f"{click.style(finding.where, bold=True)}: {finding.what}\n    {with_options(finding.hint)}")
        echo(f"{what}: {len(findings) or 'no'} fault{'' if len(findings) == 1 else 's'} found")
    raise click.exceptions.Exit(FAULTY if findings else 0)


def _config(location: RunLocation, name: str, players: int | None) -> GameConfig:
    """Return the configuration of a key, or one for a game string.

    A configuration takes precedence over OpenSpiel's game of the same name, such as tiny_bridge_2p. A game string's
    configuration has the run's imports.
    """
    from flyball.app.games.openspiel import players_of

    usual = players_of(name)
    if CONFIG_KEY.fullmatch(name):
        try:
            return location.config(name)
        except UnknownConfig:
            if usual is None:
                raise
    players = players or min(max(usual or 2, 2), 7)
    imports = location.load().run.configs[0].imports
    return GameConfig(key=ConfigKey(f"checked_{players}p"), game=name, players=players, imports=imports)
