"""Checks of settings: installed games and devices, objects of the user's own, and earlier settings."""

import asyncio
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from itertools import product
from pathlib import Path
from typing import get_args

from flyball.app.backends import OURS, describe
from flyball.app.config import MLP, BadSettings, Deployment, EngineProtocol, GameConfig, RunSettings
from flyball.app.config.devices import AUTO, JobKind
from flyball.app.config.layers import flatten
from flyball.app.core import FlyballError, current_name, load_plugin
from flyball.app.engine import JsonObject, LocalEngine
from flyball.app.engine.guard import find_program

LASTING = ("backend", "game", "players", "network", "observation", "outcome_scale", "scale")
"""Settings of a recorded configuration that can't change, because its models would not fit."""


def check_playable(settings: RunSettings) -> None:
    """Check that every configuration's backend and network exist and suit its game.

    Raises:
        BadSettings: names a configuration whose backend or game does not exist, whose game does not allow its number
            of players, or lacks a built-in player that the configuration names; or whose network cannot be built.
    """
    for config in settings.configs:
        try:
            with _silent_stderr():
                info = describe(config)
        except FlyballError as error:
            raise BadSettings(f"{config.key} cannot be played: {error.message}", hint=error.hint) from error
        if info.players != config.players:
            raise BadSettings(
                f"{config.key} has {config.players} players, and {config.backend} plays {config.game} with "
                f"{info.players}.",
                hint=f"Set games.{config.key}.players, and the end of the key, to {info.players}.",
            )
        if missing := [name for name in config.builtins if name not in info.bots]:
            raise BadSettings(
                f"{config.key} has {missing[0]!r} among its builtins, and {config.game} has no such player.",
                hint=f"There are: {', '.join(info.bots)}. One of your own is a table games.{config.key}.bots."
                f"{missing[0]}; otherwise take it out of games.{config.key}.builtins.",
            )
        if config.backend in OURS and config.network.kind != MLP:
            _check_network(config)


def _check_network(config: GameConfig) -> None:
    from flyball.app.games import open_table  # imported late, because they load OpenSpiel and PyTorch
    from flyball.app.learning.network import parameters_size

    try:
        parameters_size(config.network, open_table(config, slots=0).spec.shape)
    except FlyballError as error:
        raise BadSettings(f"{config.key} has no network: {error.message}", hint=error.hint) from error


def check_trainers(settings: RunSettings, folder: Path) -> None:
    """Check that every configuration's own trainer exists.

    ``folder`` is that of the settings file.

    Raises:
        BadSettings: names a configuration whose module, entry point or program does not exist.
    """
    for config in settings.configs:
        if config.trainer is not None:
            _check_named(f"games.{config.key}.trainer", config.trainer, "flyball.trainers")
        if config.train_command is not None:
            _check_program(f"games.{config.key}.train_command", config.train_command[0], folder)


def check_imports_of_trainers(settings: RunSettings) -> None:
    """Check that every trainer's module can be imported.

    The named object must be callable as a trainer. A start leaves these checks to the first training, because such
    imports may take seconds.

    Raises:
        BadSettings: names a configuration and what is wrong with its trainer.
    """
    for config in settings.configs:
        if config.trainer is None:
            continue
        setting = f"games.{config.key}.trainer"
        try:
            function = load_plugin("flyball.trainers", config.trainer)
            inspect.signature(function).bind({}, print)
        except FlyballError as error:
            raise BadSettings(f"{setting}: {error.message}", hint=error.hint) from error
        except SystemExit as error:
            raise BadSettings(
                f"{setting}: the module of {config.trainer!r} called sys.exit({error.code!r}) while it was imported.",
                hint="Let it define the function, and run nothing.",
            ) from error
        except TypeError as error:
            raise BadSettings(
                f"{setting}: {config.trainer} cannot be called as a trainer: {error}.",
                hint="A trainer is called as train(spec, report).",
            ) from error


def check_bots(settings: RunSettings, folder: Path) -> None:
    """Check that every bot of the user's own exists.

    ``folder`` is that of the settings file.

    Raises:
        BadSettings: names a bot whose module, entry point or program does not exist, or whose engine does not play the
            configuration's game.
    """
    for config in settings.configs:
        for name, bot in config.bots.items():
            setting = f"games.{config.key}.bots.{name}"
            if bot.player is not None:
                _check_named(f"{setting}.player", bot.player, "flyball.players")
            if bot.command is not None and bot.protocol is not None:
                _check_program(f"{setting}.command", bot.command[0], folder)
                _check_notation(setting, config, bot.protocol)


def _check_notation(setting: str, config: GameConfig, protocol: EngineProtocol) -> None:
    from flyball.app.games.notation import notation_of  # imported late, because it loads OpenSpiel

    try:
        notation_of(config, protocol)
    except FlyballError as error:
        raise BadSettings(f"{setting}: {error.message}", hint=error.hint) from error


