"""Hearts: a "normal" player that counts the cards it has seen, and sees no hidden one.

It passes what is dangerous and empties short suits; ducks with the highest card that loses; gives away the queen of
spades, then hearts, then high cards; leads low, and looks for the queen with low spades. It never tries to shoot the
moon, and stops nobody who does.
"""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from app.games.table import Heuristic, Mask, Observations

Floats = NDArray[np.float32]
CARDS, SUITS, RANKS = 52, 4, 13
QUEEN, KING, ACE = 36, 37, 38  # of spades
SPADES, HEARTS = 2, 3
SEEN, LED, TRICK, IN_TRICK, PASSING = 52, 104, 108, 176, 185  # where the parts of the observation begin
SURE = 3.0
"""Turns what a card is worth into log-weights: a difference of one point in the trick is hardly ever overlooked."""

SUIT, RANK = np.divmod(np.arange(CARDS), RANKS)
IS_QUEEN, IS_ABOVE_QUEEN = np.arange(CARDS) == QUEEN, (np.arange(CARDS) == KING) | (np.arange(CARDS) == ACE)
IS_HEART, IS_SPADE = SUIT == HEARTS, SUIT == SPADES
IS_BELOW_QUEEN = IS_SPADE & (np.arange(CARDS) < QUEEN)
POINTS = 13.0 * IS_QUEEN + IS_HEART


class View(NamedTuple):
    """What K positions come to, each a column or one value a card.

    Attributes:
        length: [K, 52] own cards of the card's suit.
        higher: [K, 52] cards above it in its suit that others still have.
        lower: [K, 52] cards below it in its suit that others still have.
        queen_out: [K, 1] another player has the queen of spades.
        follows: [K, 52] the card is of the suit that was led.
        beaten: [K, 52] it loses to what lies in the trick already.
        points: [K, 1] in the trick.
        last: [K, 1] nobody plays after me.
    """

    length: Floats
    higher: Floats
    lower: Floats
    queen_out: NDArray[np.bool_]
    follows: NDArray[np.bool_]
    beaten: NDArray[np.bool_]
    points: Floats
    last: NDArray[np.bool_]

    @classmethod
    def of(cls, obs: Floats) -> Self:
        """Read observations [K, 270]."""
        hand = obs[:, :CARDS].reshape(-1, SUITS, RANKS)
        out = 1 - hand - obs[:, SEEN : SEEN + CARDS].reshape(-1, SUITS, RANKS)
        upto = out.cumsum(axis=2)
        played = obs[:, TRICK : TRICK + 4 * (SUITS + RANKS)].reshape(-1, 4, SUITS + RANKS)
        trick = np.einsum("kps,kpr->ksr", played[..., :SUITS], played[..., SUITS:]).reshape(-1, CARDS)
        led = obs[:, LED : LED + SUITS][:, SUIT] > 0
        best = np.where(led & (trick > 0), RANK, -1).max(axis=1, keepdims=True)
        return cls(
            length=hand.sum(axis=2)[:, SUIT],
            higher=(upto[:, :, -1:] - upto).reshape(-1, CARDS),
            lower=(upto - out).reshape(-1, CARDS),
            queen_out=out.reshape(-1, CARDS)[:, [QUEEN]] > 0,
            follows=led,
            beaten=led & (best > RANK),
            points=(trick @ POINTS)[:, None].astype(np.float32),
            last=obs[:, [IN_TRICK]] > 0.7,
        )


def hearts_heuristic() -> Heuristic:
    """Return the preferences of the player over the 52 cards."""

    def prefer(obs: Observations, mask: Mask) -> Floats:
        seen = obs.astype(np.float32)
        view = View.of(seen)
        passing, leading = seen[:, [PASSING]] > 0, ~view.follows.any(axis=1, keepdims=True)
        worth = np.where(view.follows, _following(view), _discarding(view))
        worth = np.where(passing, _passing(view), np.where(leading, _leading(view), worth))
        preferences: Floats = np.where(mask, SURE * worth, 0.0).astype(np.float32)
        return preferences

    return prefer


def _passing(view: View) -> Floats:
    short = np.maximum(0, 4 - view.length) * ~(IS_HEART | IS_SPADE)
    danger = 12.0 * IS_QUEEN + 8.0 * IS_ABOVE_QUEEN - 6.0 * IS_BELOW_QUEEN
    return np.asarray(danger + 0.5 * RANK + 0.3 * RANK * IS_HEART + short, dtype=np.float32)


def _wins(view: View) -> Floats:
    """Return the chance that nobody plays a higher card, roughly: what others have of the suit lies above or below."""
    return np.asarray(1 - view.higher / np.maximum(1, view.higher + view.lower), dtype=np.float32)


def _leading(view: View) -> Floats:
    alone = (view.higher + view.lower) == 0  # the others throw away on it what they like
    risk = 4 * _wins(view) + 4 * alone + 8 * (IS_ABOVE_QUEEN & view.queen_out) + 15 * IS_QUEEN
    search = 1.5 * (IS_BELOW_QUEEN & view.queen_out)
    return np.asarray(search - risk - 0.1 * RANK, dtype=np.float32)


def _following(view: View) -> Floats:
    duck = 5 + 0.2 * RANK + 20 * IS_QUEEN
    cost = (view.points + POINTS) * 1.0
    take_last = 0.1 * RANK - cost
    take_early = -(1 + cost) * _wins(view) - 0.1 * RANK - 8 * (IS_ABOVE_QUEEN & view.queen_out)
    return np.asarray(np.where(view.beaten, duck, np.where(view.last, take_last, take_early)), dtype=np.float32)


def _discarding(view: View) -> Floats:
    danger = 20.0 * IS_QUEEN + 10.0 * (IS_ABOVE_QUEEN & view.queen_out) + 6.0 * IS_HEART
    return np.asarray(danger + 0.4 * RANK + 0.3 * np.maximum(0, 4 - view.length), dtype=np.float32)
