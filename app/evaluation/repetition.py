"""Detection of shards that repeat the games of earlier ones.

Games repeat by themselves where a game is small or its players are sure of themselves, so a count of repeated games
says nothing. What a repeated game says depends on how probable it was: each is a likelihood ratio of "copied" against
"newly played", the probability of the latter being that of its moves under the policy that played, which is recorded.

Two ways of copying are considered, each of which leaves half of the games alone:

- from a bag: any game of any earlier shard, n of M of them being this one: 1/2 + 1/2 (n / M) / p;
- in place: the game at the same place of one earlier shard: 1/2 + 1/2 / p.

The evidence is the logarithm of their mixture (half from a bag, half in place, the shards alike). For a shard that was
newly played the expectation of the ratio is at most 1 whatever came before, so that it exceeds x with a probability of
at most 1/x (Markov's inequality; V. Vovk and R. Wang, "E-values: Calibration, combination and applications", 2021).
Chance and opponents, whose probabilities a shard does not record, are taken for certain: p is then too large, and the
evidence too small.
"""

from collections import Counter
from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

Games = Sequence[bytes]
"""The games of a shard in order, each in a form that is equal for equal games."""

FALSE_ALARMS = 1e-9
"""Largest share of newly played shards that are taken for copies."""

CERTAIN = -log(FALSE_ALARMS)
"""Evidence, nats, from which on a shard is taken for a copy."""

Floats = NDArray[np.float64]


def repetition_evidence(games: Games, log_probs: Floats, earlier: Sequence[Games]) -> float:
    """Return the evidence in nats that ``games`` are copies of ``earlier`` ones; 0 where there are none.

    Args:
        games: those of the shard in question.
        log_probs: [G] log-probability of each game under the policy that played it, nats.
        earlier: the games of earlier shards.
    """
    known = Counter(game for shard in earlier for game in shard)
    if not known:
        return 0.0
    total = sum(known.values())
    share = np.array([known[game] / total for game in games])
    bag = _ratio(share, log_probs)
    in_place = [_ratio(_same_place(games, shard), log_probs) for shard in earlier]
    weights = [log(1 / 2)] + [log(1 / 2 / len(earlier))] * len(earlier)
    return float(np.logaddexp.reduce(np.add(weights, [bag, *in_place])))


def repeated_games(games: Games, earlier: Sequence[Games]) -> int:
    """Count the games that are also among earlier ones."""
    known = {game for shard in earlier for game in shard}
    return sum(game in known for game in games)


def _same_place(games: Games, shard: Games) -> Floats:
    """Tell [G] which games are those at the same place of another shard, as 1 or 0."""
    same = [first == second for first, second in zip(games, shard, strict=False)]
    return np.array(same + [False] * (len(games) - len(same)), dtype=np.float64)


def _ratio(copied: Floats, log_probs: Floats) -> float:
    """Return the log of the product of 1/2 + 1/2 ``copied`` / p over all games."""
    with np.errstate(divide="ignore"):  # the log of 0 is -inf, as it should be
        surplus = np.log(copied) - log_probs
    return float((np.logaddexp(0.0, surplus) - log(2)).sum())
