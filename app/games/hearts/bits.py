"""Sets of cards in the kernels."""

from app.core.kernels import kernel
from app.games.hearts.cards import FIRST_HEART, QUEEN_OF_SPADES


@kernel
def count(cards: int) -> int:
    """Return the number of cards in a set."""
    cards = cards - ((cards >> 1) & 0x5555555555555555)
    cards = (cards & 0x3333333333333333) + ((cards >> 2) & 0x3333333333333333)
    cards = (cards + (cards >> 4)) & 0x0F0F0F0F0F0F0F0F
    # Not the usual multiplication, which needs 64 bits that overflow; the compiler knows both for one instruction.
    cards = cards + (cards >> 8)
    cards = cards + (cards >> 16)
    return (cards + (cards >> 32)) & 0x7F


@kernel
def lowest(cards: int) -> int:
    """Return the lowest card of a set that is not empty, in the order of the numbers."""
    return count((cards & -cards) - 1)


@kernel
def highest(cards: int) -> int:
    """Return the highest card of a set that is not empty, in the order of the numbers."""
    cards |= cards >> 1
    cards |= cards >> 2
    cards |= cards >> 4
    cards |= cards >> 8
    cards |= cards >> 16
    cards |= cards >> 32
    return count(cards) - 1


@kernel
def points_of(card: int) -> int:
    """Return what a card costs whoever takes it."""
    if card == QUEEN_OF_SPADES:
        return 13
    return 1 if card >= FIRST_HEART else 0
