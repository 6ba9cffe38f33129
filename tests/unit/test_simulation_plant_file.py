"""Plant files: errors name the setting at fault, and fits recover the plant of a run."""

import re
from importlib.resources import files
from pathlib import Path

import pytest
from simulated_settings import simulated_settings

from flyball.app.comparison.fitting import Observed, fit_curve, fit_times, observe, plant_text, without_troubles
from flyball.app.config import GAMES
from flyball.app.events import Event
from flyball.app.simulation import ARMS, BadPlant, Simulation, load_plant
from flyball.app.simulation.settings import MachineLimits

TEXT = (files("flyball.app.simulation") / "plant.toml").read_text(encoding="utf-8")


def refused(path: Path, pattern: str, instead: str) -> BadPlant:
    """Return the error of loading the default plant with one change."""
    text, changes = re.subn(pattern, instead, TEXT, count=1, flags=re.MULTILINE)
    assert changes
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadPlant) as caught:
        load_plant(path)
    return caught.value


@pytest.mark.parametrize("shares", ["[0.9, 0.1]", "[-0.1, 0.1]", "[0.5, 1.5]", "[0.1, nan]", "[0.1]", "[true, 1.0]"])
def test_shares_ascend_from_0_to_1(tmp_path: Path, shares: str) -> None:
    error = refused(tmp_path / "plant.toml", r"^sudden_share = \[.*?\]", f"sudden_share = {shares}")
    assert error.message.startswith("regressions.sudden_share")
    assert str(tmp_path / "plant.toml") in error.message
    error = refused(tmp_path / "plant.toml", r"severity = \[.*?\]", f"severity = {shares}")
    assert error.message.startswith("troubles.dead_nodes.severity")


@pytest.mark.parametrize(
    ("pattern", "instead", "unknown", "meant"),
    [
        ("^rows_per_lesson", "rows_per_leson", "learning.rows_per_leson", "learning.rows_per_lesson"),
        (r"^\[time\]", "[tme]", "tme", "time"),
        ("per_day = 0.05", "per_dy = 0.05", "troubles.dead_nodes.per_dy", "troubles.dead_nodes.per_day"),
        (
            "^jitter_elo = 36.0",
            "jiter_elo = 36.0",
            "configs.connect_four_2p.jiter_elo",
            "configs.connect_four_2p.jitter_elo",
        ),
        (r"^\[configs.connect_four_2p", "[configs.conect_four_2p", "configs.conect_four_2p", "configs.connect_four_2p"),
    ],
)
def test_a_misspelt_word_is_named_and_not_the_one_missing_for_it(
    tmp_path: Path, pattern: str, instead: str, unknown: str, meant: str
) -> None:
    error = refused(tmp_path / "plant.toml", pattern, instead)
    assert error.message == f"Unknown setting {unknown!r} in {tmp_path / 'plant.toml'}."
    assert error.hint == f"Did you mean {meant}?"


def test_words_and_files_at_fault_are_named(tmp_path: Path) -> None:
    error = refused(tmp_path / "plant.toml", "^healthy", "wxyz = 1\nhealthy")
    assert error.hint == "There are: checked_games, healthy, noise_sd."
    error = refused(tmp_path / "plant.toml", "^rows_per_lesson.*$", "")
    assert error.message == f"learning.rows_per_lesson in {tmp_path / 'plant.toml'}: Field required."
    with pytest.raises(BadPlant, match="There is no plant file") as absent:
        load_plant(tmp_path / "absent.toml")
    with pytest.raises(BadPlant, match="cannot be read") as odd:
        load_plant(tmp_path / ("x" * 300))
    assert "TOML" not in f"{absent.value.hint}{odd.value.hint}"


KEY = "tic_tac_toe_2p"
CONFIG = GAMES[KEY]


@pytest.fixture(scope="module")
def observed() -> Observed:
    """Return a simulated day without troubles, plateaus or sudden losses, with one inspector as in a study's runs."""
    plant = load_plant()
    calm = plant.plateaus.replace(per_config=0.0)
    steady = plant.regressions.replace(sudden=0.0, planted_per_day=0.0)
    plant = plant.replace(
        plateaus=calm,
        regressions=steady,
        troubles=without_troubles(plant.troubles),
        cluster=plant.cluster.replace(machines=MachineLimits(inspection=1)),
    )
    simulation = Simulation(simulated_settings(2, [CONFIG]), plant, ARMS["all"], 3, 24 * 3600.0)
    events = list[Event]()
    simulation.listeners.append(events.append)
    simulation.run()
    found = Observed()
    observe(CONFIG, (event for event in events if event.subject == KEY), plant, found)
    return found


def test_fitted_plant_is_that_of_the_run(observed):
    truth = load_plant().curve(KEY)
    found = fit_curve(observed, load_plant().default, heuristic=321.0)
    assert found.ceiling == pytest.approx(truth.ceiling, rel=0.15)
    assert found.lessons == pytest.approx(truth.lessons, rel=0.3)
    assert found.rows_per_game == pytest.approx(truth.rows_per_game, rel=0.05)
    assert found.heuristic == 321.0
    plant = load_plant()
    truth, found = plant.curve(KEY).time, fit_times(observed)
    for job in ("inspection", "training", "trained_row", "rated_game"):
        assert getattr(found, job) == pytest.approx(getattr(truth, job) * plant.time.scale, rel=0.01), job
    assert found.request == pytest.approx(truth.request * plant.time.scale, rel=0.5)  # speeds of nodes differ


def test_plant_is_written_as_it_is_read(tmp_path):
    plant = load_plant()
    file = tmp_path / "plant.toml"
    file.write_text(plant_text(plant), encoding="utf-8")
    assert load_plant(file) == plant
