"""Players that stay in memory between the jobs of a process, as many as there is room for."""

from collections import OrderedDict
from threading import Lock

from app.games import TableSpec
from app.selfplay.players import Player, load_player
from app.store import BlobStore

CAPACITY = 16
"""Players in memory: a league's worth of small networks, 10 MB of those of the configurations here."""


class PlayerCache:
    """Loads players when they are wanted first, and lets the one go that was not wanted for longest.

    A model is named by its content, so what is in memory is never out of date. Safe to use from threads.

    Args:
        capacity: how many players are kept.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._players: OrderedDict[tuple[BlobStore, str, str, str], Player] = OrderedDict()
        self._lock = Lock()

    def load(self, store: BlobStore, name: str, spec: TableSpec, device: str = "cpu") -> Player:
        """Return a player, from memory if it is there; see ``load_player`` for the arguments and what is raised."""
        key = (store, name, spec.rules_version, device)
        with self._lock:
            if key in self._players:
                self._players.move_to_end(key)
                return self._players[key]
        player = load_player(store, name, spec, device)
        with self._lock:
            self._players[key] = player
            while len(self._players) > self._capacity:
                self._players.popitem(last=False)
        return player


PLAYERS = PlayerCache()
"""Those of this process."""
