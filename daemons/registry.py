"""The daemons there are (ADR-009). Each is described by ``DAEMON`` in its own file."""

from collections.abc import Mapping

from app.core import FlyballError
from daemons import (
    broker,
    curves,
    distribution,
    evaluation,
    feedback,
    model_lifecycle,
    quality_monitor,
    selfplay_scheduler,
    selfplay_worker,
    training,
    training_trigger,
)
from daemons.spec import DaemonSpec


class UnknownDaemon(FlyballError):
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
        distribution,
    )
}
"""All daemons by name, in the quickest order of starting; any order works."""


def spec_of(name: str) -> DaemonSpec:
    """Find a daemon. Raises ``UnknownDaemon``, which lists those there are."""
    if name not in DAEMONS:
        raise UnknownDaemon(f"There is no daemon {name!r}.", hint=f"There are: {', '.join(DAEMONS)}.")
    return DAEMONS[name]
