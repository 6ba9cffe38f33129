"""References of all commands and settings, written into ADR/guide/.

Their text comes from click and from the settings' models.

``python -m flyball.app.cli.references check`` lists the pages that differ from the program. ``write`` updates them.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import cleandoc
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import click
from pydantic import BaseModel

from flyball import app
from flyball.app.cli.group import COMMANDS, MEANINGS, main
from flyball.app.config import MATCHMAKING, GameConfig
from flyball.app.config.controllers import ControllerSettings
from flyball.app.config.loading import FLYBALL_TOML, MATCHMAKING_TABLE, variable
from flyball.app.config.monitoring import NotificationSettings
from flyball.app.config.settings import BotSettings

FOLDER = Path(app.__file__).parents[2] / "ADR" / "guide"
WRITTEN = "Written by `python -m flyball.app.cli.references write`; `make check` refuses a page that is out of date."
LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
TYPES = {"integer": "whole number", "number": "number", "boolean": "true or false", "object": "table"}

COMMANDS_HEADING = f"""\
# Commands

What `flyball --help` and `flyball COMMAND --help` say; [operating.md](operating.md) says how commands play together.
{WRITTEN}

`flyball` takes `--run` and `--config-file` before the command, too. A repeatable option adds up; any other that is
given twice is an error. Data goes to stdout, the rest to stderr.

| exit code | meaning |
|---|---|
"""

SETTINGS_HEADING = f"""\
# Settings

