"""``flyball league`` on a recorded run, and on games made up by hand."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from golden_runs import load
from leagues import model
from recorded_run import write_journal

from app.cli import main
from app.dashboard import LeagueView
from app.events import EloUpdated, EvaluationCompleted
from app.league import PairTotals, load_league, total


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_journal(tmp_path / "journal.sqlite", load("recorded"))
    return tmp_path


def league(run: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["--run", str(run), "league", *words], prog_name="flyball")


def test_every_league_of_the_run_is_shown_with_its_members(run: Path) -> None:
    shown = league(run)
    assert shown.exit_code == 0, shown.output
    assert "tic_tac_toe_2p" in shown.stdout
    assert "connect_four_2p" in shown.stdout
    assert "built in" in shown.stdout
    assert "current" in shown.stdout


def test_json_holds_members_matchmaking_and_the_pairwise_matrix(run: Path) -> None:
    views = json.loads(league(run, "connect_four_2p", "--json").stdout)
    assert list(views) == ["connect_four_2p"]
    view = views["connect_four_2p"]
    members = view["members"]
    assert sum(member["champion"] for member in members) == 1
    assert sum(pick["probability"] for pick in view["matchmaking"]) == pytest.approx(1)
    assert sum(member["met"] for member in members) <= 1 + 1e-9
    matrix = view["matrix"]
    assert len(matrix) == len(members)
    for row in range(len(members)):
        for column in range(len(members)):
            assert matrix[row][row] is None
            if matrix[row][column] is not None and row != column:
                assert matrix[row][column] + matrix[column][row] == pytest.approx(1)


def test_ratings_are_those_that_the_evaluator_told_last(run: Path) -> None:
    members = json.loads(league(run, "connect_four_2p", "--json").stdout)["connect_four_2p"]["members"]
    told = {"random": 0.0}
    for event in load("recorded"):
        if event.subject == "connect_four_2p" and isinstance(event.data, EvaluationCompleted):
            told[event.data.model] = told.get(event.data.model, event.data.elo)
        elif event.subject == "connect_four_2p" and isinstance(event.data, EloUpdated):
            told |= {one.agent: one.elo for one in event.data.ratings}
    assert any(member["kind"] == "checkpoint" for member in members)
    for member in members:
        assert member["elo"] == told[member["agent"]]
        lower, upper = member["interval"]
        assert lower <= member["elo"] <= upper


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_a_league_is_drawn(run: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"league{suffix}"
    assert league(run, "connect_four_2p", "--plot", str(path)).exit_code == 0
    assert path.stat().st_size > 5_000


def test_an_exported_league_is_read_back(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "league.json"
    assert league(run, "connect_four_2p", "--export", str(path)).exit_code == 0
    document = json.loads(path.read_bytes())
    assert {"agents", "history", "metadata"} <= set(document)
    members = json.loads(league(run, "connect_four_2p", "--json").stdout)["connect_four_2p"]["members"]
    known, _ = load_league(path.read_bytes(), path.name)
    assert {agent.id for agent in known.active} <= {member["agent"] for member in members}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["hex9_9p"], 4, "There is no configuration"),
        (["hex7_2p"], 3, "has no league yet"),
        (["--plot", "x.svg"], 2, "Say of which configuration"),
    ],
)
def test_what_cannot_be_shown_is_said(run: Path, words: list[str], code: int, said: str) -> None:
    refused = league(run, *words)
    assert refused.exit_code == code
    assert said in refused.stderr


def test_a_planted_circle_is_found() -> None:
    names = [model(step) for step in (1, 2, 3)]
    view = LeagueView(
        pairs=total(
            PairTotals.of_games(one, other, 140, 0, 60) for one, other in zip(names, names[1:] + names[:1], strict=True)
        )
    )
    cycle = view.cycle()
    assert cycle is not None
    assert set(cycle.agents) == set(names)
    assert LeagueView(pairs=(PairTotals.of_games(names[0], names[1], 140, 0, 60),)).cycle() is None
