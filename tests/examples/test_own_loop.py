"""The loop of own_loop.py learns to beat the random player."""

import own_loop
import pytest


class Request(dict):
    def progress(self, epoch, epochs, **metrics):
        """Drop what a run would show."""


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    monkeypatch.setattr(own_loop, "FILES", tmp_path)


def test_trained_model_beats_the_random_player():
    knobs = {"epochs": 1, "learning_rate": 0.3, "temperature": 1.0, "lineups": ()}
    model = own_loop.train(Request(base_model=None, shards=(), **knobs))["model"]
    for seed in range(8):
        shard = own_loop.selfplay(Request(model=model, games=300, seed=seed, **knobs))["shard"]
        model = own_loop.train(Request(base_model=model, shards=(shard,), **knobs))["model"]
    games = Request(model=model, opponent="random", first=0, games=100, seed=1, temperature=0.3)
    scores = own_loop.evaluate(games)["scores"]
    assert len(scores) == 100
    assert sum(scores) > 80
