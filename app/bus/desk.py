"""Cursors and dead letters at the broker: what clients ask for besides events. No sockets."""

from app.bus import wire
from app.bus.ports import Ledger
from app.events.frames import DeadLetter

Message = tuple[bytes, list[bytes]]


class Desk:
    """Collects what the next transaction writes, and the answers that follow it.

    Args:
        journal: where cursors and dead letters are kept.
    """

    def __init__(self, journal: Ledger) -> None:
        self._journal = journal
        self._known = journal.cursors()
        self._cursors: dict[str, int] = {}
        self._letters: list[DeadLetter] = []
        self._answers: list[Message] = []

    def start_of(self, wanted: wire.Subscribe, head: int) -> int:
        """Return the position after which a subscription begins."""
        if wanted.after is not None:
            return wanted.after
        return head if wanted.durable is None else self._known.get(wanted.durable, 0)

    def ask(self, peer: bytes, parts: list[bytes], head: int) -> None:
        """Do what a client asks for; it is answered after the next transaction.

        Args:
            peer: who asks.
            parts: the whole message.
            head: position of the last event.

        Raises:
            ProtocolError, ValidationError, IndexError, struct.error: the request makes no sense.
        """
        _, token = wire.TOKEN_FORM.unpack(parts[0])
        match parts[1]:
            case b"commit":
                problem = self._commit(wire.Commit.model_validate_json(parts[2]), head)
            case b"letter":
                problem = self._letter(wire.Letter.model_validate_json(parts[2]), parts[3], head)
            case b"forget":
                problem = self._forget(wire.Forget.model_validate_json(parts[2]))
            case other:
                raise wire.ProtocolError(f"There is no method {other!r}.")
        self._answers.append((peer, [wire.TOKEN_FORM.pack(wire.ANSWER, token), problem.encode()]))

    def keep(self, letter: DeadLetter, answer: Message) -> None:
        """Keep a dead letter, then answer."""
        self._letters.append(letter)
        self._answers.append(answer)

    def take(self) -> tuple[dict[str, int], list[DeadLetter], list[Message]]:
        """Return what was collected since the last call: cursors, dead letters, answers."""
        taken = self._cursors, self._letters, self._answers
        self._cursors, self._letters, self._answers = {}, [], []
        return taken

    def _commit(self, commit: wire.Commit, head: int) -> str:
        if commit.position > head:
            return _beyond(commit.position, head)
        self._cursors[commit.name] = self._known[commit.name] = commit.position
        return ""

    def _letter(self, letter: wire.Letter, body: bytes, head: int) -> str:
        if letter.position > head:
            return _beyond(letter.position, head)
        self._letters.append(DeadLetter(letter.position, letter.producer, letter.reporter, letter.error, body))
        return ""

    def _forget(self, forget: wire.Forget) -> str:
        known = self._journal.remove_dead_letter(forget.number)
        return "" if known else f"There is no dead letter {forget.number}."


def _beyond(position: int, head: int) -> str:
    return f"The position {position} lies beyond the journal's end {head}."
