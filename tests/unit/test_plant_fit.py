"""Fitting a plant to simulated runs recovers their plant."""

import pytest
from simulated_settings import simulated_settings

from app.comparison.fitting import Observed, fitted_curve, fitted_times, observe, plant_text, without_troubles
from app.config import GAMES
from app.events import Event
from app.simulation import ARMS, Simulation, load_plant

KEY = "tic_tac_toe_2p"
CONFIG = GAMES[KEY]


@pytest.fixture(scope="module")
def observed() -> Observed:
    """Return a simulated day without troubles, plateaus or sudden losses."""
    plant = load_plant()
    calm = plant.plateaus.replace(per_config=0.0)
    steady = plant.regressions.replace(sudden=0.0, planted_per_day=0.0)
    plant = plant.replace(plateaus=calm, regressions=steady, troubles=without_troubles(plant.troubles))
    simulation = Simulation(simulated_settings(2, [CONFIG]), plant, ARMS["all"], 3, 24 * 3600.0)
    events = list[Event]()
    simulation.listeners.append(events.append)
    simulation.run()
    found = Observed()
    observe(CONFIG, (event for event in events if event.subject == KEY), plant, found)
    return found


def test_fitted_plant_is_that_of_the_run(observed):
    truth = load_plant().curve(KEY)
    found = fitted_curve(observed, load_plant().default, heuristic=321.0)
    assert found.ceiling == pytest.approx(truth.ceiling, rel=0.15)
    assert found.lessons == pytest.approx(truth.lessons, rel=0.3)
    assert found.rows_per_game == pytest.approx(truth.rows_per_game, rel=0.05)
    assert found.heuristic == 321.0
    plant = load_plant()
    truth, found = plant.curve(KEY).time, fitted_times(observed)
    for job in ("inspection", "training", "trained_row", "rated_game"):
        assert getattr(found, job) == pytest.approx(getattr(truth, job) * plant.time.scale, rel=0.01), job
    assert found.request == pytest.approx(truth.request * plant.time.scale, rel=0.5)  # speeds of nodes differ


def test_plant_is_written_as_it_is_read(tmp_path):
    plant = load_plant()
    file = tmp_path / "plant.toml"
    file.write_text(plant_text(plant), encoding="utf-8")
    assert load_plant(file) == plant
