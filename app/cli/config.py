"""``flyball config``: settings, and where they come from."""

import json

import click

from flyball.app.api.runs import RunLocation
from flyball.app.cli.options import json_option, run_options
from flyball.app.cli.output import data_only_on_stdout, echo, note, write_json
from flyball.app.core.sizes import size_text


@click.group()
def config() -> None:
    """Show or check the settings."""


@config.command()
@json_option
@run_options
def show(location: RunLocation, *, as_json: bool) -> None:
    """Show every setting and where its value comes from."""
    loaded = location.load()
    values = loaded.values()
    if as_json:
        write_json({key: {"value": value, "origin": loaded.origins[key]} for key, value in values.items()})
        return
    lines = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}
    width, wide = max(map(len, lines)), max(map(len, lines.values()))
    for key, value in lines.items():
        origin = loaded.origins[key]
        colour = "bright_black" if origin == "default" else "green"
        echo(f"{key:<{width}}  {value:<{min(wide, 40)}}  {click.style(origin, fg=colour)}")


@config.command()
@json_option
@run_options
def check(location: RunLocation, *, as_json: bool) -> None:
    """Check the settings, and say what is wrong.

    The exit code is 0 if the settings can be used, otherwise 2 or 4. On a machine of a cluster, the command also tries
    to write to a store that is a folder.
    """
    from flyball.app.store.opening import check_folder
    from flyball.daemons.bootstrap import check_settings  # loads OpenSpiel
    from flyball.daemons.forecast import forecast
    from flyball.daemons.suitability import check_imports_of_trainers

    loaded = location.load()
    check_settings(loaded)
    if loaded.deployment.store is not None and loaded.deployment.keys.secret is not None:
        check_folder(loaded.store(location.folder))  # one machine alone makes the folder when it needs it
    with data_only_on_stdout():  # a module may print
        check_imports_of_trainers(loaded.run)
        expected = forecast(loaded.run) if loaded.deployment.keys.broker is None else {}
    keys = [game_config.key for game_config in loaded.run.configs]
    if as_json:
        write_json({"ok": True, "configs": keys, "store_bytes": expected})
    elif loaded.deployment.keys.broker is not None:
        note(f"The settings of {loaded.deployment.node} are fine. What is played is in the head's.")
    else:
        note(f"The settings are fine: {', '.join(keys)} on {loaded.deployment.node}.")
        shares = ", ".join(f"{key} {size_text(size)}" for key, size in expected.items())
        if shares:
            note(f"Expected size of the store: {shares}; the bound is {size_text(loaded.deployment.store_bytes)}.")
