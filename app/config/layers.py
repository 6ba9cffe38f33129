"""Settings by dotted key, from files and assignments to valid models.

The settings of runs, of ``flyball train`` and of text games all pass through here: they are read, checked against the
keys of their document, merged layer by layer, and validated. An error names the key, where it was set, and a remedy.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from app.config.settings import MLP
from app.core import FlyballError

DEFAULT, COMMAND_LINE = "default", "command line"
YAML = (".yaml", ".yml")
ANY_VALUE = ...

NETWORK, NETWORK_KIND = "network.", "network.kind"
OF_EVERY_NETWORK = frozenset({NETWORK_KIND, "network.obs_dim", "network.action_dim"})
OPPONENTS = "collection.opponents"

M = TypeVar("M", bound=BaseModel)
Layer = dict[str, tuple[Any, str]]
"""Each dotted key's value and its origin."""


class BadSettings(FlyballError):
    """Settings that cannot be used.

    The message names the file or variable, and the key.
    """


class Document:
    """The keys that a file of settings may have, and those that older files have.

    Args:
        models: whose fields are the settings; a field that maps names to models is a group of tables.
        see: command that shows the settings.
        left_out: keys that cannot be set, with ``*`` for the names of tables: ``games.*.key``.
        shorthands: tables that may have a single value instead.
        renamed: new keys by their former keys, with ``*``.
        removed: former settings, and the value that is still accepted; ``ANY_VALUE`` for all.
    """

    def __init__(
        self,
        *models: type[BaseModel],
        see: str,
        left_out: Collection[str] = (),
        shorthands: Collection[str] = (),
        renamed: Mapping[str, str] | None = None,
        removed: Mapping[str, Any] | None = None,
    ) -> None:
        self._see, self._left_out, self._shorthands = f"See: {see}", left_out, shorthands
        self._renamed, self._removed = renamed or {}, removed or {}
        self._tables: dict[str, dict[str, FieldInfo]] = {}
        for model in models:
            self._add(model, "", "")
        self._patterns = {table: re.compile(table.replace(".", r"\.").replace("*", "[^.]+")) for table in self._tables}

    def _add(self, model: type[BaseModel], table: str, prefix: str) -> None:
        fields = self._tables.setdefault(table, {})
        for name, field in model.model_fields.items():
            key, kind = f"{prefix}{name}", field.annotation
            inner, entries = _model(kind), _model(get_args(kind)[1] if get_origin(kind) is dict else None)
            if (inner is None or f"{table}{key}" in self._shorthands) and f"{table}{key}" not in self._left_out:
                fields[key] = field
            if inner:
                self._add(inner, table, f"{key}.")
            elif entries:
                self._add(entries, f"{table}{key}.*.", "")

    @property
    def meanings(self) -> dict[str, str]:
        """The description of every setting outside of named tables, by dotted key."""
        return {key: field.description or "" for key, field in self._tables[""].items()}

    def layer(self, values: Mapping[str, Any], origin: str, where: str = "") -> Layer:
        """Return values by dotted key, with current keys and their origin.

        ``where`` is the origin in messages about keys. Raises ``BadSettings`` for an unknown key.
        """
        flat, layer = flatten(values), Layer()
        for key, value in flat.items():
            if value == {} and not self.is_mapping(key):
                continue  # an empty table sets nothing
            table, name, rest = self._split(key)
            former = f"{table}{rest}"
            if self.knows(key):
                layer[key] = value, origin
            elif former in self._renamed:
                current = name + self._renamed[former].removeprefix(table)
                if current in flat:
                    raise BadSettings(f"{current} and {key}{where} are the same.", hint=f"Keep {current}.")
                layer[current] = value, origin
            elif former not in self._removed:
                raise self._unknown(key, where)
            elif self._removed[former] not in (ANY_VALUE, value):
                what = f"Input should be {self._removed[former]!r}, not {value!r}"
                raise BadSettings(f"{key}{set_by(origin)}: {what}.", hint="Leave it out.")
        return layer

    def knows(self, key: str) -> bool:
        """Return whether a dotted key is a setting, or an entry of a mapping."""
        table, _, rest = self._split(key)
        return rest in self._tables[table] or self.is_mapping(key)

    def is_mapping(self, key: str) -> bool:
        """Return whether a setting is a mapping, which may be empty, or an entry of one."""
        table, _, rest = self._split(key)
        mappings = (name for name, field in self._tables[table].items() if get_origin(field.annotation) is dict)
        return any(f"{rest}.".startswith(f"{name}.") for name in mappings)

    def _split(self, key: str) -> tuple[str, str, str]:
        """Return a key's group of tables, its table, and its name there."""
        found = [(table, match[0]) for table, pattern in self._patterns.items() if (match := pattern.match(key))]
        group, table = found[-1]  # the innermost
        return group, table, key.removeprefix(table)

    def _unknown(self, key: str, where: str) -> BadSettings:
        group, table, rest = self._split(key)
        known, name = self._tables[group], rest.rpartition(".")[2]
        parent = rest.removesuffix(name)
        if parent and name in self._tables[""]:
            hint = f"{name} belongs above all tables: move it there."
        else:
            last = {key.rpartition(".")[2]: key for key in known}
            near = get_close_matches(rest, known, n=1) or [last[word] for word in get_close_matches(name, last, n=1)]
            keys = known if group else {*known, *filter(None, self._tables)}
            beside = [key.removeprefix(parent) for key in keys if key.startswith(parent) and f"{parent}*." != key]
            names = sorted({key.partition(".")[0] for key in beside or keys})
            hint = f"Did you mean {table}{near[0]}?" if near else f"There are: {', '.join(names)}."
        return BadSettings(f"Unknown setting {key!r}{where}.", hint=hint)

    def validated(
        self,
        model: type[M],
        tree: Mapping[str, Any],
        origins: Mapping[str, str],
        *,
        prefix: str = "",
        default: str = DEFAULT,
    ) -> M:
        """Return the model of a tree of settings.

        ``prefix`` precedes the model's keys in ``origins``; ``default`` is the origin of others. Raises
        ``BadSettings``.
        """
        try:
            return model.model_validate(tree)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            key = f"{prefix}{'.'.join(map(str, fault['loc']))}".rstrip(".")
            place = f"{key}{set_by(_origin_of(key, origins, default))}: " if key else ""
            hint = _remedy(fault) or self._see
            raise BadSettings(f"{place}{_complaint(fault)}.", hint=hint) from error


