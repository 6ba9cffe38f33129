"""Summaries of hero matches: by seat, without pairs of one agent."""

import json

import numpy as np
import pytest

from flyball.app.api import league_import
from flyball.app.api.runs import RunLocation
from flyball.app.config import RunFolder
from flyball.app.core import UnusableFile
from flyball.app.language.hero_match import seated, summary
from flyball.app.language.rollout import TextOutcomes
from flyball.app.league.document import DamagedLeague, load_league
from flyball.app.league.foreign_document import foreign_paths, translated

POWERS = ("A", "B", "C", "D")


def summarised(tables: list[tuple[str, ...]], returns: list[list[float]], cut: bool = False):
    scores = np.array(returns, dtype=np.float32)
    games = len(tables)
    lengths, openings = np.ones(games, np.int64), np.zeros(games, np.int64)
    outcomes = TextOutcomes(scores, 10 * scores, np.full(games, cut), lengths, openings, [[]] * games)
    return summary(tables, "hero", outcomes, POWERS, range(games))


def test_hero_is_compared_and_rated_with_others_only() -> None:
    """One hero seat beats both others; the other loses to both."""
    tables = seated([0, 2], [("x", "y", "z"), ("x", "y", "hero")], "hero", players=4)
    assert tables == [("hero", "x", "y", "z"), ("y", "hero", "hero", "x")]
    found = summarised([("hero", "x", "y", "hero")], [[1.0, 0.2, 0.2, -1.4]])
    assert (found.score.mean, found.score.n, found.wins) == (0.5, 1, 1)
    assert {one.agent: (one.seats, one.rank) for one in found.agents} == {"hero": (2, 2.5), "x": (1, 2), "y": (1, 2)}
    rated = {one.agent: one.elo for one in found.agents}
    assert (rated["hero"], rated["x"]) == (0, pytest.approx(rated["y"]))
    assert {power: one.points for power, one in found.powers.items()} == pytest.approx({"A": 10, "D": -14})
    tables = [("hero", "random", "chaos", "chaos")] * 6
    found = summarised(tables, [[0.6, -0.6, 0.0, 0.0]] * 6)
    rated = {one.agent: one.elo for one in found.agents}
    assert rated["hero"] > rated["chaos"] > rated["random"] == 0
    assert (found.wins, found.score.mean) == (6, 1.0)
    assert summarised(tables, [[0.6, -0.6, 0.0, 0.0]] * 6, cut=True).wins == 0


@pytest.mark.parametrize("result", [None, "won", True])
def test_result_without_a_score_is_refused(result: object) -> None:
    document = {"agents": {}, "history": [{"step": 1, "p1": "a", "p2": "b", "result": result}], "metadata": {}}
    with pytest.raises(UnusableFile, match="no result"):
        translated(document, {})
    for ours in ({"agents": {"a" * 64: {"path": "a" * 64}, "random": {"path": None}}}, [], {"agents": 3}):
        assert foreign_paths(ours) == {}


def adapter(name: str, **entry: object) -> dict[str, object]:
    return {"type": "checkpoint", "path": f"grpo/{name}", "elo": 10, "matches": 1, "step": 1, **entry}


def test_adapters_with_the_same_weights_are_one_agent() -> None:
    document = {
        "agents": {"v1": adapter("v1"), "v2": adapter("v2", parent="v1")},
        "history": [{"step": 1, "p1": "v1", "p2": "v2", "result": 1.0}],
        "metadata": {"run_name": "grpo", "best_elo": 10, "best_agent": "v1"},
    }
    found, _ = load_league(json.dumps(translated(document, {"v1": "a" * 64, "v2": "a" * 64})).encode(), "league.json")
    assert [*found.agents] == ["a" * 64]
    assert found.games == {}


@pytest.mark.parametrize(
    "changes",
    [{"history": [{"step": 1}]}, {"history": 3}, {"metadata": None}, {"agents": {"v1": adapter("v1"), "v2": None}}],
)
def test_foreign_file_of_another_form_is_no_league(changes, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(league_import, "_store_adapters", lambda folders, *_: dict.fromkeys(folders, "a" * 64))
    document = {"agents": {"v1": adapter("v1")}, "history": [], "metadata": {"run_name": "grpo"}}
    (tmp_path / "league.json").write_text(json.dumps(document | changes))
    with pytest.raises(DamagedLeague, match=r"league\.json is not a league"):
        league_import.read_league(
            tmp_path / "league.json", None, "diplomacy_small_3p", RunLocation(RunFolder(tmp_path), None)
        )


@pytest.mark.parametrize(("bots", "zero"), [({"random_bot": {"elo": 800}}, 800), ({"random_bot": {}}, 0), ({}, 0)])
def test_foreign_ratings_are_above_the_random_bots(bots: dict[str, object], zero: int) -> None:
    document = {
        "agents": {**bots, "v1": adapter("v1", elo=1200), "v2": adapter("v2", elo=None)},
        "metadata": {"best_elo": 1200, "best_agent": "v1"},
    }
    found = translated(document, {})
    assert (found["agents"]["v1"]["elo"], found["agents"]["v2"]["elo"]) == (1200 - zero, None)
    assert found["metadata"]["best_elo"] == 1200 - zero
