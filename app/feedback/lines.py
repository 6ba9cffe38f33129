"""Waiting lines in rows of bounded size: a change touches a few rows, however many wait.

Each line is a heap in which a node has 16 children, and the children of one node are one row, its page (d-heaps,
Johnson 1975): page 0 holds the root, page n + 1 the children of node n. Ten thousand who wait are five levels. Who
comes out next depends on what is in a line, not on how it came there: of two equal entries it does not matter which.
"""

from collections.abc import Callable

Entry = tuple[int | float, str]
"""A rank, and who has it. The least rank comes first, of equal ones the lesser name."""

Page = tuple[Entry, ...]
CHILDREN = 16


def page_name(line: str, number: int) -> str:
    """Return what a page is called."""
    return f"{line}:{number}"


class Lines:
    """Some lines as one event changes them.

    Args:
        load: returns the page of this name, an empty one if there is none.
        sizes: how many wait in each line, by its name; a line that is not there is empty.
    """

    def __init__(self, load: Callable[[str], Page], sizes: dict[str, int]) -> None:
        self._load, self._sizes = load, sizes
        self.pages: dict[str, Page] = {}
        """Those that have changed. One that is empty is not there any more."""

    @property
    def sizes(self) -> dict[str, int]:
        """How many wait in each line; another object once a line has changed."""
        return self._sizes

    def first(self, line: str) -> Entry | None:
        """Return who comes next, and leave it there."""
        return self._page(line, 0)[0] if self._sizes.get(line) else None

    def push(self, line: str, rank: float, who: str) -> None:
        """Add somebody."""
        entry, node = (rank, who), self._sizes.get(line, 0)
        self._resize(line, node + 1)
        while node:
            parent = (node - 1) // CHILDREN
            above = self._at(line, parent)
            if above < entry:
                break
            self._put(line, node, above)
            node = parent
        self._put(line, node, entry)

    def pop(self, line: str) -> Entry:
        """Take out who comes next. Raises ``IndexError`` when nobody waits."""
        first, last = self._page(line, 0)[0], self._take_last(line)
        node, size = 0, self._sizes[line]
        while (below := CHILDREN * node + 1) < size:
            children = self._page(line, node + 1)
            least = min(children)
            if last < least:
                break
            self._put(line, node, least)
            node = below + children.index(least)
        if last is not first:
            self._put(line, node, last)
        return first

    def _take_last(self, line: str) -> Entry:
        node = self._sizes[line] - 1
        self._resize(line, node)
        number, _ = _place(node)
        *others, last = self._page(line, number)
        self.pages[page_name(line, number)] = tuple(others)
        return last

    def _resize(self, line: str, size: int) -> None:
        self._sizes = {**self._sizes, line: size}

    def _page(self, line: str, number: int) -> Page:
        name = page_name(line, number)
        page = self.pages.get(name)
        return self._load(name) if page is None else page

    def _at(self, line: str, node: int) -> Entry:
        number, place = _place(node)
        return self._page(line, number)[place]

    def _put(self, line: str, node: int, entry: Entry) -> None:
        number, place = _place(node)
        page = self._page(line, number)
        self.pages[page_name(line, number)] = (*page[:place], entry, *page[place + 1 :])


def _place(node: int) -> tuple[int, int]:
    """Return a node's page and where it is in it."""
    return ((node - 1) // CHILDREN + 1, (node - 1) % CHILDREN) if node else (0, 0)
