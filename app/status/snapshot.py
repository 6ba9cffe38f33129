"""A board as a file beside the journal: whoever looks again reads on from there.

It is a copy of what the journal says and nothing else depends on it: one that is damaged, of another version or of
another journal counts as missing.
"""

import json
import os
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from msgspec import DecodeError
from pydantic import ValidationError

from app.events import Event, EventVoided
from app.journal import JournalReader, history
from app.status.status import READS, Board, BoardState

FORMAT = 3
"""To be raised when the rows change, or a fold counts events otherwise."""


def save_board(path: Path, board: Board) -> None:
    """Replace the snapshot, whole or not at all.

    Raises:
        OSError: it can't be written.
    """
    state = board.state().to_json().decode()
    document = {"made_by": _maker(), "sha256": sha256(state.encode()).hexdigest(), "state": state}
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(document), encoding="utf-8")
    scratch.replace(path)


def load_board(path: Path, reader: JournalReader) -> Board:
    """Return the board of the snapshot if it belongs to the journal, else an empty one."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        text = document["state"]
        if document["made_by"] != _maker() or document["sha256"] != sha256(text.encode()).hexdigest():
            return Board()
        state = BoardState.from_json(text)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError, DecodeError):
        return Board()
    return Board(state) if _belongs(state, reader) else Board()


def _belongs(state: BoardState, reader: JournalReader) -> bool:
    """Return whether the journal still holds the last counted event, and no event was voided since."""
    if not reader.landmark(EventVoided.event_type) <= state.position <= reader.head or not state.position:
        return False
    event: Event[Any] | None = next(history(reader, after=state.position - 1, on_dead=lambda _: None), None)
    return event is not None and (event.sequence, event.id) == (state.position, state.event_id)


def _maker() -> str:
    """Name what the rows depend on besides the events: the code, and which events it reads."""
    names = sorted(f"{payload.event_type} {payload.dataversion}" for payload in READS)
    return f"flyball {version('flyball')} {FORMAT} {sha256(' '.join(names).encode()).hexdigest()[:16]}"
