"""The place of a run's journal, decided here alone: a file of its folder, or a database (ADR-040)."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flyball.app.config import RunFolder
from flyball.app.config.deployment import JournalSettings
from flyball.app.config.journal_address import check_url, is_postgres
from flyball.app.core import BadUsage
from flyball.app.journal.archiving import archive
from flyball.app.journal.copying import copy_journal
from flyball.app.journal.damage import rebuild
from flyball.app.journal.database import NotAJournal, StorageError, locked, remove_database
from flyball.app.journal.kept_files import sync
from flyball.app.journal.ports import JournalLocation, Rebuilt, Snapshot, StoredJournal
from flyball.app.journal.segments import FOLDER
from flyball.app.journal.snapshots import write_snapshot
from flyball.app.journal.sqlite_journal import SqliteJournal, SqliteJournalReader

if TYPE_CHECKING:
    from flyball.app.journal.postgres_journal import PostgresJournal, PostgresJournalReader

WriteSnapshot = Callable[[Snapshot, bytes], None]


class OtherJournal(StorageError, code="usage"):
    """The settings name another journal than the one of this run folder."""


def never() -> bool:
    """Do not give up."""
    return False


def journal_of(folder: RunFolder, settings: JournalSettings) -> JournalLocation:
    """Return where a run's journal is. Raises ``OtherJournal`` if it is in a database that the settings don't name."""
    if settings.url is not None:
        return PostgresLocation(settings.url, folder.journal_id)
    if folder.journal_id.exists():
        raise OtherJournal(
            f"The journal of the run in {folder.path} is in a database, and deployment.journal.url is not set.",
            hint=f"Set it. Or go on with a copy in {folder.journal}: flyball journal copy; then remove "
            f"{folder.journal_id}.",
        )
    return SqliteLocation(folder.journal)


def named_journal(name: str) -> JournalLocation:
    """Return the journal of a file's path or a database's URL. Raises ``BadUsage`` for a URL that can't be used."""
    if not is_postgres(name):
        return SqliteLocation(Path(name))
    try:
        return PostgresLocation(check_url(name))
    except ValueError as error:
        raise BadUsage(f"The journal cannot be opened: {error}.") from error