def _model(kind: Any) -> type[BaseModel] | None:
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _origin_of(key: str, origins: Mapping[str, str], default: str) -> str:
    """Return where a setting was set, otherwise its table, something in it, or something beside it."""
    steps = key.split(".")
    above = (".".join(steps[:count]) for count in range(len(steps), 0, -1))
    parent = ".".join(steps[:-1]) or key
    near = (origin for name, origin in origins.items() if name.startswith((f"{key}.", f"{parent}.")))
    return next((origins[name] for name in above if name in origins), None) or next(near, default)


def _complaint(fault: ErrorDetails) -> str:
    what, given = fault["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list"), fault["input"]
    says_it = fault["type"] in ("value_error", "boolean", "missing", "extra_forbidden")
    return what if says_it or not isinstance(given, str | int | float) else f"{what}, not {given!r}"


def _remedy(fault: ErrorDetails) -> str | None:
    """Return the remedy that a fault shows."""
    given = fault["input"]
    if fault["type"] == "tuple_type" and isinstance(given, str):
        try:
            words = shlex.split(given)
        except ValueError:  # a quotation mark alone
            words = given.split()
        return f"Write a list: {json.dumps(words)}"
    if fault["type"] == "literal_error":
        names = re.findall(r"'([^']*)'", fault.get("ctx", {}).get("expected", ""))
        if near := get_close_matches(str(given), names, n=1):
            return f"Did you mean {near[0]}?"
    return None


