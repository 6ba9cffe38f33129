"""``flyball scenario`` before a loop runs: refusals and their texts."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from commands import invoke, refused
from recorded_run import recording, write_journal

from flyball.app.scenarios import SCENARIOS
from flyball.app.scenarios.stall import QUICK

KEY, IDLE = "tic_tac_toe_2p", "hex7_2p"
Flyball = Callable[..., Result]


@pytest.fixture
def flyball(tmp_path: Path) -> Flyball:
    """Return a function that runs commands on a run without a loop."""
    write_journal(tmp_path / "journal.sqlite", recording().events)
    return lambda *words: invoke("scenario", *words, run=tmp_path)


def test_where_there_is_no_run_nothing_is_made(tmp_path: Path) -> None:
    nowhere = invoke("scenario", "regression", run=tmp_path / "nowhere")
    assert nowhere.exit_code != 0
    assert not (tmp_path / "nowhere").exists()


def test_each_is_explained() -> None:
    told = invoke("scenario", "--help").stdout
    assert all(f"{name}:" in told for name in SCENARIOS)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ("earthquake",),
            2,
            "'earthquake' is not one of 'regression', 'stall', 'plateau', 'bad-data', 'wrong-rules', 'dead-node'",
        ),
        (("stall", "tictactoe_2p"), 4, "Did you mean tic_tac_toe_2p?"),
        (("stall", "go7_2p"), 4, "This run does not play go7_2p."),
        (("stall", IDLE), 1, f"stall can't be made now: {IDLE} has no current model yet."),
        (("regression",), 1, f"{KEY} has learned too little: its model has +5 Elo, and +150 are needed"),
        (("bad-data", KEY), 1, f"{KEY} has no current model in the store."),
        (("dead-node", KEY), 2, "dead-node strikes whichever configuration comes next: leave CONFIG out."),
        (("dead-node", IDLE), 2, "dead-node strikes whichever configuration comes next: leave CONFIG out."),
        (("dead-node",), 3, "No broker listens at"),
    ],
)
def test_what_cannot_be_is_refused(flyball: Flyball, words: tuple[str, ...], code: int, said: str) -> None:
    refused(flyball(*words), code, said)


def test_waiting_too_short_is_refused_before_anything_is_done(flyball: Flyball) -> None:
    result = flyball("stall")
    assert result.exit_code == 2
    assert "stall cannot be over within 300 s: with the settings of this run it takes at least 8 h." in result.stderr
    assert QUICK in result.stderr
    assert "--wait 0" in result.stderr
    assert flyball("stall", "--wait", "0").exit_code == 3, "then there is nothing to wait for, but nobody listens"


def test_without_a_journal_nothing_is_known(tmp_path: Path) -> None:
    assert invoke("scenario", "stall", run=tmp_path).exit_code == 3