class SqliteLocation:
    """A journal in a SQLite file. See ``JournalLocation``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def exists(self) -> bool:
        """See ``JournalLocation.exists``."""
        return self._path.exists()

    def is_begun(self) -> bool:
        """See ``JournalLocation.is_begun``."""
        return self._path.is_file() and self._path.stat().st_size > 0

    def reader(self) -> SqliteJournalReader:
        """See ``JournalLocation.reader``."""
        return SqliteJournalReader(self._path)

    def writer(self, *, wait: bool = False, give_up: Callable[[], bool] = never) -> SqliteJournal:  # noqa: ARG002
        """See ``JournalLocation.writer``."""
        return SqliteJournal(self._path)

    @contextmanager
    def filling(self) -> Iterator[StoredJournal]:
        """See ``JournalLocation.filling``."""
        if self._path.exists():
            raise StorageError(f"{self._path} is there already.", hint="Name a new file, or an empty run folder.")
        unfinished = self._path.with_name(self._path.name + ".import")
        remove_database(unfinished)
        try:
            with closing(SqliteJournal(unfinished)) as journal:
                yield journal
            unfinished.rename(self._path)
            sync(self._path.parent)
        finally:
            remove_database(unfinished)

    @contextmanager
    def taking_snapshots(self) -> Iterator[WriteSnapshot]:
        """See ``JournalLocation.taking_snapshots``."""
        folder = self._path.with_name(FOLDER)
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "snapshots"):
            yield lambda snapshot, head: write_snapshot(folder, snapshot, head)

    def archive(self, until: int, say: Callable[[int, int], None]) -> bool:
        """See ``JournalLocation.archive``."""
        return bool(archive(self._path, until, say=lambda row: say(row.first, row.last)))

    def backup(self, path: Path) -> int:
        """See ``JournalLocation.backup``."""
        with closing(self.reader()) as reader:
            return reader.backup(path)

    def rebuild(self) -> Rebuilt:
        """See ``JournalLocation.rebuild``."""
        return rebuild(self._path)


class PostgresLocation:
    """A journal in a PostgreSQL database. See ``JournalLocation``.

    Args:
        url: of the database.
        id_file: holds the id of the run folder's journal, so that a folder never meets another run's journal. None if
            the journal is of no folder.
    """

    def __init__(self, url: str, id_file: Path | None = None) -> None:
        self._url, self._id_file = url, id_file

    def __str__(self) -> str:
        return self._url

    def exists(self) -> bool:
        """See ``JournalLocation.exists``."""
        return (self._id_file is not None and self._id_file.exists()) or self._head() is not None

    def is_begun(self) -> bool:
        """See ``JournalLocation.is_begun``."""
        return bool(self._head())

    def _head(self) -> int | None:
        """Return the position of the last event; None without a journal."""
        with suppress(NotAJournal), closing(self.reader()) as reader:
            return reader.head
        return None

    def reader(self) -> "PostgresJournalReader":
        """See ``JournalLocation.reader``."""
        with _driver_needed():
            from flyball.app.journal.postgres_journal import PostgresJournalReader

        with ExitStack() as on_error:
            reader = PostgresJournalReader(self._url)
            on_error.callback(reader.close)
            self._check_id(reader.row().run)
            on_error.pop_all()
        return reader

    def writer(self, *, wait: bool = False, give_up: Callable[[], bool] = never) -> "PostgresJournal":
        """See ``JournalLocation.writer``. From then on, the run folder meets only this journal."""
        with _driver_needed():
            from flyball.app.journal.postgres_journal import PostgresJournal

        with ExitStack() as on_error:
            journal = PostgresJournal(self._url, wait=wait, give_up=give_up)
            on_error.callback(journal.close)
            self._check_id(journal.run)
            if self._id_file is not None and not self._id_file.exists():
                self._id_file.parent.mkdir(parents=True, exist_ok=True)
                self._id_file.write_text(f"{journal.run}\n", encoding="utf-8")
            on_error.pop_all()
        return journal

    def _check_id(self, run: str) -> None:
        if self._id_file is not None and self._id_file.exists():
            own = self._id_file.read_text(encoding="utf-8").strip()
            if own != run:
                raise OtherJournal(
                    f"{self} holds the journal {run}, and {self._id_file.parent} belongs to the journal {own}.",
                    hint="Name the run's own database in deployment.journal.url, or another run folder. If the journal "
                    f"was copied there, remove {self._id_file}.",
                )

    @contextmanager
    def filling(self) -> Iterator[StoredJournal]:
        """See ``JournalLocation.filling``."""
        with closing(self.writer()) as journal:
            if journal.head or journal.first > 1:
                raise StorageError(f"{self} holds events already.", hint="Name an empty schema or database.")
            with journal.transaction():
                yield journal

    @contextmanager
    def taking_snapshots(self) -> Iterator[WriteSnapshot]:
        """See ``JournalLocation.taking_snapshots``."""
        with _driver_needed():
            from flyball.app.journal.postgres_tables import taking_snapshots

        with taking_snapshots(self._url) as write:
            yield write

    def archive(self, until: int, say: Callable[[int, int], None]) -> bool:  # noqa: ARG002
        """See ``JournalLocation.archive``. Nothing is archived: an index finds each record, however many there are."""
        return False

    def backup(self, path: Path) -> int:
        """See ``JournalLocation.backup``."""
        return copy_journal(self, SqliteLocation(path))

    def rebuild(self) -> Rebuilt:
        """See ``JournalLocation.rebuild``."""
        raise StorageError(
            "A journal in a database is not rebuilt.",
            hint="Restore the database, or copy a backup into an empty schema: flyball journal copy FILE URL",
        )


@contextmanager
def _driver_needed() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise StorageError(
            f"A journal on PostgreSQL needs the package psycopg ({error}).", hint="pip install 'flyball[postgres]'"
        ) from error
