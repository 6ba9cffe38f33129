"""Settings by dotted key, from files and assignments to valid models.

The settings of runs, of ``flyball train`` and of text games all pass through here: they are read, checked against the
keys of their document, merged layer by layer, and validated. An error names the key, where it was set, and a remedy.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from flyball.app.config.settings import MLP
from flyball.app.core import FlyballError

DEFAULT, COMMAND_LINE = "default", "command line"
YAML = (".yaml", ".yml")

RENAMED = {
    "deployment.evaluation_processes": "deployment.processes.evaluation",
    "feedback.scheduler.node_silent_seconds": "deployment.node_silent_seconds",
    "games.*.ppo.learning_rate": "games.*.learning_rate",
    "games.*.ppo.epochs": "games.*.epochs",
    "ppo.ppo_epochs": "ppo.epochs",
}
"""Current keys by the former keys of older files; ``*`` stands for the name of a table."""

ANY_VALUE = ...
REMOVED = {
    "env.normalize_rewards": True,
    "feedback.curriculum.least_velocity": ANY_VALUE,
    "feedback.scheduler.staleness_hours": ANY_VALUE,
    "network.shared_trunk": True,
    "ppo.entropy_trainings": ANY_VALUE,
}
"""Settings of older files that decide nothing, and the values that they may have."""

NETWORK, NETWORK_KIND = "network.", "network.kind"
OF_EVERY_NETWORK = frozenset({NETWORK_KIND, "network.obs_dim", "network.action_dim"})
OPPONENTS = "collection.opponents"

M = TypeVar("M", bound=BaseModel)
Layer = dict[str, tuple[Any, str]]
"""Each dotted key's value and its origin."""


class BadSettings(FlyballError, code="usage"):
    """Settings that cannot be used: the message names the file or variable, and the key."""


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one mapping of dotted keys; an empty table is a value."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        flat |= flatten(value, f"{key}.") if isinstance(value, Mapping) and value else {key: value}
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping of dotted keys as nested tables; of a value and a table with the same key, the later stays."""
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
    for key in _keys_below(tree):
        if "." in key:
            hint = "Dots separate tables, also in options: rename it."
            raise BadSettings(f"The key {key!r} in {path} has a dot in it.", hint=hint)
    return tree


def _parse_yaml(text: str) -> Any:
    import yaml  # few commands need it

    try:
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _keys_below(tree: Mapping[Any, Any]) -> Iterator[str]:
    for table in tree.values():
        if isinstance(table, Mapping):
            yield from map(str, table)
            yield from _keys_below(table)


def parse_assignments(assignments: Sequence[str], example: str) -> dict[str, Any]:
    """Return the values of ``key=value``, by key; a value that is not TOML is text.

    Raises ``BadSettings`` with the example when there is no value.
    """
    values = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise BadSettings(f"{assignment!r} has no value.", hint=f"Write {example}")
        values[key.strip()] = parse_value(text)
    return values


def parse_value(text: Any) -> Any:
    """Return the value of a text in TOML; a text that is not TOML, and any other value, unchanged."""
    try:
        return tomllib.loads(f"value = {text}")["value"] if isinstance(text, str) else text
    except tomllib.TOMLDecodeError:
        return text


@dataclass(frozen=True)
class Document:
    """The settings that a file may hold; in keys, ``*`` stands for the names of tables: ``games.*.key``."""

    models: Sequence[type[BaseModel]]  # hold the settings; a field that maps names to models is a group of tables
    see: str  # hint: where the settings are shown
    left_out: Collection[str] = ()  # keys that cannot be set, or no longer
    shorthands: Collection[str] = ()  # tables that may have a single value instead

    @cached_property
    def groups(self) -> dict[str, dict[str, FieldInfo]]:
        """The settings of tables in each group, such as ``games.*.``, by key; of ``""``, those outside of groups."""
        groups: dict[str, dict[str, FieldInfo]] = {}

        def add(model: type[BaseModel], group: str, prefix: str) -> None:
            fields = groups.setdefault(group, {})
            for name, info in model.model_fields.items():
                key, kind = f"{prefix}{name}", info.annotation
                table, entries = _model(kind), _model(get_args(kind)[1]) if get_origin(kind) is dict else None
                if (table is None or f"{group}{key}" in self.shorthands) and f"{group}{key}" not in self.left_out:
                    fields[key] = info
                if table:
                    add(table, group, f"{key}.")
                elif entries:
                    add(entries, f"{group}{key}.*.", "")

        for model in self.models:
            add(model, "", "")
        return groups

    @property
    def meanings(self) -> dict[str, str]:
        """The description of every setting outside of groups of tables, by dotted key."""
        return {key: info.description or "" for key, info in self.groups[""].items()}

    def layer(self, values: Mapping[str, Any], origin: str | Callable[[str], str], where: str = "") -> Layer:
        """Return values by dotted key, with current keys and their origin, which may depend on the key as given.

        ``where`` is the origin in messages about keys. Raises ``BadSettings`` for an unknown key.
        """
        flat, layer = flatten(values), Layer()
        for key, value in flat.items():
            if value == {} and (not self.is_mapping(key) or self._is_table(key)):
                continue  # an empty table sets nothing
            source = origin if isinstance(origin, str) else origin(key)
            group, table, name = self._split(key)
            former = f"{group}{name}"
            current = table + RENAMED.get(former, former).removeprefix(group)
            if self._has(key):
                layer[key] = value, source
            elif self._has(current):
                if current in flat:
                    raise BadSettings(f"{current} and {key}{where} are the same.", hint=f"Keep {current}.")
                layer[current] = value, source if source == COMMAND_LINE else f"{source}, as {key}"
            elif former not in REMOVED or former not in self.left_out:
                raise BadSettings(f"Unknown setting {key!r}{where}.", hint=self._nearest(group, table, name))
            elif REMOVED[former] not in (ANY_VALUE, value):
                what = f"Input should be {REMOVED[former]!r}, not {value!r}"
                raise BadSettings(f"{key}{set_by(source)}: {what}.", hint="Leave it out.")
        return layer

    def _has(self, key: str) -> bool:
        group, _, name = self._split(key)
        return name in self.groups[group] or self.is_mapping(key)

    def is_mapping(self, key: str) -> bool:
        """Return whether a setting is a mapping, which may be empty, or an entry of one."""
        group, _, name = self._split(key)
        fields = self.groups[group].items()
        return any(get_origin(info.annotation) is dict and f"{name}.".startswith(f"{key}.") for key, info in fields)

    def _is_table(self, key: str) -> bool:
        """Return whether a key is a table of a group."""
        return self._split(f"{key}.")[1] == f"{key}."

    def _split(self, key: str) -> tuple[str, str, str]:
        """Return a key's innermost group of tables, its table with a dot, and its name there."""
        patterns = {group: group.replace(".", r"\.").replace("*", r"[^.]+") for group in reversed(self.groups)}
        matches = ((group, match[0]) for group, pattern in patterns.items() if (match := re.match(pattern, key)))
        group, table = next(matches)
        return group, table, key.removeprefix(table)

    def _nearest(self, group: str, table: str, name: str) -> str:
        """Return the hint for an unknown setting."""
        keys, word = self.groups[group], name.rpartition(".")[2]
        parent = name.removesuffix(word)
        if parent and word in self.groups[""]:
            return f"{word} belongs above all tables: move it there."
        words = {key.rpartition(".")[2]: key for key in keys}
        if near := get_close_matches(name, keys, n=1) or [words[near] for near in get_close_matches(word, words, n=1)]:
            return f"Did you mean {table}{near[0]}?"
        every = keys if group else [*keys, *filter(None, self.groups)]
        beside = [key.removeprefix(parent) for key in every if key.startswith(parent) and key != f"{parent}*."]
        return f"There are: {', '.join(sorted({key.partition('.')[0] for key in beside or every}))}."

    def validated(
        self,
        model: type[M],
        tree: Mapping[str, Any],
        origins: Mapping[str, str],
        prefix: str = "",
        other: str = DEFAULT,
    ) -> M:
        """Return the model of a tree of settings, whose keys in ``origins`` begin with ``prefix``.

        ``other`` is the origin of keys that are not in ``origins``. Raises ``BadSettings``.
        """
        try:
            return model.model_validate(tree)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            key = f"{prefix}{'.'.join(map(str, fault['loc']))}".rstrip(".")
            where = f"{key}{set_by(_origin_of(key, origins, other))}: " if key else ""
            raise BadSettings(f"{where}{_complaint(fault)}.", hint=_remedy(fault) or self.see) from error


