"""Opponents of the current model in self-play."""

from collections.abc import Iterable

from app.events import OpponentPick


def chances(picks: Iterable[OpponentPick]) -> dict[str, float]:
    """Return the probability with which each agent is met, whatever it is picked for; the likeliest first."""
    met: dict[str, float] = {}
    for pick in picks:
        met[pick.agent] = met.get(pick.agent, 0.0) + pick.probability
    return dict(sorted(met.items(), key=lambda one: one[1], reverse=True))
