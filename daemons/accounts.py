"""How far daemons have published their conclusions, by their own accounts. Pure.

DAEMON_READY, DAEMON_HEARTBEAT and DAEMON_STOPPED hold the daemon's position. Unless the daemon is still catching up,
it has published all conclusions from events up to there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from app.events import DaemonFact, DaemonHeartbeat, DaemonReady, DaemonStarted, DaemonStopped, Payload

ACCOUNTS: frozenset[type[Payload]] = frozenset({DaemonStarted, DaemonReady, DaemonHeartbeat, DaemonStopped})


class Accounts:
    """The positions up to which daemons have published everything.

    Args:
        settled: position by daemon, up to which everything is published.
        ready: daemons, as daemon@node, that are ready.
    """

    def __init__(self, settled: Mapping[str, int] | None = None, ready: Iterable[str] = ()) -> None:
        self.settled = Counter(settled or {})
        self.ready = set(ready)

    def add(self, fact: DaemonFact) -> None:
        """Take in a daemon's event about itself."""
        who = f"{fact.daemon}@{fact.node}"
        if isinstance(fact, DaemonStarted):
            self.ready.discard(who)
        elif isinstance(fact, DaemonReady):
            self.ready.add(who)
        if isinstance(fact, DaemonReady | DaemonHeartbeat | DaemonStopped) and who in self.ready:
            self.reach(fact.daemon, fact.position)

    def reach(self, daemon: str, position: int) -> None:
        """Note that a daemon has published all conclusions up to a position."""
        self.settled[daemon] = max(self.settled[daemon], position)
