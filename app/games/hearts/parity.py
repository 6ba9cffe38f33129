"""The parity check of Hearts: OpenSpiel plays every hand again; matches, which it does not know, are added up here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.games.hearts.cards import CARDS, POINTS, SEATS
from app.games.hearts.encode import DIRECTION_ORDER, SCORE_UNIT, SCORES
from app.games.hearts.rules import HeartsRules
from app.games.hearts.scoring import hand_points
from app.games.hearts.state import HOLD, PASSED
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
            self._check_direction(number, hand[0])
            replay = ParityChecker.replay(self, hand)
            decisions += [_MatchDecision(d.seat, d.legal, d.taken, d.tensor, scores) for d in replay.decisions]
            moves += replay.moves
            if replay.outcome is None:
                return Replay(decisions, moves, None)
            scores = scores + self._points(replay.outcome)
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

    def _check_direction(self, number: int, direction: int) -> None:
        if not self._match.pass_cards or self._match.hands == 1:
            return  # the rules library knows, or it was drawn
        expected = DIRECTION_ORDER[number % len(DIRECTION_ORDER)]
        if direction != expected:
            raise IllegalMove(f"hand {number}: cards were passed in direction {direction}, not {expected}")

    def _points(self, outcome: NDArray[np.float32]) -> NDArray[np.int64]:
        points: NDArray[np.int64] = hand_points(outcome[None], moon_for_shooter=self._match.moon_for_shooter)[0]
        return points

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
