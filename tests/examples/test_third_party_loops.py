"""The requests of sb3_loop.py, alpha_zero_loop.py and trl_loop.py are done by other people's software."""

from importlib import import_module

import pytest

LOOPS = (
    pytest.param("sb3_loop", ("pettingzoo", "pygame", "sb3_contrib"), 40, 80, "value_loss", id="sb3"),
    pytest.param(
        "alpha_zero_loop", ("chex", "flax", "jax", "optax", "orbax.checkpoint"), 6, 12, "value_loss", id="alpha-zero"
    ),
    pytest.param("trl_loop", ("trl",), 40, 20, "entropy", id="trl"),  # an answer that is no move ends a game
)


class Request(dict):
    def progress(self, epoch, epochs, **metrics):
        """Drop what a run would show."""


@pytest.mark.parametrize(("name", "packages", "games", "rows", "metric"), LOOPS)
@pytest.mark.filterwarnings("default")
def test_third_party_loop_plays_trains_and_evaluates(tmp_path, monkeypatch, name, packages, games, rows, metric):
    for package in packages:
        pytest.importorskip(package, reason=f"{name}.py needs the package {package}")
    loop = import_module(name)
    monkeypatch.setattr(loop, "FILES", tmp_path)
    knobs = {"epochs": 2, "learning_rate": 0.003, "temperature": 1.0, "seed": 2**40, "replayed": ()}
    first = loop.train(Request(base_model=None, shards=(), **knobs))["model"]
    lineups = ({"opponents": (first,), "games": games // 2}, {"opponents": ("random",), "games": 1})
    played = loop.selfplay(Request(model=first, games=games, lineups=lineups, **knobs))
    assert rows < played["rows"] <= 9 * games
    trained = loop.train(Request(base_model=first, shards=(played["shard"],), **knobs))
    assert trained["model"] != first
    assert trained["metrics"][metric] > 0
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {first, played["shard"], trained["model"]}
    for opponent in (first, "random"):
        request = Request(model=trained["model"], opponent=opponent, first=2, games=6, seed=2**40, temperature=0.3)
        scores = loop.evaluate(request)["scores"]
        assert len(scores) == 6
        assert set(scores) <= {0, 0.5, 1}


@pytest.mark.filterwarnings("default")
def test_trl_model_learns_legal_answers_and_wins(tmp_path, monkeypatch):
    trl_loop = pytest.importorskip("trl_loop", reason="trl_loop.py needs the package trl", exc_type=ImportError)
    monkeypatch.setattr(trl_loop, "FILES", tmp_path)
    knobs = {"epochs": 1, "learning_rate": 0.002, "temperature": 1.0, "lineups": ()}
    model = first = trl_loop.train(Request(base_model=None, shards=(), seed=0, **knobs))["model"]
    for seed in (0, 1):
        shards = [
            trl_loop.selfplay(Request(model=model, games=100, seed=seed + start, **knobs))["shard"]
            for start in (0, 100)
        ]
        model = trl_loop.train(Request(base_model=model, shards=shards, seed=seed, **knobs))["model"]
    games = {"first": 0, "games": 100, "seed": 5, "temperature": 0.3}
    assert sum(trl_loop.evaluate(Request(model=first, opponent="random", **games))["scores"]) <= 10
    assert sum(trl_loop.evaluate(Request(model=model, opponent="random", **games))["scores"]) >= 20
    assert sum(trl_loop.evaluate(Request(model=model, opponent=first, **games))["scores"]) >= 90
