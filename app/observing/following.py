"""Files that are followed while another program writes them.

Each look continues where the last one ended. A file that has become shorter, or whose content before that point has
changed, is read again from its beginning, because another program rewrote, truncated or replaced it. ``Record.key``
identifies records that were read before: it derives from the record's content, and from how many equal records
precede it in the file. So neither a line's number nor the file's age matters.

A file is read in pieces, and closed between them, so that long files take little memory, and many files can be read at
once. What stays in memory of a wanted record is a digest of its content.
"""

import csv
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from flyball.app.core.foreign_json import parse_json

MARK_BYTES = 4096
"""Bytes at the beginning and at the end of what was read by which a file is recognised."""

PIECE_BYTES = 1 << 16
"""Bytes after which a piece of a file ends, with the record in which they do."""

LONGEST_LINE_BYTES = 1 << 20
"""Bytes of the longest line that is read; a longer one is a bad line."""

Values = Mapping[str, Any]
"""A record's values by column."""


class Record(NamedTuple):
    """A record of a file.

    Attributes:
        place: where it stands, for people.
        key: names it in its file, see the module.
        values: by column.
    """

    place: str
    key: str
    values: Values


class Problem(NamedTuple):
    """A part of a file that cannot be used: where it stands, and what is wrong."""

    place: str
    what: str


ReadItem = Record | Problem


class RawRecord(NamedTuple):
    """A record that may be unwanted, or read before: where it stands, its bytes, and its values by column."""

    place: str
    content: bytes
    values: Values


class FollowedFile:
    """Base of followed files.

    Args:
        path: the file.
        wanted: says by the values whether a record is wanted; by default all are.
    """

    def __init__(self, path: Path, wanted: Callable[[Values], bool] = lambda _: True) -> None:
        self._path, self._wanted = path, wanted
        self._trouble = ""
        self._same = Counter[bytes]()  # records since the file's beginning, by digest
        self._before = Counter[bytes]()  # the most of them before the file was rewritten
        self._begin()

    def _begin(self) -> None:
        """Begin the file again."""
        self._offset, self._head, self._tail = 0, b"", b""
        self._before |= self._same
        self._same = Counter()

    def read(self) -> Iterator[ReadItem]:
        """Iterate over what was added since the last call, complete and wanted records only, each once.

        A file that cannot be read is reported once, as a problem. A file that does not exist yet has no records.
        """
        try:
            offset = -1
            while offset != self._offset:
                offset = self._offset
                yield from self._piece()
            self._trouble = ""
        except FileNotFoundError:
            return
        except OSError as error:
            trouble = error.strerror or str(error)
            if trouble != self._trouble:
                yield Problem("the file", f"it cannot be read: {trouble}")
            self._trouble = trouble

    def _piece(self) -> list[ReadItem]:
        """Return the items of the next ``PIECE_BYTES``. Raises ``OSError``.

        Items before an error are returned, because they are not read again; the next piece meets the error.
        """
        items = list[ReadItem]()
        try:
            with self._path.open("rb") as file:
                if not self._continues(file):
                    self._begin()
                file.seek(self._offset)
                for found in self._added(file, self._offset + PIECE_BYTES):
                    if isinstance(found, Problem):
                        items.append(found)
                    elif self._wanted(found.values) and (record := self._new(found)):
                        items.append(record)
        except OSError:
            if not items:
                raise
        return items

    def _new(self, found: RawRecord) -> Record | None:
        """Return a record with its key; None if it was read before the file was rewritten."""
        digest = blake2b(found.content, digest_size=16).digest()
        self._same[digest] += 1
        if self._same[digest] <= self._before[digest]:
            return None
        return Record(found.place, f"{digest.hex()}.{self._same[digest]}", found.values)

    def _continues(self, file: BinaryIO) -> bool:
        """Return whether the file still begins with what was read."""
        if file.read(len(self._head)) != self._head:
            return False
        file.seek(self._offset - len(self._tail))
        return file.read(len(self._tail)) == self._tail

    def _advance(self, read: bytes) -> None:
        """Note bytes that are dealt with."""
        self._offset += len(read)
        if len(self._head) < MARK_BYTES:
            self._head += read[: MARK_BYTES - len(self._head)]
        self._tail = (self._tail + read[-MARK_BYTES:])[-MARK_BYTES:]

    @abstractmethod
    def _added(self, file: BinaryIO, end: int) -> Iterator[RawRecord | Problem]:
        """Iterate over the records from the file's position on, until one has reached ``end``."""


class LineFile(FollowedFile):
    """A file whose lines are records."""

    def _begin(self) -> None:
        super()._begin()
        self._number, self._skipping = 0, False

    def _added(self, file: BinaryIO, end: int) -> Iterator[RawRecord | Problem]:
        while self._offset < end and (line := file.readline(LONGEST_LINE_BYTES + 1)):
            ended = line.endswith(b"\n")
            if not ended and len(line) <= LONGEST_LINE_BYTES and not self._skipping:
                return  # it is not complete yet
            self._advance(line)
            is_rest, self._skipping = self._skipping, (self._skipping or len(line) > LONGEST_LINE_BYTES) and not ended
            if is_rest:
                continue
            self._number += 1
            if found := self._found(line):
                yield found

    def _found(self, line: bytes) -> RawRecord | Problem | None:
        """Return what a line is; None for an empty line and for the names of columns."""
        place, content = f"line {self._number}", line.rstrip(b"\r\n")
        if len(line) > LONGEST_LINE_BYTES:
            return Problem(place, f"it is longer than {LONGEST_LINE_BYTES:,} bytes")
        if not content.strip():
            return None
        try:
            values = self._values(content.decode("utf-8-sig"))
        except ValueError as error:
            return Problem(place, str(error))
        return None if values is None else RawRecord(place, content, values)

    @abstractmethod
    def _values(self, line: str) -> Values | None:
        """Return a line's values; None for a line without any. Raises ``ValueError``."""


class TableFile(LineFile):
    """Comma- or tab-separated values. The first line names the columns; it may be repeated."""

    def __init__(self, path: Path, delimiter: str, wanted: Callable[[Values], bool] = lambda _: True) -> None:
        self._delimiter = delimiter
        super().__init__(path, wanted)

    def _begin(self) -> None:
        super()._begin()
        self._columns: list[str] = []

    def _values(self, line: str) -> Values | None:
        try:
            cells = [cell.strip() for cell in next(csv.reader([line], delimiter=self._delimiter, strict=True))]
        except csv.Error as error:
            raise ValueError(f"it is not a line of a table: {error}") from None
        if not self._columns:
            self._columns = cells
        if cells == self._columns:
            return None
        if len(cells) != len(self._columns):
            raise ValueError(f"it has {len(cells)} values for the {len(self._columns)} columns of the first line")
        return dict(zip(self._columns, cells, strict=True))


class JsonFile(LineFile):
    """JSON lines: an object each. A value within another one is named ``outer.inner``."""

    def _values(self, line: str) -> Values | None:
        try:
            document = parse_json(line)
        except ValueError as error:
            raise ValueError(f"it is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise ValueError("it is not a JSON object: {...}")  # noqa: TRY004 - of the file's content
        values: dict[str, Any] = {}
        waiting = [("", document)]
        while waiting:
            prefix, inner = waiting.pop()
            for name, value in inner.items():
                if isinstance(value, dict):
                    waiting.append((f"{prefix}{name}.", value))
                else:
                    values[prefix + name] = value
        return values
