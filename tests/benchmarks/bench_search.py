"""Self-play by search beside pgx and mctx: connect four, the same network and batch, in turns in one process.

Install ``"jax[cpu]" pgx mctx`` beside Flyball, and run on one core:
``taskset -c 0 pytest tests/benchmarks/bench_search.py -m benchmark -s``. Rates are by processor time, on one thread.
"""

from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from app.config import GAMES, Compute, NetworkSettings, Precision, SearchSettings
from app.games import open_table
from app.learning.inference import Policy
from app.learning.network import Parameters, init_policy
from app.play.own_players import Turn
from app.play.search import SearchPlayer
from app.play.selfplay import play_recorded, selfplay_schedule

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore")]
SIMULATIONS, BATCH, GAMES_A_ROUND, ROUNDS = 32, 256, 512, 7
CONFIG = GAMES["connect_four_2p"].replace(search=SearchSettings(simulations=SIMULATIONS))
SHAPE = open_table(CONFIG, 0).spec.shape
NETWORKS = {"mlp 256, 128": NetworkSettings(), "windows": NetworkSettings(kind="windows")}
MOVES = ([], [3], [3, 3, 2], [0, 1, 0, 1, 0, 6])

Rate = Callable[[int], float]
"""Returns positions a second of a round with a number."""


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return jax, on one thread of the processor."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    for name in ("pgx", "mctx"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    return pytest.importorskip("jax")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", NETWORKS)
def test_selfplay_beside_pgx_and_mctx(jax: Any, kind: str, precision: Precision) -> None:
    torch.set_num_threads(1)
    settings = NETWORKS[kind]
    parameters = init_policy(settings, SHAPE, 0)
    policy = Policy(settings, SHAPE, parameters, Compute(precision=precision))
    network = jax_network(jax, parameters, precision)
    assert_equal_outputs(jax, network, policy)
    rates: dict[str, Rate] = {
        "ours": partial(selfplay, policy),
        "theirs": their_selfplay(jax, network),
        "ours, full batches": partial(searches, policy),
        "ours, network alone": partial(passes, policy.outputs, positions(BATCH).obs),
        "theirs, network alone": their_passes(jax, network),
    }
    for rate in rates.values():
        rate(0)  # compiles
    rounds = {name: np.array([]) for name in rates}
    for number in range(1, ROUNDS + 1):
        for name, rate in rates.items():
            rounds[name] = np.append(rounds[name], rate(number))
    medians = ", ".join(f"{name} {np.median(found):,.0f}" for name, found in rounds.items())
    print(f"\n{kind}, {precision}, positions/s: {medians}")  # noqa: T201
    for name in ("ours", "ours, full batches"):
        print(f"{name} / theirs: {interval(rounds[name] / rounds['theirs'])}")  # noqa: T201
    assert all(found.min() > 0 for found in rounds.values())


