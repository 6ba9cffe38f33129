import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from flyball.app.gym.players import UnsuitedCodec, coded_actor, default_codec, output_width


class Constant:
    """The same outputs for every environment."""

    action_codec = "greedy"

    def __init__(self, *outputs: float, count: int = 3) -> None:
        self._outputs = np.tile(np.array(outputs, dtype=np.float32), (count, 1))

    def outputs(self, observations):
        return self._outputs


def actions(codec, space, *outputs, count=3, seed=0):
    return coded_actor(Constant(*outputs, count=count), codec, space, seed)(None)


@pytest.mark.parametrize(
    ("space", "outputs", "action"),
    [
        (Discrete(3), (0.1, 2.0, 2.0), 1),
        (Discrete(2, start=5), (0.0, 1.0), 6),
        (MultiDiscrete([2, 3]), (1, 0, 0, 0, 5), [0, 2]),
        (MultiDiscrete([[2], [2]]), (1, 0, 0, 1), [[0], [1]]),
        (MultiBinary(3), (-1, 0.5, 0), [0, 1, 0]),
    ],
)
def test_greedy_takes_the_largest_of_each_choice(space, outputs, action) -> None:
    chosen = actions("greedy", space, *outputs)
    assert chosen.tolist() == [action] * 3
    assert all(space.contains(space.dtype.type(one) if not space.shape else one.astype(space.dtype)) for one in chosen)


def test_samples_follow_the_logits_and_are_independent() -> None:
    probabilities = [0.5, 0.2, 0.3]
    drawn = actions("sample", Discrete(3), *np.log(probabilities), count=20_000)
    assert np.abs(np.bincount(drawn) / 20_000 - probabilities).max() < 0.015
    assert (drawn == actions("sample", Discrete(3), *np.log(probabilities), count=20_000)).all()
    assert (drawn != actions("sample", Discrete(3), *np.log(probabilities), count=20_000, seed=1)).any()
    policy = coded_actor(Constant(*[0.0] * 4, count=20_000), "sample", MultiDiscrete([2, 2]), 0)
    first, second = policy(None), policy(None)
    together = [*first.T, *second.T]
    assert np.abs(np.corrcoef(together) - np.eye(4)).max() < 0.03
    bits = actions("sample", MultiBinary(2), -np.log(3), 0.0, count=20_000).mean(axis=0)
    assert np.abs(bits - [0.25, 0.5]).max() < 0.015


def test_boxes_are_clipped_or_stretched_over() -> None:
    space = Box(np.array([-1.0, 0.0]), np.array([1.0, 10.0]), dtype=np.float64)
    assert actions("clip", space, -7.0, 3.0).tolist() == [[-1.0, 3.0]] * 3
    assert actions("tanh", space, 0.0, 50.0).tolist() == [[0.0, 10.0]] * 3
    assert actions("raw", space, -7.0, 3.0).tolist() == [[-7.0, 3.0]] * 3


@pytest.mark.parametrize(
    ("codec", "space", "why"),
    [
        ("clip", Discrete(2), "greedy, sample or raw"),
        ("greedy", Box(-1, 1, (2,)), "clip, tanh or raw"),
        ("tanh", Box(-np.inf, np.inf, (2,)), "finite bounds"),
        ("nonsense", Discrete(2), "does not suit"),
        ("greedy", Dict({"a": Discrete(2)}), "flyball.policies"),
        ("greedy", Discrete(3), r"shape \(2,\); greedy for Discrete\(3\) needs \(3,\)"),
    ],
)
def test_what_does_not_go_together_is_refused(codec, space, why) -> None:
    with pytest.raises(UnsuitedCodec, match=why):
        actions(codec, space, 0.0, 0.0)


def test_every_space_has_a_default() -> None:
    spaces = (Discrete(4), MultiDiscrete([2, 3]), MultiBinary(2), Box(0, 1, (2, 2)))
    assert [default_codec(space) for space in spaces] == ["greedy"] * 3 + ["clip"]
    assert [output_width(space) for space in spaces] == [4, 5, 2, 4]
