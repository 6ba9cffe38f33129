"""A broker with keys, and clients with keys of any role."""

from contextlib import contextmanager
from datetime import UTC, datetime

import zmq
from bus_rig import broker_thread

from flyball.app.bus import ZmqBus
from flyball.app.bus.access import Access, ClientKeys
from flyball.app.bus.keys import Key, KeyList, new_pair
from flyball.app.core import derive_id
from flyball.app.events import AccessRefused, originate
from flyball.daemons.rights import rights

NOW = datetime(2024, 1, 1, tzinfo=UTC)


class KeyRing:
    """A list of keys in a folder, with its names' key pairs. ``access`` is the broker's access to the list."""

    def __init__(self, folder):
        self.path, self.head, self.pairs = folder / "allowed", new_pair(), {}
        self.now = NOW
        KeyList().write(self.path)
        self.access = Access(self.head, self.path, rights(), lambda: self.now)

    def admit(self, name, role):
        self.pairs[name] = new_pair()
        self.authorize(name, role, self.keys(name))
        return self.keys(name)

    def authorize(self, name, role, keys):
        KeyList.read(self.path).authorize(Key(name, role, keys.own.public)).write(self.path)

    def revoke(self, name):
        KeyList.read(self.path).revoke(name).write(self.path)

    def keys(self, name):
        return ClientKeys(self.pairs[name], self.head.public)

    def stranger(self):
        return ClientKeys(new_pair(), self.head.public)


def refusals_as_events(now, facts):
    refusals = [one for one in facts if isinstance(one, AccessRefused)]
    return [originate(one, event_id=derive_id("audit", str(one), str(now)), time=now) for one in refusals]


@contextmanager
def keyed_broker(journal, ring, **options):
    with broker_thread(journal, "tcp://127.0.0.1:*", access=ring.access, write=refusals_as_events, **options) as broker:
        yield broker


def keyed(socket, keys):
    """Give a raw socket a client's keys."""
    socket.setsockopt(zmq.CURVE_SECRETKEY, bytes.fromhex(keys.own.secret))
    socket.setsockopt(zmq.CURVE_PUBLICKEY, bytes.fromhex(keys.own.public))
    socket.setsockopt(zmq.CURVE_SERVERKEY, bytes.fromhex(keys.broker))


def client(broker, ring, producer, *, keys=None, deadline_s=20, **options):
    keys = keys or ring.keys(producer.partition("@")[2])
    return ZmqBus(broker.endpoint, producer=producer, keys=keys, deadline_s=deadline_s, **options)
