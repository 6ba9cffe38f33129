"""The monitoring daemon: answers Prometheus, sends events to webhooks, and exports traces (ADR-036).

It publishes nothing, and no decision depends on it.
"""

from flyball.app.config import RunFolder
from flyball.app.config.loading import Loaded
from flyball.app.controllers import FeedbackFold
from flyball.app.status.monitored import ConfigFold, DaemonFold, EventCounts
from flyball.daemons.spec import Companion, DaemonSpec


def _exports(loaded: Loaded, folder: RunFolder) -> Companion:
    from flyball.daemons.exports import Exports  # here, because all other daemons import this file too

    return Exports(loaded, folder)


DAEMON = DaemonSpec(
    "monitoring",
    "answers Prometheus, tells webhooks of events, exports traces",
    observers=(FeedbackFold, ConfigFold, DaemonFold, EventCounts),
    companion=_exports,
)
