"""Dead letters: what could not be recorded or read, kept with the reason."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Bytes that could not be used.

    Attributes:
        position: where they lie in the journal; 0 when they were refused before being recorded.
        producer: who sent them.
        reporter: who could not use them: the broker, or a subscriber's name.
        error: why, in a sentence.
        body: the event, or the whole frame when that could not be read.
        number: the letter's number in its journal; 0 before it is kept.
    """

    position: int
    producer: str
    reporter: str
    error: str
    body: bytes
    number: int = 0
