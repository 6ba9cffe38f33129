"""Results that are tables: data frames, HTML for notebooks, and one line as ``repr``."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

from flyball.app.core.errors import FlyballError
from flyball.app.core.ids import HASH_DIGITS, is_model, split_search
from flyball.app.core.suggestions import suggest

if TYPE_CHECKING:
    from pandas import DataFrame

Record = Mapping[str, Any]
"""A row of a table, by column."""


class NoPandas(FlyballError, code="usage"):
    """The package pandas is missing."""


class UnknownTable(FlyballError, code="unknown"):
    """A result has no table of this name."""


class Tabular:
    """Base of results that are tables. Notebooks show them as HTML."""

    __slots__ = ()

    brief_columns: ClassVar[Mapping[str, Sequence[str]]] = {}
    """The columns that notebooks show, by table; all of a table that is not named."""

    @abstractmethod
    def headline(self) -> str:
        """Return in one line what the result is, with its essential figures."""

    @abstractmethod
    def tables(self) -> dict[str, Sequence[Record]]:
        """Return the tables by name, the main one first."""

    def to_frame(self, table: str | None = None) -> "DataFrame":
        """Return a table as a pandas data frame.

        Figures that belong together have columns with one beginning, such as ``score_mean`` and ``score_lower``.

        Args:
            table: a name of ``tables()``; None: the main one.

        Raises ``NoPandas`` or ``UnknownTable``.
        """
        tables = self.tables()
        name = next(iter(tables)) if table is None else table
        if name not in tables:
            raise UnknownTable(f"{type(self).__name__} has no table {name!r}.", hint=suggest(name, tables))
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise NoPandas("Data frames need pandas.", hint="Install it with: pip install 'flyball[pandas]'") from error
        return DataFrame(list(tables[name]), columns=columns_of(tables[name]))

    def _repr_html_(self) -> str:
        """Return the headline and the tables as HTML, as IPython asks for it."""
        parts = [
            f"<p>{escape(name)}</p>{_html_table(rows, self.brief_columns.get(name) or columns_of(rows))}"
            for name, rows in self.tables().items()
            if rows
        ]
        return f"<p><b>{escape(self.headline())}</b></p>{''.join(parts)}"

    def __repr__(self) -> str:
        return f"<{self.headline()}>"

    __str__ = __repr__


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested figures as columns, such as ``score_mean``. Lists, which fit into no cell, are left out."""
    columns: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            columns |= flat(value, f"{prefix}{name}_")
        elif not isinstance(value, list | tuple):
            columns[f"{prefix}{name}"] = value
    return columns


def columns_of(rows: Iterable[Record]) -> list[str]:
    """Return the columns of rows in order.

    A figure that is unknown in some rows and a group of columns in others, as an interval is, has the group alone.
    """
    known = list(rows)
    every = list(dict.fromkeys(name for row in known for name in row))
    groups = {
        name
        for name in every
        if any(name not in row for row in known) and any(other.startswith(f"{name}_") for other in every)
    }
    return [name for name in every if name not in groups or any(row.get(name) is not None for row in known)]


def figure_text(value: Any) -> str:
    """Return a cell as text: numbers with four digits, the beginning of a hash, a dash for ``None``."""
    match value:
        case None:
            return "-"
        case bool():
            return str(value)
        case str():
            player, _ = split_search(value)
            return f"{player[:HASH_DIGITS]}{value.removeprefix(player)}" if is_model(player) else value
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
    return str(value)


def named(parts: Sequence[str], most: int = 3) -> str:
    """Return the first texts in a row, and how many there are beyond them."""
    more = f", {len(parts) - most} more" if len(parts) > most else ""
    return f"{', '.join(parts[:most])}{more}"


def _html_table(rows: Sequence[Record], columns: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(figure_text(row.get(name)))}</td>' for name in columns)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
