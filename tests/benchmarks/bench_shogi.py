"""Shogi: rules, evaluations, and the network's share of a search.

Rules are compared with OpenSpiel's, and evaluations with one game at a time. Run with
``pytest tests/benchmarks/bench_shogi.py -m benchmark -s``. The ratios are asserted, not the figures.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.distributions import Categorical

from flyball.app.config import GAMES, Compute, GameConfig, NetworkSettings, PpoSettings, Precision
from flyball.app.core import ConfigKey
from flyball.app.engine import LocalEngine
from flyball.app.games import FINISHED, Observations, open_table
from flyball.app.games.table import Floats
from flyball.app.learning.inference import Policy
from flyball.app.learning.jobs import first_model
from flyball.app.learning.learner import improve
from flyball.app.learning.network import init_policy, load_network, masked_log_probs, threads
from flyball.app.learning.samples import make_samples
from flyball.app.play.gauntlet import GauntletSpec, Opponent
from flyball.app.play.matches import EvaluationManager, MatchPlan, play_match
from flyball.app.play.own_players import Turn
from flyball.app.play.players import policy_of
from flyball.app.play.search import SearchPlayer
from flyball.app.play.selfplay import play_recorded, selfplay_schedule
from flyball.app.store import Checkpoint, FileStore, MemoryStore, Shard, get_checkpoint, put_checkpoint

pytestmark = pytest.mark.benchmark
ROUNDS = 3
SHOGI = GAMES[ConfigKey("shogi_2p")].replace(
    max_moves=100,  # games may be short, because decisions are counted
    network=NetworkSettings(kind="tower", blocks=4, channels=64),
)
MANY, FEW = 1024, 3
SLOT = np.array([0])


def plies_a_second(config: GameConfig, games: int, seed: int) -> float:
    """Play at random; return plies a second, without drawing random numbers. A ply is observed and stepped."""
    table, rng, seconds, plies = open_table(config, games), np.random.default_rng(seed), 0.0, 0
    table.reset(np.arange(games), range(games))
    while len(live := np.flatnonzero(table.seats() != FINISHED)):
        began = process_time()
        _, mask = table.observe(live)
        seconds += process_time() - began
        rows, actions = np.nonzero(mask)
        counts = np.bincount(rows, minlength=len(live))
        drawn = actions[np.cumsum(counts) - counts + (rng.random(len(live)) * counts).astype(np.int64)]
        began = process_time()
        table.step(live, drawn.astype(np.int32))
        seconds += process_time() - began
        plies += len(live)
    return plies / seconds


def test_tables_beside_openspiel() -> None:
    theirs = SHOGI.replace(engine="openspiel")
    for config in (SHOGI, theirs):
        plies_a_second(config, 2, seed=0)
    rows = [(plies_a_second(SHOGI, 256, seed), plies_a_second(theirs, 64, seed)) for seed in range(ROUNDS)]
    ours, others = (median(column) for column in zip(*rows, strict=True))
    print(f"{ours:,.0f} plies/s, by OpenSpiel {others:,.0f}; {ours / others:.1f} times as many")  # noqa: T201
    assert ours > 2 * others


def network_of(config: GameConfig, seed: int) -> torch.nn.Module:
    shape = open_table(config, 0).spec.shape
    return load_network(config.network, shape, init_policy(config.network, shape, seed=seed))


class Rate(NamedTuple):
    """Decisions a second, by wall time and by processor time."""

    wall: float
    processor: float


def alone(config: GameConfig, games: int) -> Rate:
    """Play one game at a time, with a forward pass each position."""
    networks, table, decisions = [network_of(config, seed) for seed in (0, 1)], open_table(config, 1), 0
    temperature, scale = config.evaluation.temperature, table.spec.scale
    began, used = perf_counter(), process_time()
    for game in range(games):
        table.reset(SLOT, [game])
        while (seat := int(table.seats()[0])) != FINISHED:
            obs, mask = table.observe(SLOT)
            with torch.inference_mode():
                logits, _ = networks[seat ^ game % 2](torch.from_numpy(obs).float() / scale)
                choices = Categorical(logits=masked_log_probs(logits / temperature, torch.from_numpy(mask)))
                table.step(SLOT, choices.sample().numpy().astype(np.int32))
            decisions += 1
    return Rate(decisions / (perf_counter() - began), decisions / (process_time() - used))


def in_batches(config: GameConfig, precision: Precision, games: int) -> float:
    """Play a match; return decisions a second of processor time. It runs in this process."""
    shape = open_table(config, 0).spec.shape
    hero, other = (
        Policy(config.network, shape, init_policy(config.network, shape, seed=seed), Compute(precision=precision))
        for seed in (0, 1)
    )
    used = process_time()
    match = play_match(config, hero, other, MatchPlan(games, 1, config.evaluation.temperature))
    return sum(match.lengths) / (process_time() - used)


def gauntlet(config: GameConfig, folder: Path, precision: Precision, games: int) -> GauntletSpec:
    spec, store = open_table(config, 0).spec, FileStore(folder)
    hero, model = (put_checkpoint(store, *first_model(config, spec, seed), None) for seed in (0, 1))
    settings = config.evaluation.replace(batch_games=MANY // 2, opening_plies=0)
    return GauntletSpec(
        store=folder,
        config=config.replace(evaluation=settings),
        model=hero,
        opponents=(Opponent(name="other", kind="model", model=model, games=games),),
        seed=1,
        precision=precision,
    )


async def on_two_processes(spec: GauntletSpec) -> float:
    """Return decisions a second of a gauntlet, by wall time. Two warm processes play it."""
    engine = LocalEngine(workers=2)
    try:
        manager = EvaluationManager(engine)
        await manager.evaluate(spec.replace(config=spec.config.replace(max_moves=4)))
        began = perf_counter()
        (played,) = (await manager.evaluate(spec)).results
        return played.games * played.mean_length / (perf_counter() - began)
    finally:
        await engine.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_evaluation_of_a_tower_beside_one_game_at_a_time(precision: Precision, tmp_path: Path) -> None:
    """Compare decisions a second of two untrained 4 x 64 towers."""
    assert (SHOGI.network.blocks, SHOGI.network.channels) == (4, 64)
    rows = []
    for _ in range(ROUNDS):
        with threads(1):
            one, batched = alone(SHOGI, FEW), in_batches(SHOGI, precision, MANY // 2)
        two = asyncio.run(on_two_processes(gauntlet(SHOGI, tmp_path, precision, MANY)))
        rows.append((one.processor, batched / one.processor, two / one.wall))
    slow, once, twice = (median(column) for column in zip(*rows, strict=True))
    print(  # noqa: T201
        f"{precision}: one game at a time {slow:,.0f} decisions/s of processor time; in batches {once:.1f} times, "
        f"on two processes {twice:.1f} times by the wall clock"
    )
    assert once >= {"bfloat16": 10.0, "float32": 5.0}[precision]
    assert twice >= {"bfloat16": 20.0, "float32": 10.0}[precision]


@pytest.mark.parametrize("key", ["shogi_2p", "minishogi_2p"])
def test_network_takes_most_of_a_search(key: str) -> None:
    """Lists of legal actions instead of masks would hardly help."""
    config, games = GAMES[ConfigKey(key)], np.arange(64)
    shape, table, rng = open_table(config, 0).spec.shape, open_table(config, 64), np.random.default_rng(0)
    network = Policy(config.network, shape, init_policy(config.network, shape, seed=0))
    outputs, seconds = network.outputs, [0.0]

    def timed(obs: Observations) -> Floats:
        began = process_time()
        found = outputs(obs)
        seconds[0] += process_time() - began
        return found

    table.reset(games, [0] * len(games))
    turn = Turn(*table.observe(games), table, games)
    player = SearchPlayer(network, config, simulations=16, temperature=1.0)
    with threads(1):
        player.search(turn, rng.random(len(games)))
        network.outputs = timed  # type: ignore[method-assign]
        began = process_time()
        player.search(turn, rng.random(len(games)))
        share = seconds[0] / (process_time() - began)
    print(f"{key}: {100 * share:.0f}%")  # noqa: T201
    assert share > 0.6


DENSE = NetworkSettings(kind="tower", blocks=2, channels=32)
HEADS = {"dense": DENSE, "planes": DENSE.replace(policy_head="planes")}


def learner_of(network: NetworkSettings) -> tuple[Checkpoint, Shard, float]:
    """Return a new model, rows of its games, and their time. There are 64 games, and the time is the processor's."""
    config, store = SHOGI.replace(network=network, max_moves=40), MemoryStore()
    base = get_checkpoint(store, put_checkpoint(store, *first_model(config, open_table(config, 0).spec, 1), None))
    schedule = selfplay_schedule(64, 2, [], [1.0], 1, opening_plies=0)
    settings = {"model": base.model, "seed": 1, "worker": "bench", "in_flight": 64, "opponents": []}
    play_recorded(config.replace(max_moves=2), [policy_of(base)], schedule, **settings)  # compiles
    began = process_time()
    shard, _ = play_recorded(config, [policy_of(base)], schedule, **settings)
    return base, shard, process_time() - began


def test_heads_of_a_small_tower() -> None:
    """Compare updates by three kinds of policy heads and rows."""
    ways = {"dense, masks": ("dense", True), "dense, lists": ("dense", False), "planes, lists": ("planes", False)}
    with threads(1):
        made = {name: learner_of(network) for name, network in HEADS.items()}
        took: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(ROUNDS + 1):
            for way, (head, masked) in ways.items():
                base, shard, _ = made[head]
                rows = replace(shard, mask=np.asarray(shard.mask)) if masked else shard
                samples, began = make_samples([rows], 1.0, 0.9), process_time()
                improve(base, samples, PpoSettings(epochs=1), seed=1, report=lambda _epoch, _metrics: None)
                if number:  # the first round warms up
                    took[way].append((process_time() - began) / shard.rows)
    times = {way: median(seconds) for way, seconds in took.items()}
    for way, seconds in times.items():
        head = ways[way][0]
        base, shard, played = made[head]
        share = f"playing {1000 * played / shard.rows:.2f} ms a row, {len(base.parameters) / 1e6:.1f} MB"
        print(f"{way}: update {1000 * seconds:.2f} ms a row and epoch, {share}")  # noqa: T201
    assert times["planes, lists"] < times["dense, lists"] < times["dense, masks"]