def _check_named(setting: str, name: str, group: str) -> None:
    """Check that an object of the user's own exists, without importing its module, which may take seconds."""
    module, colon, _ = name.partition(":")
    try:
        spec = importlib.util.find_spec(current_name(module)) if colon else entry_points(group=group, name=module)
    except (ImportError, ValueError):
        spec = None
    except Exception as error:  # the module's package is imported, and may raise anything
        raise BadSettings(
            f"{setting}: the package of {module!r} cannot be imported: {type(error).__name__}: {error}.",
            hint="Mend it, or name a module of its own.",
        ) from error
    if not spec:
        raise BadSettings(
            f"{setting}: there is no {'module' if colon else 'entry point'} {module!r}.",
            hint="Write module:function, with the module beside flyball.toml, or install the entry point.",
        )


def _check_program(setting: str, program: str, folder: Path) -> None:
    if find_program(program, folder) is None:
        raise BadSettings(
            f"{setting}: there is no program {program!r}.",
            hint=f"Write the program and its arguments, as you would in {folder.absolute()}.",
        )


def check_devices(deployment: Deployment) -> None:
    """Check that PyTorch finds every device in the settings.

    A child process asks PyTorch, which takes a second to import, and only if a setting names a GPU or may need several.

    Raises:
        BadSettings: names the setting whose device is missing.
    """
    wanted = {
        kind: (compute.device, compute.processes)
        for kind in get_args(JobKind)
        if (compute := deployment.compute(kind)).device != "cpu" and (compute.device != AUTO or compute.processes > 1)
    }
    reasons = asyncio.run(_missing_devices([*wanted.values()]))["reasons"] if wanted else []
    for kind, reason in zip(wanted, reasons, strict=True):
        if reason:
            raise BadSettings(
                f"deployment.device.{kind}: {reason}.",
                hint="Set it to cpu or auto, deployment.processes_per_training to no more than GPUs, or install the "
                "driver and PyTorch's build for CUDA.",
            )


async def _missing_devices(devices: Sequence[tuple[str, int]]) -> JsonObject:
    """Run the job ``missing`` for pairs of a device and a number of processes; return its result."""
    engine = LocalEngine()
    try:
        return await engine.run("flyball.app.learning.devices:missing", {"devices": devices})
    finally:
        await engine.close()


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Drop OpenSpiel's messages on stderr, because its exception holds the same text."""
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def _check_mode(before: RunSettings, now: RunSettings) -> None:
    if before.mode != now.mode:
        raise BadSettings(
            f"The run in this folder was begun with mode = {before.mode!r}, and its records don't fit {now.mode!r}.",
            hint="Set mode back, or begin another run folder.",
        )


def incomparable_ratings(before: RunSettings, now: RunSettings) -> Iterator[str]:
    """Iterate over warnings of changes that make new ratings incomparable with earlier ones."""
    for key in sorted(before.by_key.keys() & now.by_key.keys()):
        old, new = before.config(key).evaluation.temperature, now.config(key).evaluation.temperature
        if old != new:
            yield (
                f"games.{key}.evaluation.temperature changes from {old:g} to {new:g}: ratings before and after are not "
                "comparable, so models may be rolled back without cause. Set it back, or begin another run folder."
            )


def _set_back(recorded: GameConfig, now: GameConfig, name: str) -> str:
    """Return what sets one of a configuration's settings back: keys with values, as in TOML, and keys to leave out."""
    before, after = (
        flatten(config.model_dump(mode="json", include={name}), f"games.{now.key}.") for config in (recorded, now)
    )
    before, after = ({key: value for key, value in flat.items() if value not in (None, {})} for flat in (before, after))
    changed = {key: value for key, value in before.items() if value != after.get(key)}
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in changed.items()]
    return ", ".join(lines + [f"without {key}" for key in after if key not in before])


def check_lasting(past: Iterable[RunSettings], now: RunSettings) -> None:
    """Refuse settings that don't fit what was recorded under the same name.

    Args:
        past: the run's earlier settings, the latest first; read until all configurations and controllers are found.
        now: the run's new settings.

    Raises:
        BadSettings: a recorded configuration has another game, number of players or network now, so that its models
            would not fit; or a user-defined controller has another class, so that its state would not fit; or a run
            that advised would govern, whose facts are about models elsewhere, or the other way round.
    """
    unseen, new = set(now.by_key), dict(now.controllers)
    for before in past:
        _check_mode(before, now)
        for name in new.keys() & before.controllers.keys():
            if (recorded := before.controllers[name].use) != new.pop(name).use:
                raise BadSettings(
                    f"controllers.{name} was begun with use = {recorded!r}, and its rows don't fit another class.",
                    hint="Set it back, or give the other controller a name of its own.",
                )
        for key, name in product(unseen & before.by_key.keys(), LASTING):
            begun, config = before.config(key), now.config(key)
            if (former := getattr(begun, name)) != getattr(config, name):
                raise BadSettings(
                    f"{key} was begun with {name} = {former}, and its models don't fit another.",
                    hint=f"Set it back ({_set_back(begun, config, name)}), or give the new one a key or a run "
                    "folder of its own.",
                )
        unseen -= before.by_key.keys()
        if not unseen and not new:
            return
