"""Hypothesis strategies for events, built from the annotations of the payloads."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo

from flyball.app.core import HEURISTIC, PLAYERS_OF, RANDOM, GradedScores, Rate, is_model
from flyball.app.core.ids import PLAIN, SHA256, plain_name
from flyball.app.events import (
    CATALOGUE,
    CheckpointAdded,
    Envelope,
    Event,
    MatchesRequested,
    MatchResult,
    ParityChecked,
    Payload,
    Scope,
    envelope_model,
)
from flyball.app.events.payload import AgentRating

LARGEST = 2**63 - 1
HEX = "0123456789abcdef"
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2199, 1, 1), timezones=ZONES)  # noqa: DTZ001
NAMES = st.text(min_size=1, max_size=40)


@st.composite
def rates(draw: st.DrawFn) -> Rate:
    """Draw rates that counts can give; a draw counts one half."""
    n = draw(st.integers(1, 10**6))
    return Rate.of(draw(st.integers(0, 2 * n)) / 2, n)


def _json() -> SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers(-LARGEST, LARGEST) | _floats({}) | st.text(max_size=20)
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))


def _floats(bounds: Mapping[str, float]) -> SearchStrategy[float]:
    lower, upper = bounds.get("gt", bounds.get("ge")), bounds.get("lt", bounds.get("le"))
    return st.floats(
        lower, upper, exclude_min="gt" in bounds, exclude_max="lt" in bounds, allow_nan=False, allow_infinity=False
    )


def _integers(bounds: Mapping[str, float]) -> SearchStrategy[int]:
    lower = bounds["gt"] + 1 if "gt" in bounds else bounds.get("ge", -LARGEST)
    upper = bounds["lt"] - 1 if "lt" in bounds else bounds.get("le", LARGEST)
    return st.integers(int(lower), int(upper))


HASHES = st.integers(0, 2**256 - 1).map(lambda number: f"{number:064x}")
PLAYERS = HASHES | st.sampled_from([RANDOM, HEURISTIC])


def _texts(bounds: Mapping[str, Any]) -> SearchStrategy[str]:
    if pattern := bounds.get("pattern"):
        if pattern == PLAIN:
            return st.from_regex(PLAIN[:-1] + "{0,39}", fullmatch=True)
        return HASHES if pattern == f"^{SHA256}$" else PLAYERS
    return st.text(min_size=bounds.get("min_length", 0), max_size=min(40, bounds.get("max_length", 40)))


SIMPLE: dict[Any, Callable[[Mapping[str, Any]], SearchStrategy[Any]]] = {
    bool: lambda _: st.booleans(),
    int: _integers,
    float: _floats,
    str: _texts,
    Rate: lambda _: rates(),
    JsonValue: lambda _: _json(),
    NoneType: lambda _: st.none(),
}


def _bounds(metadata: list[Any]) -> dict[str, Any]:
    known = {Ge: "ge", Gt: "gt", Le: "le", Lt: "lt", MinLen: "min_length", MaxLen: "max_length"}
    bounds = {known[type(item)]: getattr(item, known[type(item)]) for item in metadata if type(item) in known}
    if any(getattr(item, "func", None) is plain_name for item in metadata):
        return {"pattern": PLAIN}
    patterns = [item.pattern for item in metadata if getattr(item, "pattern", None)]
    return bounds | {"pattern": next(iter(patterns), None)}


def of_annotation(annotation: Any, metadata: list[Any]) -> SearchStrategy[Any]:
    """Return a strategy for the values of an annotation.

    Raises ``TypeError`` for an annotation that it does not know.
    """
    annotation = getattr(annotation, "__supertype__", annotation)
    bounds = _bounds(metadata)
    if annotation in SIMPLE:
        return SIMPLE[annotation](bounds)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return of_model(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, UnionType):
        return st.one_of([of_annotation(argument, metadata) for argument in arguments])
    if origin is tuple and arguments[1] is ...:
        return st.lists(of_annotation(arguments[0], []), min_size=bounds.get("min_length", 0), max_size=4).map(tuple)
    if origin is dict:
        return st.dictionaries(of_annotation(arguments[0], []), of_annotation(arguments[1], []), max_size=4)
    if hasattr(annotation, "__metadata__"):
        nested = [part for item in annotation.__metadata__ for part in getattr(item, "metadata", [item])]
        return of_annotation(annotation.__origin__, [*metadata, *nested])
    raise TypeError(f"no strategy for {annotation!r}")


def _of_field(field: FieldInfo) -> SearchStrategy[Any]:
    return of_annotation(field.annotation, field.metadata)


M = TypeVar("M", bound=BaseModel)


@st.composite
def match_results(draw: st.DrawFn, **fields: SearchStrategy[Any]) -> MatchResult:
    """Draw matches with as many games as their rotations imply."""
    values: dict[str, Any] = {name: draw(field) for name, field in fields.items()}
    outcomes, players = draw(st.sampled_from(sorted(PLAYERS_OF.items())))
    counts = [0] * outcomes
    for half_points in draw(st.lists(st.integers(0, outcomes - 1), max_size=4)):
        counts[half_points] = draw(st.integers(0, 10**6))
    left_over = draw(st.integers(0, players - 1))
    games = max(1, players * sum(counts) + left_over)
    wins, draws, losses, truncated = draw(splits(games))
    distinct = draw(st.integers(1, games))
    played = {"games": games, "wins": wins, "draws": draws, "losses": losses, "truncated": truncated}
    played |= {"rotations": tuple(counts), "graded": None, "distinct_games": distinct}
    if sum(counts) and draw(st.booleans()):
        played |= {"rotations": (), "graded": draw(graded_scores(players, sum(counts)))}
    return MatchResult(**{**values, **played})


def graded_scores(players: int, rotations: int) -> st.SearchStrategy[GradedScores]:
    """Return scores of rotations with any mean and variance."""

    def moments(mean: float, variance: float) -> GradedScores:
        mean = round(mean, 12)  # the square of a smaller one may be no number
        squares = rotations * (mean**2 + variance)
        return GradedScores(players=players, rotations=rotations, total=rotations * mean, squares=squares)

    return st.builds(moments, st.floats(-3, 3), st.floats(0, 9))


@st.composite
def splits(draw: st.DrawFn, whole: int) -> list[int]:
    """Draw four counts that add up to ``whole``."""
    cuts = sorted(draw(st.lists(st.integers(0, whole), min_size=3, max_size=3)))
    return [b - a for a, b in zip([0, *cuts], [*cuts, whole], strict=True)]


@st.composite
def agent_ratings(draw: st.DrawFn, **fields: SearchStrategy[Any]) -> AgentRating:
    """Draw ratings of models, and ratings or bounds of bots."""
    values = {name: draw(field) for name, field in fields.items()}
    if is_model(values["agent"]) or draw(st.booleans()):
        return AgentRating(**{**values, "bound": None, "elo_stderr": draw(st.floats(0.01, 900))})
    return AgentRating(**{**values, "bound": draw(st.sampled_from(["above", "below"])), "elo_stderr": None})


@st.composite
def parity_checks(draw: st.DrawFn, **fields: SearchStrategy[Any]) -> ParityChecked:
    """Draw PARITY_CHECKED payloads with no more failures than games."""
    values = {name: draw(field) for name, field in fields.items()}
    return ParityChecked(**{**values, "failures": draw(st.integers(0, values["checked"]))})


@st.composite
def checkpoints_added(draw: st.DrawFn, **fields: SearchStrategy[Any]) -> CheckpointAdded:
    """Draw models with another model as their parent, or with no parent."""
    values = {name: draw(field) for name, field in fields.items() if name != "parent"}
    return CheckpointAdded(**values, parent=draw(fields["parent"].filter(lambda parent: parent != values["model"])))


@st.composite
def matches_requested(draw: st.DrawFn, **fields: SearchStrategy[Any]) -> MatchesRequested:
    """Draw matches of a model against others."""
    values = {name: draw(field) for name, field in fields.items() if name != "opponents"}
    others = fields["opponents"].filter(lambda opponents: values["model"] not in opponents)
    return MatchesRequested(**values, opponents=draw(others))


JOINT: dict[type[BaseModel], Callable[..., SearchStrategy[Any]]] = {
    AgentRating: agent_ratings,
    CheckpointAdded: checkpoints_added,
    GradedScores: lambda **_: st.builds(graded_scores, st.integers(2, 7), st.integers(1, 10**6)).flatmap(
        lambda one: one
    ),
    MatchResult: match_results,
    MatchesRequested: matches_requested,
    ParityChecked: parity_checks,
}
"""Models whose fields depend on each other."""


def of_model(model: type[M]) -> SearchStrategy[M]:
    """Return a strategy for instances of a model."""
    fields = {name: _of_field(field) for name, field in model.model_fields.items()}
    return JOINT[model](**fields) if model in JOINT else st.builds(model, **fields)


def traceparents() -> SearchStrategy[str]:
    """Return a strategy for trace contexts of the W3C's form."""
    widths = (2, 32, 16, 2)
    return st.tuples(*(st.text(HEX, min_size=width, max_size=width) for width in widths)).map("-".join)


def envelopes(payload: type[Payload]) -> SearchStrategy[Envelope[Payload]]:
    """Return a strategy for envelopes of one event type."""
    models = st.builds(
        envelope_model(payload),
        type=st.just(payload.event_type),
        dataversion=st.just(payload.dataversion),
        id=NAMES,
        subject=NAMES if payload.scope is Scope.CONFIG else st.none(),
        time=TIMES,
        correlationid=NAMES,
        causationid=st.none() | NAMES,
        traceparent=st.none() | traceparents(),
        data=of_model(payload),
    )
    return models.map(lambda model: model.envelope())


def events() -> SearchStrategy[Event[Payload]]:
    """Return a strategy for recorded events of all types."""
    return st.builds(
        Event,
        envelope=st.sampled_from(CATALOGUE).flatmap(envelopes),
        sequence=st.integers(1, LARGEST),
        recorded_us=st.integers(0, 7 * 10**15),
        source=st.from_regex(r"[a-z]{1,12}@[a-z0-9-]{1,12}", fullmatch=True),
    )
