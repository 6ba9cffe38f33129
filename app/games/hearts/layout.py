"""The 270 features of the seat to move, and where each part begins. Seats are in the order me, left, across, right.

Own hand 52; cards seen 52; led suit 4; the trick's cards in order of play 4 x (suit 4 + rank 13); cards in the trick
/ 4, own position / 4, padding; scores / 100; hearts broken; tricks / 13; passing; direction left, right, across,
hold; voids shown by left, across, right 3 x 4; the last four cards, newest first, 4 x 17.

Scores are those of the match with the points of this hand added as they are taken, so where a game is one hand they
are its points. The three cards that a seat passed, and what became of older tricks, are not among the features.
"""

from app.games.hearts.cards import CARDS, RANKS, SEATS, SUITS
from app.games.hearts.state import ACROSS, HOLD, LEFT, RIGHT

CARD = SUITS + RANKS
HAND = 0
SEEN = HAND + CARDS
LED = SEEN + CARDS
TRICK = LED + SUITS
IN_TRICK = TRICK + SEATS * CARD
POSITION = IN_TRICK + 1
SCORES = POSITION + 2
BROKEN = SCORES + SEATS
TRICKS = BROKEN + 1
PASSING = TRICKS + 1
DIRECTION = PASSING + 1
VOIDS = DIRECTION + 4
LAST = VOIDS + (SEATS - 1) * SUITS
SIZE = LAST + SEATS * CARD

SCORE_UNIT = 100
DIRECTION_ORDER = (LEFT, RIGHT, ACROSS, HOLD)
