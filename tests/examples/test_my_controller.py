"""The controller of my_controller.py decides in a modelled cluster without failures."""

from pathlib import Path

import flyball

SETTINGS = Path(__file__).with_name("my_controller.toml")


def test_controller_runs_in_a_modelled_cluster():
    result = flyball.simulate(["hex7_2p"], nodes=4, days=0.2, ablate=True, config_file=SETTINGS)
    arms = {run.arm: run for run in result.runs}
    assert "without cosine" in arms
    assert arms["all"].events != arms["without cosine"].events
    assert not any(run.unfolded for run in result.runs)
