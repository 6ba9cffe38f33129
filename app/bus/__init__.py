"""The bus: durable publishing, delivery by position, over ZeroMQ or within one process."""

from app.bus.broker import Broker
from app.bus.errors import BrokerUnavailable, BusClosed, BusError, EventTooLarge, InsecureEndpoint, PublishRefused
from app.bus.letters import retry_letter
from app.bus.limits import BrokerLimits
from app.bus.memory_bus import MemoryBus, MemorySubscription
from app.bus.ports import Batch, Bus, Subscription
from app.bus.zmq_bus import ZmqBus
from app.bus.zmq_subscription import ZmqSubscription

__all__ = [
    "Batch",
    "Broker",
    "BrokerLimits",
    "BrokerUnavailable",
    "Bus",
    "BusClosed",
    "BusError",
    "EventTooLarge",
    "InsecureEndpoint",
    "MemoryBus",
    "MemorySubscription",
    "PublishRefused",
    "Subscription",
    "ZmqBus",
    "ZmqSubscription",
    "retry_letter",
]
