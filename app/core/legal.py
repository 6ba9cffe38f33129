"""Legal actions of many rows, as a mask or as lists.

Games with many actions have lists, because masks of so many actions would fill memory and disk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

MANY_ACTIONS = 1024
"""Fewest actions of a game that keeps lists. With fewer, a mask takes at most 128 bytes a row on disk."""


@dataclass(frozen=True, slots=True, eq=False)
class LegalActions:
    """Legal actions of N rows as lists, for A actions.

    ``np.asarray`` returns the mask [N, A]. A slice, or an array of row numbers or booleans, selects rows as it would of
    a mask.
    """

    listed: NDArray[np.unsignedinteger]  # [L] legal actions, row after row and ascending within each
    ends: NDArray[np.int64]  # [N] where the list of each row ends
    actions: int  # A

    @classmethod
    def of(cls, mask: NDArray[np.bool_]) -> Self:
        """Return the legal actions of a mask [N, A]."""
        return cls.at(np.flatnonzero(mask), *mask.shape)

    @classmethod
    def at(cls, places: NDArray[np.int64], rows: int, actions: int) -> Self:
        """Return the legal actions at ``places`` [L] of a mask: ascending indices of the flattened mask [N x A]."""
        kind = np.min_scalar_type(actions - 1)
        return cls((places % actions).astype(kind), np.searchsorted(places, np.arange(1, rows + 1) * actions), actions)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, chosen: slice | NDArray[Any]) -> Self:
        counts = self.counts
        return type(self)(self.listed[listed_places(counts, chosen)], np.cumsum(counts[chosen]), self.actions)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001
        mask = np.zeros(len(self) * self.actions, dtype=np.bool_)
        mask[self.places] = True
        return mask.reshape(self.shape).astype(np.bool_ if dtype is None else dtype, copy=False)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the mask, (N, A)."""
        return len(self), self.actions

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of legal actions of each row [N]."""
        return np.diff(self.ends, prepend=0)

    @property
    def places(self) -> NDArray[np.int64]:
        """Ascending places [L] of legal actions in the flattened mask."""
        return np.repeat(np.arange(len(self)) * self.actions, self.counts) + self.listed

    def renamed(self, rows: NDArray[np.int64], image: NDArray[np.int64]) -> Self:
        """Return a copy with the actions of some rows renamed. Each legal action a of ``rows`` becomes ``image[a]``."""
        chosen = np.zeros(len(self), dtype=np.bool_)
        chosen[rows] = True
        listed = np.where(np.repeat(chosen, self.counts), image[self.listed], self.listed)
        places = self.places - self.listed + listed
        return self.at(np.sort(places), *self.shape)


Legal = NDArray[np.bool_] | LegalActions
"""Legal actions of N rows: a mask [N, A], or lists."""


def compact(legal: Legal) -> Legal:
    """Return a mask as lists if it has at least ``MANY_ACTIONS`` actions; others and lists are returned unchanged."""
    many = not isinstance(legal, LegalActions) and legal.shape[1] >= MANY_ACTIONS
    return LegalActions.of(np.asarray(legal)) if many else legal


def join(parts: Sequence[Legal]) -> Legal:
    """Return the rows of all parts, which are of one game."""
    if not any(isinstance(part, LegalActions) for part in parts):
        return np.concatenate([np.asarray(part) for part in parts])
    lists = [part if isinstance(part, LegalActions) else LegalActions.of(part) for part in parts]
    before = np.cumsum([0, *(len(part.listed) for part in lists[:-1])])
    ends = [part.ends + begin for part, begin in zip(lists, before, strict=True)]
    return LegalActions(np.concatenate([part.listed for part in lists]), np.concatenate(ends), lists[0].actions)


def listed_places(counts: NDArray[np.int64], chosen: slice | NDArray[Any]) -> NDArray[np.int64]:
    """Return the places of chosen rows' entries in a flat list.

    The list holds the entries of all rows, row after row; row i has ``counts[i]`` of them.
    """
    taken = counts[chosen]
    begins, ends = (np.cumsum(counts) - counts)[chosen], np.cumsum(taken)
    places: NDArray[np.int64] = np.arange(taken.sum()) + np.repeat(begins - (ends - taken), taken)
    return places


def legal_counts(legal: Legal) -> NDArray[np.int64]:
    """Return the number of legal actions of each row [N]."""
    return legal.counts if isinstance(legal, LegalActions) else legal.sum(axis=1)


def are_legal(legal: Legal, action: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return [N]: true where a row's action is legal. ``action`` [N] is in 0 … A - 1."""
    if not isinstance(legal, LegalActions):
        return np.take_along_axis(legal, action[:, None].astype(np.int64), axis=1)[:, 0]
    places = np.arange(len(legal)) * legal.actions + action
    return np.isin(places, legal.places)
