"""Games as records: what a hand of Hearts consists of, in one array that the kernels read and write."""

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from app.games.hearts.cards import CARDS, SEATS
from app.games.hearts.rules import HeartsRules

PASSED = 3
"""Cards that everyone passes."""

GAME = np.dtype(
    [
        ("hand", np.int64, SEATS),  # the cards each seat holds, as sets
        ("given", np.int64, SEATS),  # the cards each seat passed
        ("played", np.int64),
        ("choices", np.int64),  # what the seat to move may choose, where the table has played what was forced
        ("deck", np.uint8, CARDS),  # card k was dealt to seat k mod 4
        ("passes", np.uint8, SEATS * PASSED),  # in the order they were chosen, seat after seat
        ("plays", np.uint8, CARDS),
        ("points", np.int8, SEATS),  # taken in this hand
        ("scores", np.int32, SEATS),  # of the match before this hand
        ("voids", np.uint8, SEATS),  # suits that each seat could not follow, as sets
        ("leads", np.int8, SEATS),  # times that each seat led hearts unbroken though it had something else
        ("cards_passed", np.uint8),
        ("cards_played", np.uint8),
        ("mover", np.int8),  # who is to move; FINISHED when the hand is over
        ("leader", np.int8),  # of the trick
        ("direction", np.uint8),  # cards go so many seats to the left: OpenSpiel's numbers
        ("broken", np.bool_),
        ("options", np.uint8),  # of the rules, as a set
    ],
    align=True,
)
Games = NDArray[np.void]


class Game(TypedDict):
    """One record of ``GAME``, as kernels see it."""

    hand: NDArray[np.int64]
    given: NDArray[np.int64]
    played: int
    choices: int
    deck: NDArray[np.uint8]
    passes: NDArray[np.uint8]
    plays: NDArray[np.uint8]
    points: NDArray[np.int8]
    scores: NDArray[np.int32]
    voids: NDArray[np.uint8]
    leads: NDArray[np.int8]
    cards_passed: int
    cards_played: int
    mover: int
    leader: int
    direction: int
    broken: bool
    options: int


LEFT, ACROSS, RIGHT, HOLD = 1, 2, 3, 0
CLEAN_FIRST_TRICK, MUST_BREAK, QUEEN_BREAKS = 1, 2, 4


def option_set(rules: HeartsRules) -> int:
    """Return the rules that the kernels have to know, as a set."""
    return (
        CLEAN_FIRST_TRICK * rules.no_pts_on_first_trick
        | MUST_BREAK * rules.must_break_hearts
        | QUEEN_BREAKS * rules.qs_breaks_hearts
    )
