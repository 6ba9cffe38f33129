"""Lines in rows of bounded size: who comes out next, and what a change touches."""

from heapq import heapify, heappop, heappush
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.controllers.fair_queue import CHILDREN, Lines, Page, SchedulerRow


class Table:
    """Rows that outlive the events that change them."""

    def __init__(self) -> None:
        self.rows: dict[str, Page] = {}
        self.sizes: dict[str, int] = {}

    def open(self) -> Lines:
        return Lines(lambda name: self.rows.get(name, ()), self.sizes)

    def close(self, lines: Lines) -> int:
        """Apply the changes; return how many rows they touched."""
        self.sizes = lines.sizes
        self.rows = {name: page for name, page in (self.rows | lines.pages).items() if page}
        return len(lines.pages)


RANKS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 2**53)


@given(st.lists(st.none() | RANKS, max_size=200), st.integers(1, 5))
def test_the_least_comes_first_whatever_came_and_went_before(steps, together):
    table, lines, kept = Table(), Table().open(), list[tuple[float, str]]()
    for number, rank in enumerate(steps):
        if number % together == 0:
            table.close(lines)
            lines = table.open()
        if rank is not None:
            lines.push("one", rank, str(number))
            heappush(kept, (rank, str(number)))
        elif kept:
            assert lines.first("one") == kept[0]
            assert lines.pop("one") == heappop(kept)
    table.close(lines)
    assert sum(map(len, table.rows.values())) == table.sizes.get("one", 0) == len(kept)
    assert all(len(page) <= CHILDREN for page in table.rows.values())


@pytest.mark.parametrize(("waiting", "levels"), [(12, 2), (10_000, 5)])
def test_a_change_touches_a_row_a_level(waiting, levels):
    table, chance = Table(), Random(1)
    entries = [(chance.random(), str(number)) for number in range(waiting)]
    lines = table.open()
    for rank, who in entries:
        lines.push("one", rank, who)
    table.close(lines)
    heapify(entries)
    for turn in range(1000):
        lines = table.open()
        assert lines.pop("one") == heappop(entries)
        assert table.close(lines) <= levels + 1  # that of the last, which takes the place of the first, is one more
        lines, entry = table.open(), (chance.random(), f"new {turn}")
        lines.push("one", *entry)
        heappush(entries, entry)
        assert table.close(lines) <= levels


def test_lines_do_not_mix_and_an_empty_one_leaves_no_rows():
    table = Table()
    lines = table.open()
    lines.push("one", 1, "a")
    lines.push("two", 0, "b")
    assert lines.first("three") is None
    assert lines.pop("one") == (1, "a")
    assert lines.first("one") is None
    with pytest.raises(IndexError):
        lines.pop("one")
    table.close(lines)
    assert list(table.rows) == ["two:0"]


def test_ranks_are_read_back_as_what_they_were():
    row = SchedulerRow(page=((1_770_000_000_000_000, "time"), (0.0, "tag"), (1e22, "late")))
    again = SchedulerRow.model_validate_json(row.model_dump_json())
    assert again == row
    assert again.model_dump_json() == row.model_dump_json()
    assert [type(rank) for rank, _ in again.page] == [int, float, float]
