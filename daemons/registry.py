"""The registry of daemons (ADR-003). Each daemon's file describes it as ``DAEMON``."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

from flyball.app.config import BadSettings, RunSettings
from flyball.app.core import FlyballError
from flyball.daemons import (
    broker,
    curves,
    distribution,
    evaluation,
    feedback,
    model_lifecycle,
    monitoring,
    quality_monitor,
    selfplay_scheduler,
    selfplay_worker,
    training,
    training_trigger,
)
from flyball.daemons.own_controllers import own_controllers
from flyball.daemons.spec import DaemonSpec

MachineRole = Literal["head", "worker"]
"""Roles of machines: the head records and decides, workers run jobs; one machine can be both."""

MACHINE_ROLES: tuple[MachineRole, ...] = get_args(MachineRole)


class UnknownDaemon(FlyballError, code="unknown"):
    """No daemon has this name."""


DAEMONS: Mapping[str, DaemonSpec] = {
    module.DAEMON.name: module.DAEMON
    for module in (
        broker,
        selfplay_scheduler,
        selfplay_worker,
        quality_monitor,
        training_trigger,
        training,
        evaluation,
        feedback,
        model_lifecycle,
        curves,
        monitoring,
        distribution,
    )
}
"""All daemons by name, in the order that starts a run fastest; any order works."""

ON_ALL_MACHINES = frozenset({distribution.DAEMON.name})
"""Daemons of the head and of all workers.

The head's distributor verifies models in the store; a worker's distributor fetches them into its machine's cache.
"""


def names_of(role: MachineRole | None) -> tuple[str, ...]:
    """Return the names of a role's daemons; for None, of all daemons."""
    return tuple(
        name
        for name, spec in DAEMONS.items()
        if role is None or name in ON_ALL_MACHINES or (spec.worker is not None) == (role == "worker")
    )


def left_to_participants(settings: RunSettings) -> frozenset[str]:
    """Return the names of the daemons that only participants host (ADR-038), or nobody where a run only advises."""
    if not settings.is_external:
        return frozenset()
    if settings.advises:
        return frozenset(name for name, spec in DAEMONS.items() if spec.worker)
    left = {selfplay_worker.DAEMON.name, training.DAEMON.name, evaluation.DAEMON.name}
    return frozenset(left | ({quality_monitor.DAEMON.name} if settings.external_inspection else set()))


def check_hosted_here(name: str, settings: RunSettings) -> None:
    """Refuse a daemon that only participants host. Raises ``BadSettings``."""
    if name in left_to_participants(settings):
        if settings.advises:
            raise BadSettings(
                f"The run only advises, so that the daemon {name} has nothing to do.",
                hint='For a run that asks for work, set mode = "govern" in another run folder.',
            )
        raise BadSettings(
            f"The daemon {name} of a run whose backend is external runs in its participants.",
            hint="Run yours: flyball participate KIND -- COMMAND, or flyball.participate in Python.",
        )


def daemons_of(*settings: RunSettings) -> Mapping[str, DaemonSpec]:
    """Return all daemons.

    The daemons host the user's own controllers that any of these settings name. Raises ``BadSettings`` for a controller
    that cannot be used.
    """
    own = own_controllers(settings)
    return {
        name: replace(spec, controllers=(*spec.controllers, *own)) if spec.hosts_own and own else spec
        for name, spec in DAEMONS.items()
    }


def spec_of(name: str) -> DaemonSpec:
    """Return a daemon's description. Raises ``UnknownDaemon``, which lists all names."""
    if name not in DAEMONS:
        raise UnknownDaemon(f"There is no daemon {name!r}.", hint=f"There are: {', '.join(DAEMONS)}.")
    return DAEMONS[name]
