"""Check of a game's description, of our own tables' as of the user's."""

from collections.abc import Iterator
from math import prod
from re import fullmatch
from typing import Any

import numpy as np

from app.config.settings import is_taken
from app.core import HEURISTIC, Finding
from app.core.ids import BOT
from app.games.table import Indices, Symmetry, TableSpec


def spec_faults(spec: TableSpec) -> Iterator[Finding]:
    """Yield what is wrong with a game's description."""
    sizes = {name: getattr(spec, name) for name in ("players", "actions", "observation_size")}
    odd = {name: value for name, value in sizes.items() if type(value) is not int or value < 1}
    for name, value in odd.items():
        yield _fault(f"{name} is {value!r}.", "It is a whole number, 1 or more.")
    if not odd:  # otherwise nothing can be compared with the sizes
        yield from _value_faults(spec)
        for symmetry in spec.symmetries:
            yield from _symmetry_faults(symmetry, spec)


def _value_faults(spec: Any) -> Iterator[Finding]:
    """Yield faults of a description, whose values may have any type."""
    if not 2 <= spec.players <= 7:
        yield _fault(f"players is {spec.players}.", "Games for 2 to 7 can be played.")
    if spec.observation_type not in (np.uint8, np.float32):
        yield _fault(f"observation_type is {spec.observation_type!r}.", "Set numpy.uint8 or numpy.float32.")
    if not isinstance(spec.rules_version, str) or not spec.rules_version:
        yield _fault(f"rules_version is {spec.rules_version!r}.", "Name module and version, such as 'my_games-1:nim'.")
    if not spec.scale > 0:
        yield _fault(f"scale is {spec.scale}.", "It divides the features, so it has to be above 0.")
    for name in spec.levels:
        if fullmatch(BOT, name) is None or (is_taken(name) and name != HEURISTIC):
            hint = "Name it in lower case, and neither like another player nor like a role of models."
            yield _fault(f"levels names {name!r}.", hint)
    if spec.planes is not None:
        yield from _plane_faults(spec.planes, spec.observation_size)


def _plane_faults(planes: Any, size: int) -> Iterator[Finding]:
    if type(planes) is not tuple or len(planes) != 3 or any(type(one) is not int or one < 1 for one in planes):
        # A list, say, would never equal the tuple in a model's manifest.
        yield _fault(f"planes is {planes!r}.", "It is a tuple of three whole numbers, (C, H, W), each 1 or more.")
    elif prod(planes) > size:
        hint = "The first C x H x W features are the planes; others may follow."
        yield _fault(f"planes {planes} do not fit into {size} features.", hint)


def _symmetry_faults(symmetry: Symmetry, spec: TableSpec) -> Iterator[Finding]:
    hint = "Build it with flyball.symmetry(name, observation, action)."
    relabellings = {
        "observation": (symmetry.observation, spec.observation_size),
        "action": (symmetry.action, spec.actions),
        "image": (symmetry.image, spec.actions),
    }
    for name, (indices, size) in relabellings.items():
        if not _permutes(indices, size):
            what = f"{name} of the symmetry {symmetry.name} does not name each of {size} indices once."
            yield _fault(what, hint)
            return
    if not np.array_equal(symmetry.action[symmetry.image], np.arange(spec.actions)):
        yield _fault(f"image of the symmetry {symmetry.name} is not the inverse of its action.", hint)


def _permutes(indices: Indices, size: int) -> bool:
    return np.shape(indices) == (size,) and np.array_equal(np.sort(indices), np.arange(size))


def _fault(what: str, hint: str) -> Finding:
    return Finding("spec", what, hint)
