"""The monitoring daemon: answers Prometheus, sends events to webhooks, and exports traces (ADR-036).

It publishes nothing, and no decision depends on it.
"""

from app.config import RunFolder
from app.config.loading import Loaded
from app.controllers import FeedbackFold
from app.status.monitored import ConfigFold, DaemonFold, EventCounts
from daemons.spec import Companion, DaemonSpec


def _exports(loaded: Loaded, folder: RunFolder) -> Companion:
    from daemons.exports import Exports  # here, because all other daemons import this file too

    return Exports(loaded, folder)


DAEMON = DaemonSpec(
    "monitoring",
    "answers Prometheus, tells webhooks of events, exports traces",
    observers=(FeedbackFold, ConfigFold, DaemonFold, EventCounts),
    companion=_exports,
)
