"""The bus: durable publishing, delivery by position, over ZeroMQ.

Guarantees (ADR-004; each has a test that names it):

- acknowledged: the event survives kill -9 of any process, and a loss of power;
- total order: positions are assigned once, without gaps, and every subscriber sees the events in their order;
- at least once: an event is sent until it is acknowledged, and recorded once; every
  subscription, however late or slow, receives all recorded events after its cursor;
- every record is checksummed, and a subscription that needs a damaged one ends with an error.
"""

from flyball.app.bus.ports import BROKER_ONLY, Batch, BrokerUnavailable, Bus, Subscription
from flyball.app.bus.sequencer import JournalPublisher
from flyball.app.bus.zmq_bus import ZmqBus

__all__ = ["BROKER_ONLY", "Batch", "BrokerUnavailable", "Bus", "JournalPublisher", "Subscription", "ZmqBus"]
