"""Check of a game's description, ours or the user's."""

from collections.abc import Iterator, Mapping
from math import inf, prod
from re import fullmatch
from typing import Any

import numpy as np

from flyball.app.config.settings import is_taken
from flyball.app.core import HEURISTIC, Finding
from flyball.app.core.ids import BOT
from flyball.app.games.table import Indices, Symmetry, TableSpec

BUILD = "Build it with flyball.symmetry(name, observation, action)."


def spec_faults(spec: TableSpec) -> Iterator[Finding]:
    """Yield the faults of a game's description."""
    sizes = {name: getattr(spec, name) for name in ("players", "actions", "observation_size")}
    odd = {name: value for name, value in sizes.items() if type(value) is not int or value < 1}
    for name, value in odd.items():
        yield _fault(f"{name} is {value!r}.", "It is a whole number, 1 or more.")
    if not odd:  # otherwise nothing can be compared with the sizes
        yield from _value_faults(spec)
        yield from _level_faults(spec.levels)
        yield from _symmetries_faults(spec)


def _value_faults(spec: Any) -> Iterator[Finding]:
    """Yield faults of a description, whose values may have any type."""
    if not 2 <= spec.players <= 7:
        yield _fault(f"players is {spec.players}.", "Games for 2 to 7 can be played.")
    if all(spec.observation_type is not kind for kind in (np.uint8, np.float32)):
        yield _fault(f"observation_type is {spec.observation_type!r}.", "Set numpy.uint8 or numpy.float32.")
    if not isinstance(spec.rules_version, str) or not spec.rules_version:
        yield _fault(f"rules_version is {spec.rules_version!r}.", "Name module and version, such as 'my_games-1:nim'.")
    yield from _scale_faults(spec.scale, spec.observation_size)
    if not is_scale(spec.outcome_scale):
        yield _fault(f"outcome_scale is {spec.outcome_scale!r}.", "Set it to the largest possible outcome, above 0.")
    if not -1 <= spec.lowest_outcome < spec.highest_outcome <= 1:
        what = f"Outcomes are from {spec.lowest_outcome!r} to {spec.highest_outcome!r}."
        yield _fault(what, "Set lowest_outcome and highest_outcome within [-1, 1].")
    if spec.planes is not None:
        yield from _plane_faults(spec.planes, spec.observation_size)


def is_scale(value: Any) -> bool:
    """Return whether a value is a finite number above 0."""
    return isinstance(value, int | float | np.floating) and type(value) is not bool and bool(0 < value < inf)


def _scale_faults(scale: Any, size: int) -> Iterator[Finding]:
    divisors = scale if isinstance(scale, tuple) else (scale,)
    if not all(map(is_scale, divisors)):
        hint = "It divides the features, so it has to be a number above 0, or a tuple of them."
        yield _fault(f"scale is {scale!r}.", hint)
    elif isinstance(scale, tuple) and len(scale) != size:
        yield _fault(f"scale has {len(scale)} numbers for {size} features.", "Give one number, or one a feature.")


def _level_faults(levels: Any) -> Iterator[Finding]:
    if not isinstance(levels, Mapping):
        yield _fault(f"levels is {levels!r}.", "It is a dictionary of heuristic players by name.")
        return
    for name in levels:
        if fullmatch(BOT, str(name)) is None or (is_taken(name) and name != HEURISTIC):
            hint = "Name it in lower case, and neither like another player nor like a role of models."
            yield _fault(f"levels names {name!r}.", hint)


def are_planes(planes: Any) -> bool:
    """Return whether a value is a tuple (C, H, W). A list would never equal the tuple in a model's manifest."""
    return type(planes) is tuple and len(planes) == 3 and all(type(size) is int and size >= 1 for size in planes)


def _plane_faults(planes: Any, size: int) -> Iterator[Finding]:
    if not are_planes(planes):
        yield _fault(f"planes is {planes!r}.", "It is a tuple of three whole numbers, (C, H, W), each 1 or more.")
    elif prod(planes) > size:
        hint = "The first C x H x W features are the planes; others may follow."
        yield _fault(f"planes {planes} do not fit into {size} features.", hint)


def _symmetries_faults(spec: Any) -> Iterator[Finding]:
    symmetries = spec.symmetries
    if not isinstance(symmetries, tuple | list) or not all(isinstance(item, Symmetry) for item in symmetries):
        yield _fault(f"symmetries is {symmetries!r}.", f"It is a tuple. {BUILD}")
        return
    for symmetry in symmetries:
        yield from _symmetry_faults(symmetry, spec)


def _symmetry_faults(symmetry: Symmetry, spec: TableSpec) -> Iterator[Finding]:
    relabellings = {
        "observation": (symmetry.observation, spec.observation_size),
        "action": (symmetry.action, spec.actions),
        "image": (symmetry.image, spec.actions),
    }
    for name, (indices, size) in relabellings.items():
        if not _permutes(indices, size):
            what = f"{name} of the symmetry {symmetry.name} does not name each of {size} indices once."
            yield _fault(what, BUILD)
            return
    if not np.array_equal(symmetry.action[symmetry.image], np.arange(spec.actions)):
        yield _fault(f"image of the symmetry {symmetry.name} is not the inverse of its action.", BUILD)


def _permutes(indices: Indices, size: int) -> bool:
    return np.shape(indices) == (size,) and np.array_equal(np.sort(indices), np.arange(size))


def _fault(what: str, hint: str) -> Finding:
    return Finding("spec", what, hint)