def set_by(origin: str) -> str:
    """Return an origin for a message: in brackets; empty for the command line."""
    return "" if origin == COMMAND_LINE else f" ({origin})"


def read_tables(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """Return the tables of a TOML or YAML file; none of a missing optional one. Raises ``BadSettings``."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = _parse_yaml(text) if path.suffix in YAML else tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        if optional:
            return {}
        raise BadSettings(f"There is no settings file {path}.", hint="Put it there, or name another one.") from None
    except OSError as error:
        raise BadSettings(f"{path} cannot be used: {error.strerror}.", hint="Look at its name and mode.") from error
    except ValueError as error:
        hint = "It has to be TOML, or YAML if .yaml, in UTF-8."
        raise BadSettings(f"{path} cannot be read: {error}.", hint=hint) from error
    if not isinstance(tree, dict):
        raise BadSettings(f"{path} holds no tables.", hint="Write tables such as [ppo], with keys below them.")
    if dotted := next(_keys_with_dots(*tree.values()), None):
        raise BadSettings(
            f"The key {dotted!r} in {path} has a dot in it.", hint="Dots separate tables, also in options: rename it."
        )
    return tree


def _parse_yaml(text: str) -> Any:
    import yaml  # few commands need it

    try:
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _keys_with_dots(*values: Any) -> Iterator[str]:
    for table in values:
        if isinstance(table, Mapping):
            yield from (str(name) for name in table if "." in str(name))
            yield from _keys_with_dots(*table.values())


def parse_assignments(assignments: Sequence[str], example: str) -> dict[str, Any]:
    """Return the values of ``key=value``, by key.

    A value that is not TOML is text. Raises ``BadSettings`` with the example when there is no value.
    """
    values = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise BadSettings(f"{assignment!r} has no value.", hint=f"Write {example}")
        values[key.strip()] = read_value(text)
    return values


def read_value(text: Any) -> Any:
    """Return the value of a text in TOML; a text that is not TOML, and any other value, unchanged."""
    try:
        return tomllib.loads(f"value = {text}")["value"] if isinstance(text, str) else text
    except tomllib.TOMLDecodeError:
        return text


def merge(base: Mapping[str, Any], layers: Iterable[Layer]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return values by dotted key, changed by layers one after the other, and the origins of the changes."""
    values, origins = dict(base), dict[str, str]()
    for layer in layers:
        values = change(values, {key: value for key, (value, _) in layer.items()})
        origins |= {key: origin for key, (_, origin) in layer.items()}
    return values, origins


def change(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by dotted key, with changes.

    A network of another kind starts from that kind's defaults. Opponents' shares are replaced together.
    """
    kind = values.get(NETWORK_KIND, MLP)
    is_other_kind = changes.get(NETWORK_KIND, kind) != kind
    has_opponents = any(key.startswith(OPPONENTS) for key in changes)

    def is_replaced(key: str) -> bool:
        of_former_kind = is_other_kind and key.startswith(NETWORK) and key not in OF_EVERY_NETWORK
        return key in changes or of_former_kind or (has_opponents and key.startswith(OPPONENTS))

    return {key: value for key, value in values.items() if not is_replaced(key)} | dict(changes)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one mapping of dotted keys; an empty table is a value."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        flat |= flatten(value, f"{key}.") if isinstance(value, Mapping) and value else {key: value}
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping of dotted keys as nested tables: the inverse of ``flatten``.

    If a value and a table have the same key, the later one stays.
    """
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *tables, name = key.split(".")
        table = tree
        for step in tables:
            if not isinstance(table.get(step), dict):
                table[step] = {}
            table = table[step]
        table[name] = {} if value == {} else value
    return tree
