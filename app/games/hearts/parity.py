"""The parity check of Hearts: OpenSpiel plays every hand again; matches, which it does not know, are added up here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.games.hearts.cards import CARDS, POINTS, SEATS
from app.games.hearts.encode import SCORE_UNIT, SCORES
from app.games.hearts.play import DIRECTION_ORDER, HOLD, PASSED
from app.games.hearts.rules import HeartsRules
from app.games.hearts.scoring import hand_points
from app.games.parity import Decision, IllegalMove, ParityChecker, Replay
from app.games.table import Observations

_HAND = 1 + CARDS + CARDS  # actions of a hand in which nothing is passed


@dataclass(frozen=True, slots=True, eq=False)
class _MatchDecision(Decision):
    scores: NDArray[np.int64]  # [4] before the hand


class HeartsChecker(ParityChecker):
    """Replays recorded games of our own Hearts.

    Args:
        rules: that they were played by.
    """

    def __init__(self, rules: HeartsRules) -> None:
        super().__init__(rules.hand, SEATS)
        self._match = rules

    def replay(self, history: Sequence[int]) -> Replay:
        """See ``ParityChecker.replay``."""
        decisions: list[Decision] = []
        moves, over, scores = 0, False, np.zeros(SEATS, dtype=np.int64)
        for number, hand in enumerate(_hands(history)):
            if over:
                raise IllegalMove(f"the game is over with scores of {scores.tolist()}, but hand {number} follows")
            if self._match.pass_cards and self._match.hands != 1:  # otherwise OpenSpiel knows it, or it was drawn
                expected = DIRECTION_ORDER[number % len(DIRECTION_ORDER)]
                if hand[0] != expected:
                    raise IllegalMove(f"hand {number}: cards were passed in direction {hand[0]}, not {expected}")
            replay = ParityChecker.replay(self, hand)
            decisions += [_MatchDecision(d.seat, d.legal, d.taken, d.tensor, scores) for d in replay.decisions]
            moves += replay.moves
            if replay.outcome is None:
                return Replay(decisions, moves, None)
            scores = scores + hand_points(replay.outcome[None], moon_for_shooter=self._match.moon_for_shooter)[0]
            over = number + 1 == self._match.hands or (not self._match.hands and scores.max() >= self._match.limit)
        return Replay(decisions, moves, self._outcome(scores) if over else None)

    def seen(self, decision: Decision) -> Observations:
        """See ``ParityChecker.seen``; the scores of the match are added to the points of the hand."""
        seen = super().seen(decision)
        if isinstance(decision, _MatchDecision):
            places = slice(SCORES, SCORES + SEATS)
            points = np.rint(seen[places] * SCORE_UNIT)
            seen[places] = (points + np.roll(decision.scores, -decision.seat)) / SCORE_UNIT
        return seen

    def _outcome(self, scores: NDArray[np.int64]) -> NDArray[np.float32]:
        if self._match.hands:
            lead = scores.mean() - scores  # over all four; over the other three it is 4/3 of that
            return np.asarray(lead * SEATS / (SEATS - 1) / POINTS / self._match.hands, dtype=np.float32)
        winners = scores == scores.min()
        shares = np.where(winners, SEATS / winners.sum(), 0)
        return np.asarray((shares - 1) / (SEATS - 1), dtype=np.float32)


def _hands(history: Sequence[int]) -> Iterator[Sequence[int]]:
    """Cut the history of a game into those of its hands."""
    begin = 0
    while begin < len(history):
        end = begin + _HAND + (SEATS * PASSED if history[begin] != HOLD else 0)
        yield history[begin:end]
        begin = end
