"""Matchmaking probabilities of a recorded run, and the opponents drawn."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from flyball.app.events import Event, MatchmakingUpdated, OpponentSampled, Payload

BINS = 10
CRITICAL = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52, 6: 22.46, 7: 24.32, 8: 26.12, 9: 27.88}
"""Chi-squared, by degrees of freedom, that chance exceeds once in a thousand times."""


def draws_of(events: Iterable[Event[Payload]]) -> list[tuple[dict[tuple[str, str], float], tuple[str, str]]]:
    """Return every draw of a run: its probabilities, and the drawn opponent.

    Opponents are (category, agent). The probabilities are those that the scheduler had read when it requested games,
    which is the time of its request.
    """
    decided: dict[str, list[tuple[tuple[datetime, int], MatchmakingUpdated]]] = {}
    found, positions = [], dict[str | None, int]()
    for event in events:
        data: Any = event.data
        positions[event.id] = event.sequence
        if isinstance(data, MatchmakingUpdated):
            decided.setdefault(event.subject, []).append(((event.recordedtime, event.sequence), data))
        elif isinstance(data, OpponentSampled):
            drawn = event.envelope.time, positions[event.envelope.causationid]  # at one time the cause decides
            latest = [decision for recorded, decision in decided[event.subject] if recorded <= drawn][-1]
            assert latest.model == data.model
            weights = {(pick.category, pick.agent): pick.probability for pick in latest.picks}
            found += [(weights, (draw.category, draw.agent)) for draw in data.opponents]
    return found


def chi_squared(observed: Counter[Any], expected: Counter[Any]) -> tuple[float, int]:
    """Return the chi-squared statistic and its degrees of freedom.

    Outcomes that are expected less than five times are merged into one.
    """
    rare = {key for key, count in expected.items() if count < 5}
    cells = [(observed[key], expected[key]) for key in expected.keys() - rare]
    if rare:
        cells.append((sum(observed[key] for key in rare), sum(expected[key] for key in rare)))
    return sum((seen - wanted) ** 2 / wanted for seen, wanted in cells), len(cells) - 1


def compared(events: Iterable[Event[Payload]]) -> dict[str, tuple[float, int]]:
    """Return chi-squared and its degrees of freedom, for categories and picks.

    The picks of a draw are laid side by side, and each falls into one of ten bins by its place, because the agents
    among the picks change from decision to decision.
    """
    categories, wanted_categories = Counter[str](), Counter[Any]()
    bins, wanted_bins = Counter[int](), Counter[Any]()
    draws = draws_of(events)
    for weights, drawn in draws:
        left = 0.0
        for pick, probability in weights.items():
            place = min(BINS - 1, int((left + probability / 2) * BINS))
            left += probability
            wanted_categories[pick[0]] += probability  # type: ignore[assignment]
            wanted_bins[place] += probability  # type: ignore[assignment]
            if pick == drawn:
                categories[pick[0]] += 1
                bins[place] += 1
    assert categories.total() == len(draws), "somebody was drawn whom matchmaking did not name"
    return {"categories": chi_squared(categories, wanted_categories), "picks": chi_squared(bins, wanted_bins)}
