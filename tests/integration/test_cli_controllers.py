"""``flyball controllers``: what controllers watch and decided."""

import json
from pathlib import Path

import pytest
from commands import invoke
from generated_run import generated, write_generated

from flyball.app.cli.group import EXIT_CODES
from flyball.app.events import ModelPromoted

KEY = "tic_tac_toe_2p"
EVENTS = tuple(generated(2000, seed=2))
PROMOTED = [event for event in EVENTS if isinstance(event.data, ModelPromoted) and event.subject == KEY]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_generated(folder / "journal.sqlite", EVENTS)
    return folder


def test_json_has_rules_counts_and_the_latest_decisions(run: Path) -> None:
    done = invoke("controllers", KEY, "--json", "-n", "2", run=run)
    assert done.exit_code == 0, done.stderr
    reports = {report["name"]: report for report in json.loads(done.stdout)}
    lifecycle = reports["ModelLifecycleCoordinator"]
    assert lifecycle["knobs"] == ["promotion", "rollback"]
    assert lifecycle["emitted"]["MODEL_PROMOTED"] == len(PROMOTED) - 1, "the initial model"
    assert [decision["event"]["id"] for decision in lifecycle["decisions"]] == [e.id for e in PROMOTED[-1:-3:-1]]
    (rows,) = reports["TrainingTrigger"]["watched"][KEY]
    assert (rows["setting"], rows["threshold"], rows["unit"]) == (f"games.{KEY}.rows_per_training", 8192, "rows")
    assert rows["progress"] == pytest.approx(min(1.0, rows["value"] / 8192))


def test_text_shows_every_rule_of_one_configuration(run: Path) -> None:
    text = invoke("controllers", KEY, run=run).stdout
    assert text.count("quality of its data") == 2
    assert "feedback.stall.velocity" in text
    assert f"MODEL_PROMOTED {len(PROMOTED) - 1}" in text


def test_text_shows_the_nearest_rule_of_all_configurations(run: Path) -> None:
    text = invoke("controllers", run=run).stdout
    rules = [line for line in text.splitlines() if line.startswith("  [")]
    assert len(rules) == len({line.split("]")[1] for line in rules}) == 7, "one for each controller that watches"
    assert all("_2p: " in line or "_3p: " in line for line in rules)


def test_unknown_configuration_is_refused(run: Path) -> None:
    done = invoke("controllers", "tic_tac_to_2p", run=run)
    assert done.exit_code == EXIT_CODES["unknown"]
    assert "tic_tac_toe_2p" in done.stderr
