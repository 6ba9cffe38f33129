"""Searches of Gumbel AlphaZero for connect four, by pgx and mctx, with the dense layers of our networks."""

from collections.abc import Callable
from typing import Any

import jax
import mctx
import numpy as np
import pgx
from jax import numpy as jnp
from pgx.experimental import auto_reset

from app.learning.network import Parameters

ENV = pgx.make("connect_four")
BATCH = 256  # number of games at once

PARTS = ("weight", "bias")
HEADS = ("policy_head", "value_head")
BOARD, PLACES = (3, 6, 7), (-1, 3, 4)  # channels, rows, columns that the first dense layer sees: cells, or windows

Layers = list[tuple[jax.Array, jax.Array]]
"""Weights and biases: windows [rows, columns, planes, filters] if any, hidden layers [inputs, outputs], then the heads
as one layer, the value last. Channels come last everywhere, where ours come first."""


def layers_of(parameters: Parameters, kind: str = "float32") -> Layers:
    """Return our parameters of an mlp or of windows as layers.

    The network has no residual blocks. ``kind`` is the type of the numbers.
    """
    ours = {name: tensor.float().numpy() for name, tensor in parameters.items()}
    hidden = [[ours[f"trunk.{number}.{part}"].T for part in PARTS] for number in range(_trunk(ours))]
    first, grid = hidden[0][0], PLACES if "windows.weight" in ours else BOARD
    hidden[0][0] = first.reshape(*grid, first.shape[1]).transpose(1, 2, 0, 3).reshape(first.shape)
    heads = [np.concatenate([ours[f"{head}.{part}"] for head in HEADS]).T for part in PARTS]
    windows = [[ours["windows.weight"].transpose(2, 3, 1, 0), ours["windows.bias"]]] if grid is PLACES else []
    return [(jnp.asarray(weight, kind), jnp.asarray(bias, kind)) for weight, bias in [*windows, *hidden, heads]]


def _trunk(ours: dict[str, Any]) -> int:
    return sum(name.startswith("trunk.") for name in ours) // len(PARTS)


def outputs(layers: Layers, obs: Any) -> tuple[Any, Any]:
    """Return logits [K, A] and values [K] of pgx's observations. The observations are [K, 6, 7, 2]."""
    kind = layers[0][0].dtype
    seen = obs[:, ::-1].astype(kind)  # our lowest row comes first
    features = jnp.concatenate((seen, 1 - seen.sum(axis=-1, keepdims=True)), axis=-1)
    *hidden, (heads, biases) = layers
    for weight, bias in hidden:
        if weight.ndim == 4:
            order = ("NHWC", "HWIO", "NHWC")
            sums = jax.lax.conv_general_dilated(features, weight, (1, 1), "VALID", dimension_numbers=order)
        else:
            sums = features.reshape(len(features), -1) @ weight
        features = jax.nn.relu(sums + bias)
    found = (features @ heads + biases).astype(jnp.float32)
    return found[:, :-1], found[:, -1]


def follow(layers: Layers, _key: Any, action: Any, state: Any) -> tuple[Any, Any]:
    """Play an action in each of K positions.

    Returns mctx's ``RecurrentFnOutput``, and the positions after the actions.
    """
    mover, state = state.current_player, jax.vmap(ENV.step)(state, action)
    logits, value = outputs(layers, state.observation)
    over = state.terminated
    found = mctx.RecurrentFnOutput(
        reward=state.rewards[jnp.arange(len(mover)), mover],
        discount=jnp.where(over, 0.0, -1.0),
        prior_logits=jnp.where(state.legal_action_mask, logits, jnp.finfo(jnp.float32).min),
        value=jnp.where(over, 0.0, value),
    )
    return found, state


def search(layers: Layers, key: Any, state: Any, simulations: int, qtransform: Callable[..., Any]) -> Any:
    """Return the results of mctx's searches from K positions."""
    logits, value = outputs(layers, state.observation)
    return mctx.gumbel_muzero_policy(
        params=layers,
        rng_key=key,
        root=mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state),
        recurrent_fn=follow,
        num_simulations=simulations,
        invalid_actions=~state.legal_action_mask,
        max_num_considered_actions=16,
        qtransform=qtransform,
    )


def begun(key: Any) -> Any:
    """Return ``BATCH`` new games."""
    return jax.vmap(ENV.init)(jax.random.split(key, BATCH))


def step(state: Any, action: Any, key: Any) -> Any:
    """Play an action in each of ``BATCH`` games. Games that are over begin again."""
    return jax.vmap(auto_reset(ENV.step, ENV.init))(state, action, jax.random.split(key, BATCH))
