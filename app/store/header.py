"""A note in the header of a safetensors file, so that one blob says by itself what it holds.

The safetensors library writes metadata in an order of chance; a note is one entry, written here in one way,
so that the same content always has the same bytes and therefore the same key.
Source: the format, https://huggingface.co/docs/safetensors (8 bytes of header length, JSON header, tensors).
"""

import json

from app.store.blobs import DamagedBlob

_LENGTH_BYTES = 8
_METADATA = "__metadata__"


def with_note(data: bytes, note: str) -> bytes:
    """Return the safetensors file ``data`` with ``note`` in its header."""
    header, tensors = _split(data)
    header[_METADATA] = {"note": note}
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)  # the format aligns the tensors to 8 bytes
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text + tensors


def note_of(data: bytes) -> str:
    """Return the note. Raises ``DamagedBlob`` for anything but a file that :func:`with_note` made."""
    try:
        header, _ = _split(data)
        note = header[_METADATA]["note"]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedBlob(
            "The blob is no safetensors file with a note.",
            hint="Is its key that of a shard or a checkpoint of this project?",
        ) from error
    return str(note)


def _split(data: bytes) -> tuple[dict[str, dict[str, object]], bytes]:
    start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    header = json.loads(data[_LENGTH_BYTES:start])
    return header, data[start:]
