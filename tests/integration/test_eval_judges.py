"""``flyball eval`` and ``flyball.evaluate`` with judges, and the share of optimal moves."""

import json
from pathlib import Path

import pytest
from commands import invoke, succeeded

import flyball
from flyball.app.config import GAMES
from flyball.app.core import BadUsage, ConfigKey


def test_judges_are_opponents_and_the_model_itself() -> None:
    asked = ("eval", "--config", "tic_tac_toe_2p", "--games", "20")
    result = succeeded(invoke(*asked, "--model", "mcts:50", "--against", "solver,random"))
    solver, random = json.loads(result.stdout)["results"]
    assert (solver["opponent"], random["opponent"]) == ("solver", "random")
    assert solver["wins"] <= random["wins"]
    assert invoke(*asked, "--model", "solver", "--against", "mcts:50").exit_code == 0


def test_evaluations_by_an_operator_have_no_deadline() -> None:
    usual = GAMES[ConfigKey("tic_tac_toe_2p")]
    hurried = usual.replace(evaluation=usual.evaluation.replace(batch_seconds=1e-3))
    (found,) = flyball.evaluate("random", hurried, against="mcts:1000", games=4).results
    assert found.games == 4


def test_optimal_writes_shares_with_intervals() -> None:
    result = succeeded(invoke("eval", "--config", "tic_tac_toe_2p", "--model", "random", "--optimal", "200"))
    written = json.loads(result.stdout)
    assert written["temperature"] == 0
    assert written["optimal"]["all"]["n"] == 200
    assert 0 < written["optimal"]["hard"]["n"] < 200
    api = flyball.optimal_moves("random", "tic_tac_toe_2p", positions=200)
    assert api.model_dump(mode="json") == written


def test_exploitability_of_the_random_bot_is_published(tmp_path: Path) -> None:
    """The exploitability of uniform play in Kuhn poker is published."""
    (tmp_path / "flyball.toml").write_text('configs = ["kuhn_2p"]\n[games.kuhn_2p]\ngame = "kuhn_poker"\nplayers = 2\n')
    asked = ("--run", str(tmp_path), "eval", "--config", "kuhn_2p", "--model", "random", "--exploitability", "--json")
    result = succeeded(invoke(*asked, "--temperature", "1"))
    written = json.loads(result.stdout)
    assert written["exploitability"] == pytest.approx(0.458333, abs=1e-6)
    assert written["nash_conv"] == pytest.approx(0.916667, abs=1e-6)
    assert flyball.exploitability("random", "kuhn_2p", temperature=1, run=tmp_path).model_dump(mode="json") == written


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tic_tac_toe_2p", "--exploitability", "--against", "random"), "--exploitability plays none"),
        (("tic_tac_toe_2p", "--exploitability", "--optimal", "20"), "are two judges"),
        (("hex7_2p", "--exploitability"), "not played by OpenSpiel's rules"),
        (("tic_tac_toe_2p", "--optimal", "20", "--against", "random"), "--against is of matches"),
        (("hex7_2p", "--optimal", "20"), "No solver knows hex"),
        (("tic_tac_toe_2p", "--against", "mcts:many"), "There is no judge 'mcts:many'"),
        (("hearts_4p", "--against", "mcts:10"), "does not play hearts"),
    ],
)
def test_what_cannot_be_judged_is_refused(arguments: tuple[str, ...], said: str) -> None:
    result = invoke("eval", "--model", "random", "--config", *arguments)
    assert result.exit_code != 0
    assert said in result.output


def test_judges_make_no_experience(tmp_path) -> None:
    result = invoke(
        "experience", "export", str(tmp_path / "f"), "--game", "tic_tac_toe_2p", "--hands", "2", "--model", "solver"
    )
    assert result.exit_code != 0
    assert "solver is a judge" in str(result.output) + str(result.exception)


def test_judges_have_no_game_of_their_own() -> None:
    with pytest.raises(BadUsage, match="bot of many games"):
        flyball.optimal_moves("solver")
