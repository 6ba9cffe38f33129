"""One game between two players, watched decision by decision."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from selfplay_rig import CONFIG, put_model

from flyball.app.api.watch_job import watch
from flyball.app.api.watching import Progress, WatchedGame
from flyball.app.config import RunFolder
from flyball.app.core import BadUsage
from flyball.app.games import open_table
from flyball.app.play.matches import MatchPlan, play_match
from flyball.app.play.players import load_player
from flyball.app.store import open_store

KEY = str(CONFIG.key)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    put_model(folder.path / "store")
    folder.settings.write_text(f'[games.{KEY}]\nbackend = "policy_gradient"\nnetwork.kind = "mlp"\n')
    return folder.path


def model_in(run: Path) -> str:
    (model,) = open_store(str(run / "store")).keys()
    return model


def watched(run: Path, player: str, against: str, **more: Any) -> tuple[WatchedGame, list[Progress]]:
    reports: list[Progress] = []
    spec = {"run": str(run), "config": KEY, "player": player, "against": against, **more}
    result = watch(spec, lambda report: reports.append(Progress.model_validate(report)))
    return WatchedGame.model_validate(result), reports


def test_watched_game_is_that_of_a_match_told_by_decision(run: Path):
    model = model_in(run)
    result, _ = watched(run, model, "heuristic", seat=1, seed=4)
    store, game, settings = open_store(str(run / "store")), open_table(CONFIG, 0).spec, CONFIG.evaluation
    hero, opponent = load_player(store, model, game), load_player(store, "heuristic", game)
    plan = MatchPlan(2, 4, settings.temperature, settings.opening_plies)
    match = play_match(CONFIG, hero, opponent, plan)
    returns = result.returns[1]
    assert match.scores[1] == (returns + 1) / 2
    assert result.player == model
    result, reports = watched(run, model_in(run), "random", seed=1)
    told = [action for report in reports for action in report.history]
    assert tuple(told) == result.history[: len(told)]
    ends = [report.decision.played for report in reports]
    assert all(before < after for before, after in pairwise(ends))
    for report in reports:
        decision = report.decision
        assert result.history[decision.played] == decision.action  # in connect four, seats number actions like the game
        assert decision.seat == decision.played % 2


def test_networks_have_values_and_bots_do_not(run: Path):
    _, reports = watched(run, model_in(run), "random", seat=0)
    for report in reports:
        assert (report.decision.value is not None) == (report.decision.seat == 0)
        chances = [probability for _, probability in report.decision.top]
        assert chances == sorted(chances, reverse=True)
        assert sum(chances) <= 1 + 1e-5
        assert len(chances) <= 5
    _, reports = watched(run, "mcts:2", "random")
    assert {report.decision.top for report in reports if report.decision.seat == 0} == {()}


def test_search_shows_its_policy_and_seats_are_checked(run: Path):
    model = model_in(run)
    result, reports = watched(run, f"{model}+8", model, seed=2)
    assert result.player == f"{model}+8"
    decision = reports[-1].decision
    assert decision.value is not None
    assert decision.top
    with pytest.raises(BadUsage, match="no seat 2"):
        watched(run, "random", "random", seat=2)