def _model(kind: Any) -> type[BaseModel] | None:
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def set_by(origin: str) -> str:
    """Return an origin for a message: in brackets; empty for the command line."""
    return "" if origin == COMMAND_LINE else f" ({origin})"


def _origin_of(key: str, origins: Mapping[str, str], other: str) -> str:
    """Return where a setting was set, otherwise its table, something in it, or something beside it."""
    steps = key.split(".")
    above = (".".join(steps[:count]) for count in range(len(steps), 0, -1))
    parent = ".".join(steps[:-1]) or key
    near = (origin for name, origin in origins.items() if name.startswith((f"{key}.", f"{parent}.")))
    return next((origins[name] for name in above if name in origins), None) or next(near, other)


def _complaint(fault: ErrorDetails) -> str:
    message, value = fault["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list"), fault["input"]
    if fault["type"] in ("value_error", "boolean", "missing", "extra_forbidden"):
        return message
    return f"{message}, not {value!r}" if isinstance(value, str | int | float) else message


def _remedy(fault: ErrorDetails) -> str | None:
    """Return the remedy that a fault shows."""
    value = fault["input"]
    if fault["type"] == "tuple_type" and isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError:  # a quotation mark alone
            words = value.split()
        return f"Write a list: {json.dumps(words)}"
    if fault["type"] == "literal_error":
        names = re.findall(r"'([^']*)'", fault.get("ctx", {}).get("expected", ""))
        if near := get_close_matches(str(value), names, n=1):
            return f"Did you mean {near[0]}?"
    return None


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
    replaced = set(changes)
    if changes.get(NETWORK_KIND, kind) != kind:
        replaced |= {key for key in values if key.startswith(NETWORK)} - OF_EVERY_NETWORK
    if any(key.startswith(OPPONENTS) for key in changes):
        replaced |= {key for key in values if key.startswith(OPPONENTS)}
    return {key: value for key, value in values.items() if key not in replaced} | dict(changes)
