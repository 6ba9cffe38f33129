"""Check of a game's description, ours or the user's."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from app.core import Finding
from app.games.table import Indices, Symmetry, TableSpec


def spec_faults(spec: TableSpec) -> Iterator[Finding]:
    """Yield the faults of a game's description."""
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
    if spec.planes is not None and (len(spec.planes) != 3 or not 1 <= np.prod(spec.planes) <= spec.observation_size):
        hint = "The first C x H x W features are the planes; others may follow."
        yield _fault(f"planes {spec.planes} do not fit into {spec.observation_size} features.", hint)


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