All settings of `flyball.toml`, by table; `flyball config show` prints their values and where each comes from. The
command line comes before the environment, the environment before the file, the file before the default. `KEY` and
`NAME` stand for names that you choose. A variable of the environment holds the value as in TOML, without quotation
marks; a list or a table is written as JSON: `["one", "two"]`.
{WRITTEN}
"""

CODE = re.compile(r"(`+[^`]+`+)")


def prose(text: str) -> str:
    """Escape a text for Markdown, except code between backticks."""
    parts = CODE.split(text)
    plain = (re.sub(r"<(?=[A-Za-z/])", "&lt;", part).replace("*", "\\*") for part in parts[::2])
    code = (f"`{part.strip('`')}`" for part in parts[1::2])
    return "".join(part for pair in zip_longest(plain, code, fillvalue="") for part in pair)


def cell(text: str) -> str:
    """Return a text for a cell of a Markdown table."""
    return " ".join(prose(text).split()).replace("|", "\\|")


def commands_page() -> str:
    """Return the reference of all commands, in Markdown."""
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in MEANINGS.items())
    root = click.Context(main, info_name="flyball", **main.context_settings)
    sections = [_command(command, name, root) for name in COMMANDS if (command := main.get_command(root, name))]
    return f"{COMMANDS_HEADING}{codes}\n" + "\n".join(sections)


def _command(command: click.Command, name: str, parent: click.Context, level: int = 2) -> str:
    """Return the section of a command and of its subcommands."""
    ctx = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    words = ctx.command_path.partition(" ")[2]
    usage = " ".join((ctx.command_path, *command.collect_usage_pieces(ctx)))
    parts = [f"{'#' * level} {words}\n\n`{usage}`\n\n{prose(cleandoc(command.help or ''))}\n"]
    options = (param for param in command.params if isinstance(param, click.Option))  # usage and help name arguments
    records = [record for option in options if (record := option.get_help_record(ctx))]
    if records:
        rows = (f"| `{cell(flags)}` | {cell(meaning)} |\n" for flags, meaning in records)
        parts.append(f"| option | meaning |\n|---|---|\n{''.join(rows)}")
    if isinstance(command, click.Group):
        subcommands = ((sub_name, command.get_command(ctx, sub_name)) for sub_name in command.list_commands(ctx))
        parts += [_command(sub, sub_name, ctx, level + 1) for sub_name, sub in subcommands if sub]
    return "\n".join(parts)


class Setting(NamedTuple):
    """A setting of flyball.toml.

    Attributes:
        key: in its table.
        kind: what its value is, and within which bounds.
        default: as JSON; None if it is unset.
        needed: whether it has to be set.
        meaning: in words.
        variable: the environment variable; empty where none can set it.
    """

    key: str
    kind: str
    default: str | None
    needed: bool
    meaning: str
    variable: str


class Table(NamedTuple):
    """A table of flyball.toml: dotted name, purpose and settings."""

    name: str
    purpose: str
    settings: tuple[Setting, ...]


def tables() -> Iterator[Table]:
    """Iterate over all tables of flyball.toml; the first has no name."""
    yield from _tables("", FLYBALL_TOML, {"games", "controllers"})
    yield from _tables("games.KEY", GameConfig, {"key", "imports", "bots"})
    yield from _tables("games.KEY.bots.NAME", BotSettings)
    yield from _tables("controllers.NAME", ControllerSettings)
    # One environment variable holds the whole list, so that its keys have none.
    listed = _tables("deployment.notifications", NotificationSettings)
    yield from (
        table._replace(settings=tuple(setting._replace(variable="") for setting in table.settings)) for table in listed
    )


def _tables(name: str, model: type[BaseModel], left_out: frozenset[str] | set[str] = frozenset()) -> Iterator[Table]:
    """Iterate over the table of a model and those within."""
    schema = model.model_json_schema()
    settings, nested = list[Setting](), list[tuple[str, type[BaseModel]]]()
    for field, info in model.model_fields.items():
        key = f"{name}.{field}".removeprefix(".")
        if field in left_out:
            continue
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            nested.append((key, info.annotation))
            continue
        property_schema = schema["properties"][field]
        default = property_schema.get("default")
        shown = None if default is None else json.dumps(default, ensure_ascii=False)
        meaning = property_schema.get("description", "")
        kind = kind_of(property_schema, schema.get("$defs", {}))
        settings.append(Setting(field, kind, shown, info.is_required(), meaning, variable(key)))
    purpose = "" if model is FLYBALL_TOML else prose(cleandoc(model.__doc__ or ""))
    if name == MATCHMAKING_TABLE:
        purpose += f"\n\nPresets, to be named instead of the table: {', '.join(f'`{key}`' for key in MATCHMAKING)}."
    yield Table(name, purpose, tuple(settings))
    for key, inner in nested:
        yield from _tables(key, inner)


def kind_of(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return in words what values a JSON Schema admits."""
    if "$ref" in schema:
        return kind_of(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return " or ".join(kind_of(option, definitions) for option in schema["anyOf"] if option.get("type") != "null")
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{json.dumps(option)}`" for option in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        items = schema.get("items") or schema["prefixItems"][0]
        count = f"{schema['minItems']} or more" if "minItems" in schema else ""
        count = str(len(schema["prefixItems"])) if "prefixItems" in schema else count
        return f"list{f' ({count})' if count else ''} of: {kind_of(items, definitions)}"
    kind = TYPES.get(schema.get("type", ""), "path" if schema.get("format") == "path" else "text")
    if schema.get("type") is None:
        kind = "any value"
    limits = [f"{sign} {_figure(schema[limit])}" for limit, sign in LIMITS.items() if limit in schema]
    if "pattern" in schema:
        limits.append(f"as `{schema['pattern']}`")
    return ", ".join([kind, *limits])


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


def settings_page() -> str:
    """Return the reference of all settings, in Markdown."""
    parts = [SETTINGS_HEADING]
    for name, purpose, settings in tables():
        title = {"": "Above all tables", "deployment.notifications": f"[[{name}]]"}.get(name, f"[{name}]")
        text = f"\n## {title}\n" + (f"\n{purpose}\n" if purpose else "")
        if settings:
            rows = (_row(setting) for setting in settings)
            text += f"\n| key | value | default | meaning | variable |\n|---|---|---|---|---|\n{''.join(rows)}"
        parts.append(text)
    return "".join(parts)


def _row(setting: Setting) -> str:
    default = "needed" if setting.needed else "unset" if setting.default is None else f"`{setting.default}`"
    variable = f"`{setting.variable}`" if setting.variable else ""
    return f"| `{setting.key}` | {cell(setting.kind)} | {cell(default)} | {cell(setting.meaning)} | {variable} |\n"


PAGES: Mapping[str, Callable[[], str]] = {"cli.md": commands_page, "settings.md": settings_page}
"""The pages that are written, by the name of their file."""


def run(arguments: Sequence[str], folder: Path = FOLDER) -> int:
    """Check or write the pages in a folder; return the exit code. 1 if a page is out of date, 2 for wrong arguments."""
    if list(arguments) not in (["check"], ["write"]):
        sys.stderr.write("usage: python -m flyball.app.cli.references check|write\n")
        return 2
    wrong = False
    for name, page in PAGES.items():
        file, text = folder / name, page()
        if list(arguments) == ["write"]:
            file.write_text(text, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{name} is out of date: run `python -m flyball.app.cli.references write`.\n")
            wrong = True
    return int(wrong)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
