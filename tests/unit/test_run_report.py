"""The final report of a training run: contents and figures."""

from dataclasses import replace
from pathlib import Path

import pytest
from iterations import StillClock, iteration
from scipy import stats

from flyball.app.config import GAMES, PipelineSettings
from flyball.app.core import ConfigKey, p_text
from flyball.app.games import open_table
from flyball.app.train.iteration import Evaluation, outcome_text
from flyball.app.train.report import draw_curves, p_value, summary_text, write_report
from flyball.app.train.sinks import CsvLog, read_log
from flyball.app.train.state import Best, RunHead, RunState

HEAD = RunHead(config="hearts_4p", seed=3, settings=PipelineSettings())
FOUND = Evaluation("normal", 4000, outcome=0.05, stderr=0.01, win_share=0.3, points=5.5, moon_rate=0.021)
SPEC = replace(open_table(GAMES[ConfigKey("hearts_4p")], 0).spec, outcome_scale=1.0)
STATE = RunState(
    iteration=3, model="a" * 64, games=768, best=Best.of(2, "b" * 64, replace(FOUND, games=400)), recoveries=0
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    log = CsvLog(tmp_path / "training_log.csv", StillClock())
    for number in (1, 2, 3):
        log.write(iteration(number, best=number == 2, evaluation=None if number == 1 else FOUND))
    return tmp_path / "training_log.csv"


def test_the_p_value_is_students_over_the_rotations() -> None:
    assert p_value(FOUND, 4) == pytest.approx(2 * stats.t.sf(5, 999))
    worse = replace(FOUND, outcome=-0.05)
    assert p_value(worse, 4) == p_value(FOUND, 4)
    assert p_value(replace(FOUND, outcome=0.0), 4) == 1
    assert p_value(replace(FOUND, outcome=0.0, stderr=0.0), 4) == 1
    assert p_value(replace(FOUND, outcome=1.0, stderr=0.0), 4) == 0


def test_summary_says_how_it_went_by_columns_of_the_game(log: Path) -> None:
    text = summary_text(HEAD, STATE, [FOUND], SPEC, read_log(log))
    assert text.startswith("# hearts_4p, seed 3\n")
    assert "3 iterations, 768 games, 33,000 decisions, 12 s (10 s of processor)." in text
    assert f"Iteration 2, model `{'b' * 64}`" in text
    assert "| normal | 4,000 | +0.0500 [+0.0304, +0.0696] | 6.8e-07 | 0.300 | 5.50 | 2.10% |" in text
    assert "discarded" not in text
    assert "2 updates diverged" in summary_text(HEAD, STATE.replace(recoveries=2), [], SPEC, [])
    plain = replace(FOUND, points=None, moon_rate=None)
    best = Best.of(2, "b" * 64, plain)
    text = summary_text(HEAD, STATE.replace(best=best), [plain], SPEC, [])
    assert "points" not in text
    assert "| normal | 4,000 | +0.0500 [+0.0304, +0.0696] | 6.8e-07 | 0.300 |" in text
    assert "No final evaluation" in summary_text(HEAD, STATE, [], SPEC, [])


def test_report_has_outcomes_in_the_units_of_the_game() -> None:
    chips = replace(SPEC, outcome_scale=28.0)
    text = summary_text(HEAD, STATE, [FOUND], chips, [])
    assert "| normal | 4,000 | +1.40 [+0.85, +1.95] | 6.8e-07 | 0.300 | 5.50 | 2.10% |" in text
    assert "It was chosen for outcome +1.40 ± 0.28, 5.50 points a hand in 400 games" in text
    assert text.rstrip().endswith("Those in the log, in JSON and in settings are from -1 to 1, and 1 is 28 units.")
    assert "own units" not in summary_text(HEAD, STATE, [FOUND], SPEC, [])
    assert FOUND.text(28.0).startswith("5.50 points a hand, outcome +1.40 ± 0.28, win share 0.300 in 4000 games")


@pytest.mark.parametrize(
    ("scale", "shown"), [(1.0, "+0.0500"), (0.5, "+0.0250"), (1.5, "+0.075"), (10.0, "+0.500"), (10_000.0, "+500")]
)
def test_outcome_keeps_its_precision_in_any_unit(scale: float, shown: str) -> None:
    assert outcome_text(0.05, scale) == shown


@pytest.mark.parametrize(("chance", "shown"), [(0.0, "< 1e-300"), (4e-310, "< 1e-300"), (2e-300, "2e-300"), (1, "1")])
def test_no_p_value_is_shown_as_nought(chance: float, shown: str) -> None:
    assert p_text(chance) == shown
    certain = replace(FOUND, stderr=1e-9)
    assert "+0.0500] | < 1e-300 | 0.300" in summary_text(HEAD, STATE, [certain], SPEC, [])


def test_the_report_has_the_curves_and_every_setting(tmp_path: Path, log: Path) -> None:
    assert draw_curves(tmp_path, read_log(log), 1.0)
    drawing = (tmp_path / "curves.svg").read_text()
    for title in ("outcome against normal, 95%", "policy loss", "entropy, nats", "best so far", "kl_div"):
        assert title in drawing, title
    write_report(tmp_path, HEAD, "# summary\n", curves=True)
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# summary\n")
    assert "![curves](curves.svg)" in text
    assert "| ppo.clip_epsilon | 0.2 |" in text
    write_report(tmp_path, HEAD, "# summary\n", curves=False)
    assert "curves.svg" not in (tmp_path / "report.md").read_text()


def test_curves_have_outcomes_in_the_units_of_the_game(tmp_path: Path, log: Path) -> None:
    """An outcome of 0.05 is 50 of 1,000 units, which the labels of the axis reach."""
    assert draw_curves(tmp_path, read_log(log), 1000.0)
    assert ">60</text>" in (tmp_path / "curves.svg").read_text()


def test_curves_are_those_of_the_backend(tmp_path: Path) -> None:
    one = tmp_path / "one.csv"
    assert not draw_curves(tmp_path, read_log(one), 1.0)
    CsvLog(one, StillClock()).write(iteration(1))
    assert not draw_curves(tmp_path, read_log(one), 1.0), "a run of one iteration"
    assert not (tmp_path / "curves.svg").exists()
    metrics = {"policy_loss": 1.2, "value_loss": 0.5, "divergence": 0.4, "replayed_rows": 500.0}
    log = CsvLog(tmp_path / "log.csv", StillClock())
    for number in (1, 2):
        log.write(iteration(number, metrics=metrics))
    assert draw_curves(tmp_path, read_log(tmp_path / "log.csv"), 1.0)
    drawing = (tmp_path / "curves.svg").read_text()
    assert "divergence from the searches, nats" in drawing
    assert "replayed rows" in drawing
    assert "kl_div" not in drawing
