"""Policies by name: ours, and those that other packages bring.

A package brings one as an entry point of the group ``flyball.policies``: a callable that takes a ``PolicyRequest`` and
returns an ``EnvironmentPolicy``.
"""

from collections.abc import Callable
from difflib import get_close_matches
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path

from app.arena.environments.mlp import Perceptron
from app.arena.environments.policies import BadPolicy, EnvironmentPolicy, PolicyRequest, RandomActions
from app.core import FlyballError, reading

GROUP = "flyball.policies"
Factory = Callable[[PolicyRequest], EnvironmentPolicy]


class UnknownPolicy(FlyballError):
    """No policy has this name."""


def load_policy(name: str, request: PolicyRequest) -> EnvironmentPolicy:
    """Return the policy called ``name``: ``mlp`` reads a file, ``random`` nothing, others are entry points.

    Raises ``UnknownPolicy``, ``BadPolicy`` or ``UnusableFile``.
    """
    if name in _OURS:
        return _OURS[name](request)
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        names = sorted({*_OURS, *found})
        near = get_close_matches(name, names, n=1)
        hint = (
            f"Did you mean {near[0]}?"
            if near
            else f"There are {', '.join(names)}; packages bring others, as entry points of {GROUP}."
        )
        raise UnknownPolicy(f"There is no policy {name!r}.", hint=hint)
    try:
        factory: Factory = found[name].load()
    except (ImportError, AttributeError) as error:
        raise BadPolicy(
            f"The policy {name} ({found[name].value}) cannot be loaded: {error}.", hint="Install what it needs."
        ) from error
    return factory(request)


def fingerprint(source: str | None) -> str | None:
    """Return the SHA-256 of the file that ``--model`` names, None when it names none."""
    if source is None or not Path(source).is_file():
        return None
    return sha256(Path(source).read_bytes()).hexdigest()


def _mlp(request: PolicyRequest) -> EnvironmentPolicy:
    path = Path(request.source or "")
    with reading(path):
        data = path.read_bytes()
    return Perceptron(data, request)


_OURS: dict[str, Factory] = {"mlp": _mlp, "random": RandomActions}
