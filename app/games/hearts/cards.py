"""Cards and sets of cards.

A card is suit x 13 + rank: suits clubs, diamonds, spades, hearts, ranks from two (0) to ace (12). A set of cards is an
integer with a bit for each; 52 bits fit into a signed one, which spares the kernels any mixing of signs.
"""

CARDS, SUITS, RANKS, SEATS = 52, 4, 13, 4
CLUBS, DIAMONDS, SPADES, HEARTS = range(SUITS)
TWO_OF_CLUBS, QUEEN_OF_SPADES, KING_OF_SPADES, ACE_OF_SPADES = 0, 36, 37, 38
FIRST_HEART = HEARTS * RANKS
POINTS = 26
"""Points in a hand: thirteen hearts and the queen's thirteen."""

ALL = (1 << CARDS) - 1
SUIT = (1 << RANKS) - 1
"""The cards of a suit, shifted to clubs."""
ALL_HEARTS = SUIT << FIRST_HEART
POINT_CARDS = ALL_HEARTS | 1 << QUEEN_OF_SPADES
