"""The trainer of trainer_torch.py keeps its contract in a few games.

The games pass through the jobs of a run.
"""

from pathlib import Path

import flyball

SETTINGS = Path(__file__).with_name("trainer_torch.toml")


def test_trainer_keeps_its_contract():
    assert flyball.check_backend("tic_tac_toe_2p", config_file=SETTINGS) == []