def interval(ratios: NDArray[np.float64]) -> str:
    """Return the median of ratios with its 95% bootstrap interval."""
    drawn = np.random.default_rng(0).choice(ratios, (10_000, len(ratios)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return f"{np.median(ratios):.2f} [{low:.2f}, {high:.2f}]"


def selfplay(policy: Policy, number: int) -> float:
    """Return positions a second of whole games, recorded as in training, the last ones in batches that get smaller."""
    player, began = SearchPlayer(policy, CONFIG, SIMULATIONS, 1.0), process_time()
    schedule = selfplay_schedule(GAMES_A_ROUND, 2, [], (1.0,), number)
    facts = {"model": "0" * 64, "seed": number, "worker": "bench", "in_flight": BATCH}
    shard, _ = play_recorded(CONFIG, [player], schedule, **facts)
    return shard.rows / (process_time() - began)


def searches(policy: Policy, number: int) -> float:
    """Return positions a second of searches of full batches, as mctx's batches always are."""
    turn, player = positions(BATCH), SearchPlayer(policy, CONFIG, SIMULATIONS, 1.0)
    points = np.random.default_rng(number).random(BATCH)
    return passes(lambda _: player.search(turn, points), None, number)


def positions(count: int) -> Turn:
    """Return positions of games with eight random moves, of which none is over."""
    rng, slots = np.random.default_rng(0), np.arange(2 * count)
    table = open_table(CONFIG, len(slots))
    table.reset(slots, [0] * len(slots))
    for _ in range(8):
        live = np.flatnonzero(table.seats() >= 0)
        table.step(live, (rng.random((len(live), 7)) * table.observe(live)[1]).argmax(axis=1).astype(np.int32))
    live = np.flatnonzero(table.seats() >= 0)[:count]
    return Turn(*table.observe(live), table, live)


def passes(call: Callable[[Any], object], argument: Any, number: int) -> float:
    """Return positions a second of ten calls for a batch."""
    began = process_time()
    for _ in range(10):
        call(argument)
    return 10 * BATCH / (process_time() - began)


def jax_network(jax: Any, parameters: Parameters, precision: Precision) -> Callable[[Any], tuple[Any, Any]]:
    """Return the network of our parameters: logits [K, A] and values [K] of pgx's observations [K, 6, 7, 2]."""
    jnp = jax.numpy
    kind = jnp.bfloat16 if precision == "bfloat16" else jnp.float32
    ours = {name: np.asarray(tensor.float()) for name, tensor in parameters.items()}
    heads = [np.concatenate([ours[f"{head}.{part}"] for head in ("policy_head", "value_head")]) for part in PARTS]
    first = ours.pop("trunk.0.weight")
    windows = [ours[f"windows.{part}"] for part in PARTS] if "windows.weight" in ours else []
    if windows:  # ours are [filters, rows, columns], and jax's channels come last
        windows[0] = windows[0].transpose(2, 3, 1, 0)
        first = first.reshape(len(first), 64, 3, 4).transpose(0, 2, 3, 1).reshape(len(first), -1)
    else:  # planes come last, too
        first = first.reshape(len(first), 3, 6, 7).transpose(0, 2, 3, 1).reshape(len(first), -1)
    layers = [(first, ours["trunk.0.bias"]), (ours["trunk.1.weight"], ours["trunk.1.bias"]), heads]
    dense = [(jnp.asarray(weight.T, kind), jnp.asarray(bias, kind)) for weight, bias in layers]
    windows = [jnp.asarray(part, kind) for part in windows]

    def network(obs: Any) -> tuple[Any, Any]:
        seen = obs[:, ::-1].astype(kind)  # our lowest row comes first
        features = jnp.concatenate((seen, 1 - seen.sum(axis=-1, keepdims=True)), axis=-1)
        if windows:
            order = ("NHWC", "HWIO", "NHWC")
            sums = jax.lax.conv_general_dilated(features, windows[0], (1, 1), "VALID", dimension_numbers=order)
            features = jax.nn.relu(sums + windows[1])
        features = features.reshape(len(features), -1)
        for weight, bias in dense[:-1]:
            features = jax.nn.relu(features @ weight + bias)
        outputs = (features @ dense[-1][0] + dense[-1][1]).astype(jnp.float32)
        return outputs[:, :-1], outputs[:, -1]

    return network


PARTS = ("weight", "bias")


def assert_equal_outputs(jax: Any, network: Callable[[Any], tuple[Any, Any]], policy: Policy) -> None:
    import pgx

    env, slot = pgx.make("connect_four"), np.array([0])
    for moves in MOVES:
        table, state = open_table(CONFIG, 1), env.init(jax.random.PRNGKey(0))
        table.reset(slot, [0])
        for move in moves:
            table.step(slot, np.array([move], dtype=np.int32))
            state = env.step(state, move)
        logits, value = network(state.observation[None])
        assert np.allclose(np.append(logits[0], value[0]), policy.outputs(table.observe(slot)[0])[0], atol=0.02)


def their_selfplay(jax: Any, network: Callable[[Any], tuple[Any, Any]]) -> Rate:
    """Return the rate of Gumbel AlphaZero's moves in games that begin again at once, their policies fetched."""
    import mctx
    import pgx
    from pgx.experimental import auto_reset

    env, jnp = pgx.make("connect_four"), jax.numpy
    scale = partial(mctx.qtransform_completed_by_mix_value, value_scale=0.1, maxvisit_init=50, rescale_values=False)

    def follow(_: Any, key: Any, action: Any, state: Any) -> tuple[Any, Any]:
        mover, state = state.current_player, jax.vmap(env.step)(state, action)
        logits, value = network(state.observation)
        over = state.terminated
        found = mctx.RecurrentFnOutput(
            reward=state.rewards[jnp.arange(BATCH), mover],
            discount=jnp.where(over, 0.0, -1.0),
            prior_logits=jnp.where(state.legal_action_mask, logits, jnp.finfo(jnp.float32).min),
            value=jnp.where(over, 0.0, value),
        )
        return found, state

    @jax.jit
    def move(state: Any, key: Any) -> tuple[Any, Any]:
        logits, value = network(state.observation)
        noise, begin = jax.random.split(key)
        found = mctx.gumbel_muzero_policy(
            params=None,
            rng_key=noise,
            root=mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state),
            recurrent_fn=follow,
            num_simulations=SIMULATIONS,
            invalid_actions=~state.legal_action_mask,
            max_num_considered_actions=16,
            qtransform=scale,
        )
        seen = state.observation, found.action_weights, found.search_tree.summary().value
        return jax.vmap(auto_reset(env.step, env.init))(state, found.action, jax.random.split(begin, BATCH)), seen

    begun = jax.jit(jax.vmap(env.init))(jax.random.split(jax.random.PRNGKey(0), BATCH))

    def rate(number: int) -> float:
        moves, state, began = GAMES_A_ROUND * 20 // BATCH, begun, process_time()
        for key in jax.random.split(jax.random.PRNGKey(number), moves):
            state, seen = move(state, key)
            for array in seen:
                np.asarray(array)
        return moves * BATCH / (process_time() - began)

    return rate


def their_passes(jax: Any, network: Callable[[Any], tuple[Any, Any]]) -> Rate:
    """Return the rate of the network alone."""
    obs = jax.numpy.asarray(np.random.default_rng(0).integers(0, 2, (BATCH, 6, 7, 2)), bool)
    compiled = jax.jit(network)
    return partial(passes, lambda seen: jax.block_until_ready(compiled(seen)), obs)
