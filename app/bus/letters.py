"""Dead letters, tried again."""

from msgspec.structs import replace

from app.bus.zmq_bus import ZmqBus
from app.core import derive_id
from app.events import decode
from app.events.frames import DeadLetter


async def retry_letter(bus: ZmqBus, letter: DeadLetter) -> int:
    """Publish a dead letter's event again, now that it can be read, remove the letter and return the new position.

    The event gets an id of its own: under the old one it is recorded already. Tried twice, it is published once.

    Raises:
        MalformedEvent: it still can't be read; the letter stays.
    """
    envelope = decode(letter.body)
    again = replace(envelope, id=derive_id("retry", envelope.id), causationid=envelope.id)
    position = await bus.publish(again)
    await bus.forget_letter(letter.number)
    return position
