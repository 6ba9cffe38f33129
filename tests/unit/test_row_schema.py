"""Reading of saved rows: only rows with unchanged fields are read."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from msgspec import defstruct
from pydantic import Field, create_model

from flyball.app.config import GAMES, RunSettings
from flyball.app.controllers.fold import SETTINGS_KEY
from flyball.app.events import Row, Value
from flyball.daemons.registry import DAEMONS
from flyball.daemons.saved_state import SCHEMAS_KEY, carried_over, readable, schemas_of


class Reducer(NamedTuple):
    """The attributes of a reducer that the schema check uses."""

    name: str
    row: Any


def value(**fields: Any) -> type[Value]:
    return create_model("Inner", __base__=Value, **fields)


def row(inner: type[Value], **fields: Any) -> Any:
    return defstruct("Outer", [("inner", inner), *fields.items()], bases=(Row,), frozen=True)


INNER = value(wins=(int, ...))
SAVED = row(INNER, seen=int)
OTHERS = {
    "a field more": row(INNER, seen=int, more=int),
    "a field less": row(INNER),
    "a field renamed": row(INNER, met=int),
    "of another type": row(INNER, seen=float),
    "a value's field renamed": row(value(won=(int, ...)), seen=int),
    "a value's field of another type": row(value(wins=(float, ...)), seen=int),
    "no struct any more": value(inner=(INNER, ...), seen=(int | None, ...)),
}


def saved_by(*reducers: Reducer) -> Mapping[tuple[str, str], bytes]:
    return {**{(one.name, "x"): b"{}" for one in reducers}, SCHEMAS_KEY: schemas_of(reducers)}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_rows_of_other_fields_are_not_read(other: Any) -> None:
    assert readable(saved_by(Reducer("a", SAVED)), [Reducer("a", SAVED)])
    assert not readable(saved_by(Reducer("a", SAVED)), [Reducer("a", other)])


def test_rows_are_read_by_unchanged_reducers() -> None:
    said = value(wins=(int, Field(description="games won")))
    assert readable(saved_by(Reducer("a", SAVED)), [Reducer("a", row(said, seen=int))])
    hosted, gone, new = Reducer("a", SAVED), Reducer("b", SAVED), Reducer("c", SAVED)
    assert readable(saved_by(hosted, gone), [hosted])
    assert not readable(saved_by(hosted, gone), [hosted, new]), "nobody folded the past for it"
    assert readable({}, [hosted])
    assert not readable({("a", "x"): b"{}"}, [Reducer("a", SAVED)])
    assert not readable({SETTINGS_KEY: b"{}"}, [])


NEW = row(value(wins=(int, ...)), seen=int, more=tuple[int, ...])
KEPT = b'{"inner": {"wins": 3, "gone": 1}, "seen": 2, "gone": {"x": 1}, "more": [4]}'
BEFORE = {SCHEMAS_KEY: b'{"a": "other"}'}


def test_rows_are_carried_over_without_gone_fields() -> None:
    carried = carried_over(BEFORE | {("a", "x"): KEPT, ("gone", "y"): b"junk"}, [Reducer("a", NEW)])
    assert carried is not None
    assert json.loads(carried["a", "x"]) == {"inner": {"wins": 3}, "seen": 2, "more": [4]}
    assert carried["gone", "y"] == b"junk"
    nested = create_model("Nested", __base__=Value, values=(tuple[INNER, ...], ...))
    saved = b'{"inner": {"values": [{"wins": 3, "gone": 1}]}}'
    carried = carried_over(BEFORE | {("a", "x"): saved}, [Reducer("a", row(nested))])
    assert carried is not None
    assert json.loads(carried["a", "x"]) == {"inner": {"values": [{"wins": 3}]}}


def test_rows_that_miss_something_are_not_carried_over() -> None:
    new = row(value(wins=(int, ...), draws=(int, 0)), seen=int, more=tuple[int, ...])
    assert carried_over(BEFORE | {("a", "x"): KEPT}, [Reducer("a", new)]) is None
    assert carried_over(BEFORE | {("a", "x"): KEPT}, [Reducer("a", NEW), Reducer("b", SAVED)]) is None


@pytest.mark.parametrize("unfit", [b'{"seen": 2}', KEPT.replace(b"2", b'"two"'), b"junk"])
def test_rows_that_cannot_be_read_are_not_carried_over(unfit: bytes) -> None:
    assert carried_over(BEFORE | {("a", "x"): KEPT, ("a", "z"): unfit}, [Reducer("a", NEW)]) is None


def test_saved_settings_are_lifted_and_carried_over() -> None:
    settings = json.loads(RunSettings(seed=7).model_dump_json())
    del settings["tick_seconds"]
    settings["feedback"]["gone"] = settings["gone"] = 1
    carried = carried_over({SETTINGS_KEY: json.dumps(settings).encode()}, [])
    assert carried is not None
    assert RunSettings.model_validate_json(carried[SETTINGS_KEY]) == RunSettings(seed=7)
    now = RunSettings(configs=(GAMES["tic_tac_toe_2p"].replace(learning_rate=2e-4, epochs=7),))
    before = now.model_dump(mode="json")
    for config in before["configs"]:
        config["ppo"] |= {name: config.pop(name) for name in ("learning_rate", "epochs")}
    for saved in (before, now.model_dump(mode="json")):
        carried = carried_over({SETTINGS_KEY: json.dumps(saved).encode()}, [])
        assert carried is not None
        assert RunSettings.model_validate_json(carried[SETTINGS_KEY]) == now


@pytest.mark.parametrize("spec", DAEMONS.values(), ids=DAEMONS)
def test_every_daemons_rows_have_schemas(spec: Any) -> None:
    saved = {(reducer.name, "x"): b"" for reducer in spec.reducers}
    assert readable({**saved, SCHEMAS_KEY: schemas_of(spec.reducers)}, spec.reducers)
    assert readable(saved, spec.reducers) == (not saved)
