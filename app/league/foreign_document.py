"""Translation of a foreign ``league.json``, with names and paths of adapters instead of hashes, and other bots."""

from collections.abc import Mapping
from typing import Any

from flyball.app.core import RANDOM, UnusableFile, is_model

BOTS = {"random_bot": RANDOM, "chaos_bot": "chaos"}
"""Our names of the bots."""


def foreign_paths(document: Any) -> dict[str, str]:
    """Return the paths of checkpoints that are not hashes, by agent; none for our files and for other documents."""
    agents = document.get("agents") if isinstance(document, dict) else None
    entries = agents.items() if isinstance(agents, dict) else ()
    return {
        name: entry["path"]
        for name, entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("path"), str) and not is_model(entry["path"])
    }


def translated(document: Mapping[str, Any], hashes: Mapping[str, str]) -> dict[str, Any]:
    """Return a foreign league's file in our form.

    Bots get our names, adapters their hashes, and ratings are shifted so that the random bot is at 0. Parents that are
    not in the file are left out. ``hashes`` are those of the agents with foreign paths; agents of one hash become one.
    Raises ``UnusableFile`` for a result without a score, and ``AttributeError``, ``KeyError`` or ``TypeError`` for a
    document of another form.
    """
    names = {**BOTS, **hashes}
    agents = document["agents"]
    zero = next((agents[name].get("elo") for name in ("random_bot", RANDOM) if name in agents), None) or 0.0

    def named(name: str) -> str:
        return names.get(name, name)

    def entry(name: str, old: Mapping[str, Any]) -> dict[str, Any]:
        elo, parent = old.get("elo"), old.get("parent")
        new = dict(old) | {"elo": None if elo is None else elo - zero}
        if parent is not None:
            new["parent"] = named(parent) if parent in agents and named(parent) != named(name) else None
        return new | ({"path": hashes[name]} if name in hashes else {})

    about = document.get("metadata", {})
    best = about.get("best_elo")
    renamed = {
        "best_elo": None if best is None else best - zero,
        "best_agent": named(about.get("best_agent")),
    }
    return {
        **document,
        "agents": {named(name): entry(name, old) for name, old in agents.items()},
        "history": [
            {
                **match,
                "p1": named(match["p1"]),
                "p2": named(match["p2"]),
                "result": _result(match.get("result")),
            }
            for match in document.get("history", ())
            if named(match["p1"]) != named(match["p2"])  # games between clones do not inform ratings
        ],
        "metadata": {**about, **renamed},
    }


def _result(result: Any) -> Any:
    """Return the games and points of ``p1``. A number is the score of one game, in [0, 1]."""
    if isinstance(result, bool) or not isinstance(result, int | float | dict):
        raise UnusableFile(
            f"{result!r} is no result of a league's history.",
            hint='Write the score of p1 in [0, 1], or for several games {"games": 10, "points": 6.5}.',
        )
    return result if isinstance(result, dict) else {"games": 1, "points": result}
