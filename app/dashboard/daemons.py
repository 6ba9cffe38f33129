"""What is known of each daemon: a fold over what they say of themselves."""

from typing import Any, Literal

from app.events import (
    DaemonFact,
    DaemonFailed,
    DaemonHeartbeat,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    Event,
    Payload,
    Value,
)

State = Literal["started", "ready", "stopped", "failed", "silent", "gone"]
MICROSECONDS = 1_000_000


class DaemonRow(Value):
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

    def state_at(self, now_us: int, silent_after_seconds: float, *, running: bool) -> State:
        """Return the state: ``silent`` when nothing was heard for too long, ``gone`` when the run has ended without it.

        Args:
            now_us: the time of day.
            silent_after_seconds: how long a daemon may say nothing.
            running: whether the run is; if not, none of its daemons is, whatever it said last.
        """
        if self.state not in ("started", "ready"):
            return self.state
        if not running:
            return "gone"
        return "silent" if now_us - self.heard_us > silent_after_seconds * MICROSECONDS else self.state


def fold_daemon(row: DaemonRow | None, event: Event[Payload]) -> DaemonRow:
    """Return the row after one more event by its daemon, whose payload is a ``DaemonFact``."""
    data = event.data
    assert isinstance(data, DaemonFact)
    if row is None:
        row = DaemonRow(daemon=data.daemon, node=data.node, heard_us=event.recorded_us, state="stopped")
    return row.model_copy(update={"heard_us": event.recorded_us} | _changes(row, data))


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
