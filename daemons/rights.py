"""Keys of this machine, and the rights of each role: the event types that its keys may publish."""

from flyball.app.bus import BROKER_ONLY
from flyball.app.bus.access import Access, ClientKeys, Rights
from flyball.app.bus.keys import read_secret
from flyball.app.config import BadSettings
from flyball.app.config.loading import Loaded
from flyball.app.core import Clock
from flyball.app.events import CATALOGUE, Kind, ModelDistributed, Payload


def rights() -> Rights:
    """Return the event types of each role.

    A worker publishes results of its jobs, and daemons' facts about themselves. MODEL_DISTRIBUTED is the head's alone.
    An operator publishes requests, decisions, and the types that ``OUTSIDERS`` names. The types of ``BROKER_ONLY``
    belong to no role.
    """
    from flyball.daemons.bootstrap import (
        OUTSIDERS,  # imported late, because only a broker needs them, and commands read keys
    )
    from flyball.daemons.registry import DAEMONS

    hosts = OUTSIDERS["every daemon"]
    workers = hosts.union(*(spec.emits for spec in DAEMONS.values() if spec.worker)) - {ModelDistributed}
    operators = OUTSIDERS["an operator"].union(payload for payload in CATALOGUE if payload.kind is not Kind.FACT)
    return {
        "head": _names(frozenset(CATALOGUE)),
        "worker": _names(workers),
        "operator": _names(operators),
        "reader": frozenset(),
    }


def _names(payloads: frozenset[type[Payload]]) -> frozenset[str]:
    return frozenset(payload.event_type for payload in payloads) - BROKER_ONLY


def client_keys(loaded: Loaded) -> ClientKeys | None:
    """Return the keys with which this machine connects to the broker.

    None without settings of keys. Raises ``BadKey`` or ``UnusableFile``.
    """
    keys = loaded.deployment.keys
    if keys.secret is None:
        return None
    own = read_secret(loaded.folder / keys.secret)
    return ClientKeys(own, keys.broker or own.public)


def broker_access(loaded: Loaded, clock: Clock) -> Access | None:
    """Return the keys that the broker of this machine admits.

    None without settings of keys. Raises ``BadSettings``, ``BadKey`` or ``UnusableFile``.
    """
    keys = loaded.deployment.keys
    if keys.secret is None:
        return None
    if keys.allowed is None:
        raise BadSettings(
            "A broker needs the list of the keys that it admits.",
            hint="Set deployment.keys.allowed instead of deployment.keys.broker on the head.",
        )
    return Access(read_secret(loaded.folder / keys.secret), loaded.folder / keys.allowed, rights(), clock.now)
