"""Publishing without a broker, by the one process that writes the journal."""

from collections.abc import Sequence
from typing import Any

from app.bus.ports import check_rights
from app.bus.sequencer import WINDOW, Sequencer, microseconds
from app.core import Clock, is_broker
from app.events import Envelope
from app.events.frames import Frame, frame_of
from app.journal import Journal


class JournalPublisher:
    """Records events as the broker does: with the same rights, order, stamps and rule for repetitions.

    Args:
        journal: where they are recorded.
        clock: the time of recording.
        producer: their source.
    """

    def __init__(self, journal: Journal, clock: Clock, producer: str) -> None:
        self._journal, self._clock, self._producer = journal, clock, producer
        recent = journal.ids(max(0, journal.head - WINDOW))
        self._sequencer = Sequencer(journal.head, journal.recorded_us, recent)
        self._epoch = journal.head
        self._sequencer.introduce(producer, self._epoch, journal.mark(producer, self._epoch) or 0)

    def publish(self, envelopes: Sequence[Envelope[Any]]) -> tuple[int, ...]:
        """Record events in order and return their positions; see ``Bus.publish``.

        Raises:
            PublishRefused: only the broker publishes such an event.
        """
        if not envelopes:
            return ()
        base = self._sequencer.marks[self._producer, self._epoch]
        frame = Frame.parse(frame_of(envelopes, producer=self._producer, epoch=self._epoch, base=base))
        if not is_broker(self._producer):
            check_rights(frame)
        runs = self._sequencer.admit(frame, microseconds(self._clock.now()), self._producer)
        records, marks = self._sequencer.take()
        self._journal.append(records, marks=marks)
        return tuple(position for run in runs for position in range(run.first, run.first + run.size))
