"""Gumbel AlphaZero for connect four, by pgx and mctx.

The networks have the dense layers of ours. Learning follows pgx's ``examples/alphazero/train.py``. Importing this
module needs jax, pgx, mctx and optax.
"""

from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any, NamedTuple

import jax
import mctx
import numpy as np
import optax
import pgx
import torch
from jax import numpy as jnp
from pgx.experimental import auto_reset

from flyball.app.learning.network import Parameters

ENV = pgx.make("connect_four")
BATCH = 256  # number of games at once in training, and of rows in an update
STEPS = 64  # moves of each game slot in an iteration: two or three games
LEARNING_RATE = 1e-3  # of Adam, as in the example

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


def parameters_of(layers: Layers) -> Parameters:
    """Return layers as our parameters, the inverse of ``layers_of``."""
    *hidden, (heads, biases) = [(np.array(weight, np.float32), np.array(bias, np.float32)) for weight, bias in layers]
    found = {"policy_head.weight": heads.T[:-1], "policy_head.bias": biases[:-1]}
    found |= {"value_head.weight": heads.T[-1:], "value_head.bias": biases[-1:]}
    grid = BOARD
    if hidden[0][0].ndim == 4:
        (weight, bias), grid = hidden.pop(0), PLACES
        found |= {"windows.weight": weight.transpose(3, 2, 0, 1), "windows.bias": bias}
    for number, (weight, bias) in enumerate(hidden):
        found |= {f"trunk.{number}.weight": weight.T, f"trunk.{number}.bias": bias}
    first = hidden[0][0]
    channels_last = first.reshape(*grid[1:], grid[0], first.shape[1])
    found["trunk.0.weight"] = channels_last.transpose(2, 0, 1, 3).reshape(first.shape).T
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in found.items()}


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


def begun(key: Any, games: int) -> Any:
    """Return ``games`` new games."""
    return jax.vmap(ENV.init)(jax.random.split(key, games))


def step(state: Any, action: Any, key: Any) -> Any:
    """Play an action in each of some games. Games that are over begin again."""
    return jax.vmap(auto_reset(ENV.step, ENV.init))(state, action, jax.random.split(key, len(action)))


class Rows(NamedTuple):
    """Positions of self-play, [STEPS, BATCH] or flat."""

    obs: Any
    policy: Any  # of the search
    outcome: Any  # for the seat to move
    finished: Any  # False in games that the iteration cut off, whose outcome is unknown


@partial(jax.jit, static_argnames="simulations")
def selfplay(layers: Layers, key: Any, simulations: int) -> Rows:
    """Play ``STEPS`` moves of ``BATCH`` games from their beginning."""

    def move(state: Any, key: Any) -> tuple[Any, Any]:
        noise, begin = jax.random.split(key)
        found = search(layers, noise, state, simulations, mctx.qtransform_completed_by_mix_value)
        after = step(state, found.action, begin)
        reward = after.rewards[jnp.arange(BATCH), state.current_player]
        return after, (state.observation, found.action_weights, reward, after.terminated)

    def outcome(later: Any, moved: Any) -> tuple[Any, Any]:
        reward, over = moved
        value = jnp.where(over, reward, -later[0])
        return (value, later[1] | over), (value, later[1] | over)

    first, *keys = jax.random.split(key, STEPS + 1)
    _, (obs, policy, reward, over) = jax.lax.scan(move, begun(first, BATCH), jnp.stack(keys))
    nothing = jnp.zeros(BATCH), jnp.zeros(BATCH, bool)
    _, (value, finished) = jax.lax.scan(outcome, nothing, (reward, over), reverse=True)
    return Rows(obs, policy, value, finished)


def loss(layers: Layers, rows: Rows) -> Any:
    """Return the policy loss plus half the critic's squared error.

    The policy loss is the cross-entropy to the searches' policies. The critic's error counts in finished games only.
    """
    logits, value = outputs(layers, rows.obs)
    policy_loss = optax.softmax_cross_entropy(logits, rows.policy).mean()
    return policy_loss + (optax.l2_loss(value, rows.outcome) * rows.finished).mean()


ADAM = optax.adam(LEARNING_RATE)


@jax.jit
def update(layers: Layers, optimizer: Any, rows: Rows) -> tuple[Layers, Any]:
    """Take a step of the optimiser; return the layers and its state."""
    changes, optimizer = ADAM.update(jax.grad(loss)(layers, rows), optimizer)
    return optax.apply_updates(layers, changes), optimizer


def train(layers: Layers, simulations: int, seconds: float, seed: int) -> tuple[Layers, int]:
    """Return layers trained for ``seconds``, and the number of positions searched.

    The time is processor time, without compilation. An iteration learns once from each of its rows.
    """
    rng, key, optimizer = np.random.default_rng(seed), jax.random.PRNGKey(seed), ADAM.init(layers)
    layers_, optimizer_, _ = _iterate(layers, optimizer, key, simulations, rng)  # compiles
    jax.block_until_ready((layers_, optimizer_))
    began, positions = process_time(), 0
    while process_time() - began < seconds:
        key, games = jax.random.split(key)
        layers, optimizer, rows = _iterate(layers, optimizer, games, simulations, rng)
        positions += rows
    return layers, positions


def _iterate(layers: Layers, optimizer: Any, key: Any, simulations: int, rng: Any) -> tuple[Layers, Any, int]:
    """Play and learn once. Returns the layers, the optimiser's state and the number of rows."""
    played = jax.device_get(selfplay(layers, key, simulations))
    rows = Rows(*(array.reshape(-1, *array.shape[2:]) for array in played))
    for batch in rng.permutation(len(rows.outcome)).reshape(-1, BATCH):
        layers, optimizer = update(layers, optimizer, Rows(*(array[batch] for array in rows)))
    return layers, optimizer, len(rows.outcome)
