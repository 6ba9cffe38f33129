"""The network of conv_network.py keeps its contract, learns and plays."""

from pathlib import Path

import numpy as np

import flyball

SETTINGS = Path(__file__).with_name("conv_network.toml")
BRIEF = {"collection.num_iterations": 1, "collection.games_per_iteration": 32, "training.eval_games": 8}


def test_network_keeps_its_contract():
    assert flyball.check_network("connect_four_2p", config_file=SETTINGS) == []


def test_network_learns_and_plays(tmp_path):
    settings = BRIEF | {"training.final_games": 0}
    result = flyball.train("connect_four_2p", settings, output=tmp_path, config_file=SETTINGS)
    policy = flyball.load_policy(result.policy)
    table, games = flyball.open_table(flyball.GAMES["connect_four_2p"], 2), np.arange(2)
    table.reset(games, [1, 2])
    obs, mask = table.observe(games)
    assert mask[games, policy.act(obs, mask)].all()
