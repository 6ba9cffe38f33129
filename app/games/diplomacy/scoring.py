"""Scores of a game: pure functions of its final centres and units."""

from collections.abc import Sequence

RANK_BONUS = (50.0, 25.0, 15.0, 10.0, 5.0, 2.0, 0.0)
"""Points for the first, second, … place in ``placed_scores``."""

SOLO, ELIMINATED = 50.0, -30.0
"""Further points in ``placed_scores``."""

LEAST_PLACED = ELIMINATED
"""No power scores less in ``placed_scores``."""


def material_scores(counts: Sequence[tuple[int, int]], win_bonus: float = 5.0, bonus_from: int = 10) -> list[float]:
    """Return each power's score from its centres and units.

    A centre gives a point, a unit half a point, and a clear leader gets a bonus.

    Args:
        counts: centres and units of each power.
        win_bonus: points for the sole leader in centres.
        bonus_from: the centres that a leader needs to get the bonus.
    """
    scores = [centers + 0.5 * units for centers, units in counts]
    most = max(centers for centers, _ in counts)
    leaders = [power for power, (centers, _) in enumerate(counts) if centers == most]
    if most >= bonus_from and len(leaders) == 1:
        scores[leaders[0]] += win_bonus
    return scores


def placed_scores(counts: Sequence[tuple[int, int]], to_win: int = 18) -> list[float]:
    """Return each power's score by its place.

    A score is 2 for each centre, 0.2 for each unit, a bonus by rank, 50 for a solo, and -30 for an eliminated power.
    Powers of one rank share the bonuses of the places that they take together. Places follow from centres, then units.
    """
    ranking = ranks([centers + units / 100 for centers, units in counts])
    scores = []
    for rank, (centers, units) in zip(ranking, counts, strict=True):
        shared = range(rank - 1, rank - 1 + ranking.count(rank))
        bonus = sum(RANK_BONUS[k] for k in shared if k < len(RANK_BONUS)) / len(shared)
        score = 2 * centers + 0.2 * units + bonus
        if centers >= to_win:
            score += SOLO
        if not centers and not units:
            score += ELIMINATED
        scores.append(score)
    return scores


def ranks(scores: Sequence[float]) -> list[int]:
    """Return the rank of each score, the best 1. Equal scores share the better rank."""
    return [1 + sum(other > score for other in scores) for score in scores]


def shares(scores: Sequence[float]) -> list[float]:
    """Return each score's part of their sum. The parts are equal if the sum is 0. Scores must not be negative."""
    total = sum(scores)
    return [score / total if total else 1 / len(scores) for score in scores]


def zero_sum(parts: Sequence[float]) -> list[float]:
    """Return parts of a whole as outcomes that sum to 0. Outcomes are from -1/(P - 1) to 1."""
    return [(part * len(parts) - 1) / (len(parts) - 1) for part in parts]
