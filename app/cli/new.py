"""``flyball new``: begin a game, network, trainer, controller or participant of one's own.

The files are made from a working example.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from shlex import quote

import click

from flyball.app.cli.options import FOLDER, json_option
from flyball.app.cli.output import echo, write_values
from flyball.app.config import GAMES
from flyball.app.core import BadUsage, writing
from flyball.app.core.shipped import shipped

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class Example:
    """An example to begin from.

    Attributes:
        module: name of its files: ``MODULE.py``, ``MODULE.toml`` and ``test_MODULE.py``.
        names: other names in it, with those that replace them: ``{name}`` and ``{class}`` stand for the new one's.
        commands: what to try next.
        beside: a command to run beside the last of them.
    """

    module: str
    names: Mapping[str, str]
    commands: tuple[str, ...]
    beside: str = ""


EXAMPLES: Mapping[str, Example] = {
    "game": Example(
        "nim",
        {"Nim": "{class}"},
        ("check game {name}_2p", "train {name}_2p --set collection.num_iterations=20", "up"),
    ),
    "network": Example("conv_network", {"ConvNetwork": "{class}"}, ("check network connect_four_2p", "up")),
    "trainer": Example("trainer_torch", {}, ("check backend tic_tac_toe_2p", "up")),
    "controller": Example(
        "my_controller",
        {"Cosine": "{class}", "controllers.cosine": "controllers.{name}", "without cosine": "without {name}"},
        ("config check", "simulate --configs tic_tac_toe_2p --nodes 4 --days 1", "up"),
    ),
    "participant": Example("own_loop", {}, ("config check", "up"), beside="python {name}.py {name}_run"),
}


@click.command()
@click.argument("kind", type=click.Choice(list(EXAMPLES)))
@click.argument("name")
@click.option("--folder", default=Path(), type=FOLDER, help="Where the files are written.")
@json_option
def new(kind: str, name: str, *, folder: Path, as_json: bool) -> None:
    """Begin a game, network, trainer, controller or participant from a working example.

    Writes NAME.py, its settings NAME.toml and its test test_NAME.py, which passes; no file is overwritten. Prints the
    commands to try next.
    """
    _check_name(kind, name, folder)
    example = EXAMPLES[kind]
    files = {
        folder / made.format(name): _rename(_text(made.format(example.module)), example, name)
        for made in ("{}.py", "{}.toml", "test_{}.py")
    }
    if there := [str(path) for path in files if path.exists()]:
        raise BadUsage(f"{', '.join(there)} exists already.", hint="Choose another NAME, or another --folder.")
    for path, text in files.items():
        with writing(path):
            folder.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    values = dict(zip(("source", "settings", "test"), map(str, files), strict=True))
    # pytest runs in the folder, because in import mode importlib it does not add a test's folder to the path.
    begin = [] if folder == Path() else [f"cd {quote(str(folder))}"]
    flyball = f"flyball --config-file {name}.toml --run {name}_run"
    tried = [f"{flyball} {command.format(name=name)}" for command in example.commands]
    following = [*begin, f"python -m pytest test_{name}.py", *tried]
    if example.beside:
        following.append(f"{example.beside.format(name=name)}  # beside it")
    if as_json:
        write_values({**values, "next": following}, as_json=True)
        return
    write_values(values, as_json=False)
    echo("\nNext:\n" + "\n".join(f"  {command}" for command in following))


def _check_name(kind: str, name: str, folder: Path) -> None:
    """Refuse a name that cannot be used or is taken.

    Refuses names that no module can have, and names of other modules and of our games. Raises ``BadUsage``.
    """
    if not NAME.fullmatch(name) or iskeyword(name) or len(name) > LONGEST_NAME:
        raise BadUsage(
            f"{name!r} cannot be the name of a module and of a configuration.",
            hint=f"Use up to {LONGEST_NAME} small letters, digits and single underscores, as in king_of_the_hill.",
        )
    if name in sys.stdlib_module_names or (find_spec(name) and not (folder / f"{name}.py").exists()):
        raise BadUsage(f"{name} is a module that Python finds already.", hint=f"Choose another name: my_{name}.")
    if kind == "game" and f"{name}_2p" in GAMES:  # its settings would be mixed with the example's
        raise BadUsage(f"{name}_2p is a configuration of Flyball's own.", hint=f"Choose another name: my_{name}.")


def _text(file: str) -> str:
    """Return the text of an example's file."""
    return (shipped("examples", "tests/examples") / file).read_text(encoding="utf-8")


def _rename(text: str, example: Example, name: str) -> str:
    """Return an example's text with new names. Whole words, and parts between underscores, are replaced."""
    forms = {"name": name, "class": "".join(part.capitalize() for part in name.split("_"))}
    names = {example.module: name} | {old: form.format(**forms) for old, form in example.names.items()}
    words = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.sub(rf"(?<![A-Za-z0-9])({words})(?![A-Za-z0-9])", lambda match: names[match[1]], text)
