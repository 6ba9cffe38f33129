"""PPO of connect four in JAX, on pgx.

Playing and learning are a compiled program each, as in PureJaxRL's ``ppo.py`` (Lu et al. 2022). Other than there,
advantages are not normalised, and the critic's loss is not halved, as in our own update. The networks are those of
``pgx_mctx``. Importing this module needs jax, pgx, mctx and optax.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import optax
from jax import numpy as jnp
from pgx_mctx import Layers, begun, outputs, step

from flyball.app.config import PpoSettings

LOWEST = jnp.finfo(jnp.float32).min


class Rows(NamedTuple):
    """Decisions of self-play, [steps, games] or flat."""

    obs: Any
    mask: Any
    action: Any
    log_prob: Any
    value: Any
    reward: Any  # of the seat that decided, at the end of the game
    over: Any  # whether the game ended with this decision


def masked(layers: Layers, obs: Any, mask: Any) -> tuple[Any, Any]:
    """Return log-probabilities [K, A] and values [K]."""
    logits, value = outputs(layers, obs)
    return jax.nn.log_softmax(jnp.where(mask, logits, LOWEST)), value


@partial(jax.jit, static_argnames="steps")
def play(layers: Layers, state: Any, key: Any, steps: int) -> tuple[Any, Rows]:
    """Play ``steps`` moves of each game; return the games and their rows. Games that are over begin again."""

    def move(state: Any, key: Any) -> tuple[Any, Rows]:
        draw, begin = jax.random.split(key)
        obs, mask = state.observation, state.legal_action_mask
        log_probs, value = masked(layers, obs, mask)
        action = jax.random.categorical(draw, log_probs)
        after, games = step(state, action, begin), jnp.arange(len(action))
        reward = after.rewards[games, state.current_player]
        return after, Rows(obs, mask, action, log_probs[games, action], value, reward, after.terminated)

    return jax.lax.scan(move, state, jax.random.split(key, steps))


def advantages(rows: Rows, last: Any, settings: PpoSettings) -> Any:
    """Return generalised advantage estimates [steps, games].

    The next value and advantage are the opponent's, so their signs change. ``last`` is the value after the last move.
    """

    def estimate(later: Any, row: Rows) -> tuple[Any, Any]:
        advantage, value = later
        follows = jnp.where(row.over, 0.0, -settings.gamma)
        advantage = row.reward + follows * value - row.value + follows * settings.gae_lambda * advantage
        return (advantage, row.value), advantage

    return jax.lax.scan(estimate, (jnp.zeros_like(last), last), rows, reverse=True)[1]


def loss(layers: Layers, rows: Rows, advantage: Any, settings: PpoSettings) -> Any:
    """Return PPO's clipped loss, with the critic's error clipped and an entropy bonus."""
    low, high = 1 - settings.clip_epsilon, 1 + settings.clip_epsilon
    log_probs, value = masked(layers, rows.obs, rows.mask)
    ratio = jnp.exp(log_probs[jnp.arange(len(rows.action)), rows.action] - rows.log_prob)
    policy_loss = jnp.maximum(-advantage * ratio, -advantage * ratio.clip(low, high)).mean()
    target = rows.value + advantage
    near = rows.value + (value - rows.value).clip(-settings.clip_epsilon, settings.clip_epsilon)
    value_loss = jnp.maximum((value - target) ** 2, (near - target) ** 2).mean()
    entropy = -jnp.where(rows.mask, jnp.exp(log_probs) * log_probs, 0.0).sum(axis=1).mean()
    return policy_loss + settings.value_coef * value_loss - settings.entropy_coef * entropy


def optimiser(settings: PpoSettings) -> Any:
    return optax.chain(optax.clip_by_global_norm(settings.max_grad_norm), optax.adam(settings.learning_rate, eps=1e-5))


@partial(jax.jit, static_argnames="settings")
def learn(layers: Layers, state: Any, rows: Rows, after: Any, key: Any, settings: PpoSettings) -> tuple[Layers, Any]:
    """Train for the settings' epochs in batches of equal size; return the layers and the optimiser's state.

    ``after`` is what the seats to move see after the rows.
    """
    estimates = advantages(rows, outputs(layers, after)[1], settings)
    flat = jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), (rows, estimates))

    def batch(carry: Any, chosen: Any) -> tuple[Any, None]:
        layers, state = carry
        part = jax.tree.map(lambda array: array[chosen], flat)
        changes, state = optimiser(settings).update(jax.grad(loss)(layers, *part, settings), state)
        return (optax.apply_updates(layers, changes), state), None

    orders = jax.vmap(lambda key: jax.random.permutation(key, estimates.size))(jax.random.split(key, settings.epochs))
    (layers, state), _ = jax.lax.scan(batch, (layers, state), orders.reshape(-1, settings.batch_size))
    return layers, state


class Training:
    """A run: its layers, its optimiser, and the games that it is in."""

    def __init__(self, layers: Layers, games: int, steps: int, settings: PpoSettings) -> None:
        self._steps, self._settings = steps, settings
        self._key, key = jax.random.split(jax.random.PRNGKey(0))
        self._games = begun(key, games)
        self.layers, self._optimizer = layers, optimiser(settings).init(layers)

    def play(self) -> int:
        """Go on with the games; return the number of rows."""
        self._key, key = jax.random.split(self._key)
        self._games, self._rows = jax.block_until_ready(play(self.layers, self._games, key, self._steps))
        return int(self._rows.reward.size)

    def learn(self) -> int:
        """Learn from the rows that were played last; return their number."""
        self._key, key = jax.random.split(self._key)
        seen = self._games.observation
        updated = learn(self.layers, self._optimizer, self._rows, seen, key, self._settings)
        self.layers, self._optimizer = jax.block_until_ready(updated)
        return int(self._rows.reward.size)
