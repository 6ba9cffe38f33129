"""The status of each daemon: a fold over its events."""

from typing import Any, Literal

from app.events import (
    DaemonFact,
    DaemonFailed,
    DaemonHeartbeat,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    Event,
    NodeDegraded,
    NodeQuarantined,
    NodeRecovered,
    NodeReleased,
    Payload,
)
from app.events.rows import Row

State = Literal["started", "ready", "degraded", "quarantined", "stopped", "failed", "silent", "gone"]
Trouble = NodeDegraded | NodeRecovered | NodeQuarantined | NodeReleased
MICROSECONDS = 1_000_000


class DaemonRow(Row, frozen=True):
    """One daemon on one node. ``restarts`` counts starts that followed no orderly stop."""

    daemon: str
    node: str
    heard_us: int
    state: State = "started"
    restarts: int = 0
    lag: int | None = None
    jobs: int = 0
    capacity: int = 0
    pid: int | None = None
    error: str | None = None
    degraded: bool = False
    quarantined: bool = False

    def state_at(self, now_us: int, silent_after_seconds: float, *, running: bool) -> State:
        """Return the state; ``silent``: no event for too long, ``gone``: the run ended without a stop.

        Args:
            now_us: the time of day.
            silent_after_seconds: longest time between events of a daemon.
            running: whether the run is running; if not, no daemon is.
        """
        if self.state not in ("started", "ready"):
            return self.state
        if not running:
            return "gone"
        if now_us - self.heard_us > silent_after_seconds * MICROSECONDS:
            return "silent"
        if self.state == "ready" and (self.quarantined or self.degraded):
            return "quarantined" if self.quarantined else "degraded"
        return self.state


def fold_daemon(row: DaemonRow | None, event: Event[Payload]) -> DaemonRow:
    """Return the row after one more event by its daemon, whose payload is a ``DaemonFact``."""
    data = event.data
    assert isinstance(data, DaemonFact)
    if row is None:
        row = DaemonRow(daemon=data.daemon, node=data.node, heard_us=event.recorded_us, state="stopped")
    return row.replace(heard_us=event.recorded_us, **_changes(row, data))


def fold_trouble(row: DaemonRow, data: Trouble) -> DaemonRow:
    """Return a worker's row after a pause, a quarantine, or the end of one."""
    match data:
        case NodeDegraded(error=error):
            return row.replace(degraded=True, error=error)
        case NodeQuarantined(reason=reason):
            return row.replace(quarantined=True, error=reason)
        case NodeRecovered():
            changed: dict[str, Any] = {"degraded": False}
        case NodeReleased():
            changed = {"quarantined": False}
    after = row.replace(**changed)
    return after if after.degraded or after.quarantined else after.replace(error=None)


def _changes(row: DaemonRow, data: DaemonFact) -> dict[str, Any]:
    match data:
        case DaemonStarted():
            restarts = row.restarts + (row.state != "stopped")
            return {"state": "started", "pid": data.pid, "restarts": restarts, "jobs": 0, "error": None}
        case DaemonReady():
            return {"state": "ready", "capacity": data.capacity}
        case DaemonHeartbeat():
            state = "started" if row.state == "started" else "ready"
            return {"state": state, "lag": data.lag, "jobs": data.jobs}
        case DaemonStopped():
            return {"state": "stopped", "jobs": 0}
        case DaemonFailed():
            return {"state": "failed", "jobs": 0, "error": data.error}
    return {}
