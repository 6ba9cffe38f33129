"""The cache of a network's outputs: invisible but for the passes it saves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from flyball.app.play import output_cache
from flyball.app.play.output_cache import OutputCache

FEATURES, COLUMNS = 5, 3


class CountingNetwork:
    """Outputs sums of features, and counts the rows that it is asked for."""

    def __init__(self) -> None:
        self.rows = 0

    def outputs(self, obs: NDArray[np.generic]) -> NDArray[np.float32]:
        self.rows += len(obs)
        return (obs.astype(np.float32) @ np.arange(FEATURES * COLUMNS).reshape(FEATURES, COLUMNS)).astype(np.float32)


@given(
    batches=st.lists(st.lists(st.lists(st.integers(0, 2), min_size=FEATURES, max_size=FEATURES)), max_size=8),
    entries=st.integers(1, 40),
    kind=st.sampled_from([np.uint8, np.float32]),
)
def test_outputs_are_the_networks_at_any_size(batches: list[list[list[int]]], entries: int, kind: type) -> None:
    network, plain = CountingNetwork(), CountingNetwork()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_cache, "CACHE_BYTES", 4 * COLUMNS * entries)
        cache = OutputCache(network)
        for batch in batches:
            obs = np.array(batch, dtype=kind).reshape(-1, FEATURES)
            assert np.array_equal(cache.outputs(obs), plain.outputs(obs))
    assert network.rows <= plain.rows


def test_known_positions_make_no_pass() -> None:
    network = CountingNetwork()
    cache, obs = OutputCache(network), np.eye(FEATURES, dtype=np.uint8)
    cache.outputs(np.ones((1, FEATURES), dtype=np.uint8))
    first = cache.outputs(obs)
    seen = network.rows
    assert np.array_equal(cache.outputs(obs[::-1]), first[::-1])
    assert network.rows == seen


def test_observation_of_zeros_is_unknown_at_first() -> None:
    network = CountingNetwork()
    cache = OutputCache(network)
    cache.outputs(np.ones((1, FEATURES), dtype=np.uint8))
    seen = network.rows
    assert not cache.outputs(np.zeros((1, FEATURES), dtype=np.uint8)).any()
    assert network.rows == seen + 1


@pytest.mark.parametrize(("repeated", "kept"), [(0.05, False), (0.5, True)])
def test_cache_gives_up_where_few_positions_repeat(
    monkeypatch: pytest.MonkeyPatch, repeated: float, kept: bool
) -> None:
    monkeypatch.setattr(output_cache, "TRIAL", 1000)
    network, rng = CountingNetwork(), np.random.default_rng(0)
    cache = OutputCache(network)
    cache.outputs(np.zeros((1, FEATURES), dtype=np.float32))
    again = np.ones((round(1000 * repeated), FEATURES), dtype=np.float32)
    cache.outputs(again[:1])
    cache.outputs(np.concatenate((again, rng.random((1000 - len(again), FEATURES), dtype=np.float32))))
    seen = network.rows
    cache.outputs(again)
    assert network.rows == seen + (0 if kept else len(again))


def test_other_kind_of_numbers_is_not_confused() -> None:
    network = CountingNetwork()
    cache, obs = OutputCache(network), np.arange(2 * FEATURES).reshape(2, FEATURES)
    for kind in (np.uint8, np.float32, np.uint8):
        assert np.array_equal(cache.outputs(obs.astype(kind)), network.outputs(obs))
