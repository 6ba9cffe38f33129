"""The requests of sb3_loop.py and alpha_zero_loop.py are done by other people's software."""

from importlib import import_module

import pytest

LOOPS = (
    pytest.param("sb3_loop", ("pettingzoo", "pygame", "sb3_contrib"), 40, id="sb3"),
    pytest.param("alpha_zero_loop", ("chex", "flax", "optax", "orbax.checkpoint"), 6, id="alpha-zero"),
)


class Request(dict):
    def progress(self, epoch, epochs, **metrics):
        """Drop what a run would show."""


@pytest.mark.parametrize(("name", "packages", "games"), LOOPS)
@pytest.mark.filterwarnings("default")
def test_third_party_loop_plays_trains_and_evaluates(tmp_path, monkeypatch, name, packages, games):
    for package in packages:
        pytest.importorskip(package, reason=f"{name}.py needs the package {package}")
    loop = import_module(name)
    monkeypatch.setattr(loop, "FILES", tmp_path)
    knobs = {"epochs": 2, "learning_rate": 0.003, "temperature": 1.0, "seed": 2**40, "replayed": ()}
    first = loop.train(Request(base_model=None, shards=(), **knobs))["model"]
    lineups = ({"opponents": (first,), "games": games // 2}, {"opponents": ("random",), "games": 1})
    played = loop.play(Request(model=first, games=games, lineups=lineups, **knobs))
    assert 2 * games < played["rows"] <= 9 * games
    trained = loop.train(Request(base_model=first, shards=(played["shard"],), **knobs))
    assert trained["model"] != first
    assert trained["metrics"]["value_loss"] > 0
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {first, played["shard"], trained["model"]}
    for opponent in (first, "random"):
        request = Request(model=trained["model"], opponent=opponent, first=2, games=6, seed=2**40)
        scores = loop.evaluate(request)["scores"]
        assert len(scores) == 6
        assert set(scores) <= {0, 0.5, 1}
