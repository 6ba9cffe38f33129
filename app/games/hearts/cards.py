"""Cards and sets of cards.

A card is suit x 13 + rank: suits are clubs, diamonds, spades, hearts; ranks are two (0) to ace (12). A set of cards is
an integer with a bit for each card. Its 52 bits fit into a signed integer, so kernels mix no signed and unsigned ones.
"""

from flyball.app.core.kernels import kernel

CARDS, SUITS, RANKS, SEATS = 52, 4, 13, 4
CLUBS, DIAMONDS, SPADES, HEARTS = range(SUITS)
TWO_OF_CLUBS, QUEEN_OF_SPADES, KING_OF_SPADES, ACE_OF_SPADES = 0, 36, 37, 38
FIRST_HEART = HEARTS * RANKS
POINTS = 26
"""Points in a hand: thirteen hearts and the queen's thirteen."""

ALL = (1 << CARDS) - 1
SUIT = (1 << RANKS) - 1
"""All cards of clubs; shift by 13 for each further suit."""
ALL_HEARTS = SUIT << FIRST_HEART
POINT_CARDS = ALL_HEARTS | 1 << QUEEN_OF_SPADES


@kernel
def count(cards: int) -> int:
    """Return the number of cards in a set."""
    cards = cards - ((cards >> 1) & 0x5555555555555555)
    cards = (cards & 0x3333333333333333) + ((cards >> 2) & 0x3333333333333333)
    cards = (cards + (cards >> 4)) & 0x0F0F0F0F0F0F0F0F
    # Shifts replace the usual multiplication, which overflows 64 bits. Either compiles to a single instruction.
    cards = cards + (cards >> 8)
    cards = cards + (cards >> 16)
    return (cards + (cards >> 32)) & 0x7F


@kernel
def lowest(cards: int) -> int:
    """Return the lowest card number in a non-empty set."""
    return count((cards & -cards) - 1)


@kernel
def highest(cards: int) -> int:
    """Return the highest card number in a non-empty set."""
    cards |= cards >> 1
    cards |= cards >> 2
    cards |= cards >> 4
    cards |= cards >> 8
    cards |= cards >> 16
    cards |= cards >> 32
    return count(cards) - 1


@kernel
def points_of(card: int) -> int:
    """Return the points of a card."""
    if card == QUEEN_OF_SPADES:
        return 13
    return 1 if card >= FIRST_HEART else 0
