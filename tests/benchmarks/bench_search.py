"""Self-play of connect four by search, against pgx and mctx.

Both use the same network, in turns in one process. Ours plays the whole games of a request. Theirs begins games again
at once, and is measured with two numbers of games at once; the faster counts.

Install ``"jax[cpu]" pgx mctx optax`` beside Flyball, and run on one core:
``taskset -c 0 pytest tests/benchmarks/bench_search.py -m benchmark -s``. Rates are by processor time, on one thread.
With ``ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16`` and ``XLA_FLAGS=--xla_cpu_max_isa=AVX512`` a processor works as one without
AMX.
"""

from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from flyball.app.config import GAMES, Compute, NetworkSettings, Precision, SearchSettings
from flyball.app.games import open_table
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import init_policy
from flyball.app.play.own_players import Turn
from flyball.app.play.search import TREES, SearchPlayer
from flyball.app.play.selfplay import play_recorded, selfplay_schedule

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore")]
SIMULATIONS, GAMES_A_ROUND, ROUNDS = 32, 1024, 7
BATCHES = 256, 1024  # of theirs
CONFIG = GAMES["connect_four_2p"].replace(search=SearchSettings(simulations=SIMULATIONS, value_scale=0.1))
SHAPE = open_table(CONFIG, 0).spec.shape
NETWORKS = {"mlp 256, 128": NetworkSettings(), "windows": NetworkSettings(kind="windows")}
MOVES = ([], [3], [3, 3, 2], [0, 1, 0, 1, 0, 6])

Rate = Callable[[int], float]
"""Returns positions a second of a round with a number."""


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", NETWORKS)
def test_selfplay_beside_pgx_and_mctx(pgx_mctx: Any, kind: str, precision: Precision) -> None:
    torch.set_num_threads(1)
    settings = NETWORKS[kind]
    parameters = init_policy(settings, SHAPE, 0)
    policy = Policy(settings, SHAPE, parameters, Compute(precision=precision))
    layers = pgx_mctx.layers_of(parameters, precision)
    assert_equal_outputs(pgx_mctx, layers, policy)
    rates: dict[str, Rate] = {
        "ours": partial(selfplay, policy),
        **{f"theirs, {games} games": their_selfplay(pgx_mctx, layers, games) for games in BATCHES},
        "ours, full batches": partial(searches, policy),
        "ours, network alone": partial(passes, policy.outputs, positions(GAMES_A_ROUND).obs),
        "theirs, network alone": their_passes(pgx_mctx, layers),
    }
    for rate in rates.values():
        rate(0)  # compiles
    rounds = {name: np.array([]) for name in rates}
    for number in range(1, ROUNDS + 1):
        for name, rate in rates.items():
            rounds[name] = np.append(rounds[name], rate(number))
    medians = ", ".join(f"{name} {np.median(found):,.0f}" for name, found in rounds.items())
    print(f"\n{kind}, {precision}, positions/s: {medians}")  # noqa: T201
    theirs = max((rounds[f"theirs, {games} games"] for games in BATCHES), key=np.median)
    for name in ("ours", "ours, full batches"):
        print(f"{name} / theirs: {interval(rounds[name] / theirs)}")  # noqa: T201
    assert all(found.min() > 0 for found in rounds.values())


def interval(ratios: NDArray[np.float64]) -> str:
    """Return the median of ratios with its 95% bootstrap interval."""
    drawn = np.random.default_rng(0).choice(ratios, (10_000, len(ratios)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return f"{np.median(ratios):.2f} [{low:.2f}, {high:.2f}]"


def selfplay(policy: Policy, number: int) -> float:
    """Return positions a second of whole games. They are recorded as in training. At the end, batches get smaller."""
    player, began = SearchPlayer(policy, CONFIG, SIMULATIONS, 1.0), process_time()
    schedule = selfplay_schedule(GAMES_A_ROUND, 2, [], (1.0,), number)
    facts = {"model": "0" * 64, "seed": number, "worker": "bench", "in_flight": TREES}
    shard, _ = play_recorded(CONFIG, [player], schedule, **facts)
    return shard.rows / (process_time() - began)


def searches(policy: Policy, number: int) -> float:
    """Return positions a second of searches of full batches, whose positions were not seen before.

    The batches of mctx are always full.
    """
    turn, points = positions(TREES), np.random.default_rng(number).random(TREES)
    return passes(lambda _: SearchPlayer(policy, CONFIG, SIMULATIONS, 1.0).search(turn, points), None, number)


def positions(count: int) -> Turn:
    """Return unfinished positions of games after eight random moves."""
    rng, slots = np.random.default_rng(0), np.arange(2 * count)
    table = open_table(CONFIG, len(slots))
    table.reset(slots, [0] * len(slots))
    for _ in range(8):
        live = np.flatnonzero(table.seats() >= 0)
        table.step(live, (rng.random((len(live), 7)) * table.observe(live)[1]).argmax(axis=1).astype(np.int32))
    live = np.flatnonzero(table.seats() >= 0)[:count]
    return Turn(*table.observe(live), table, live)


def passes(call: Callable[[Any], object], argument: Any, number: int) -> float:
    """Return positions a second of three calls for ``TREES`` positions."""
    began = process_time()
    for _ in range(3):
        call(argument)
    return 3 * TREES / (process_time() - began)


def assert_equal_outputs(peer: Any, layers: Any, policy: Policy) -> None:
    slot = np.array([0])
    for moves in MOVES:
        table, state = open_table(CONFIG, 1), peer.ENV.init(peer.jax.random.PRNGKey(0))
        table.reset(slot, [0])
        for move in moves:
            table.step(slot, np.array([move], dtype=np.int32))
            state = peer.ENV.step(state, move)
        logits, value = peer.outputs(layers, state.observation[None])
        assert np.allclose(np.append(logits[0], value[0]), policy.outputs(table.observe(slot)[0])[0], atol=0.02)


def their_selfplay(peer: Any, layers: Any, games: int) -> Rate:
    """Return the function that measures their self-play of so many games at once, in moves a second.

    Moves are those of Gumbel AlphaZero. Games begin again at once, and policies are fetched.
    """
    jax = peer.jax
    scale = partial(
        peer.mctx.qtransform_completed_by_mix_value, value_scale=0.1, maxvisit_init=50, rescale_values=False
    )

    @jax.jit
    def move(state: Any, key: Any) -> tuple[Any, Any]:
        noise, begin = jax.random.split(key)
        found = peer.search(layers, noise, state, SIMULATIONS, scale)
        seen = state.observation, found.action_weights, found.search_tree.summary().value
        return peer.step(state, found.action, begin), seen

    begun = jax.jit(peer.begun, static_argnames="games")(jax.random.PRNGKey(0), games)

    def rate(number: int) -> float:
        moves, state, began = GAMES_A_ROUND * 20 // games, begun, process_time()
        for key in jax.random.split(jax.random.PRNGKey(number), moves):
            state, seen = move(state, key)
            for array in seen:
                np.asarray(array)
        return moves * games / (process_time() - began)

    return rate


def their_passes(peer: Any, layers: Any) -> Rate:
    """Return the rate of the network alone."""
    obs = peer.jnp.asarray(np.random.default_rng(0).integers(0, 2, (TREES, 6, 7, 2)), bool)
    compiled = peer.jax.jit(partial(peer.outputs, layers))
    return partial(passes, lambda seen: peer.jax.block_until_ready(compiled(seen)), obs)
