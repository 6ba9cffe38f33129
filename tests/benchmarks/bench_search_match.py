"""A match in connect four against pgx and mctx.

Both sides have trained for the same processor time, with the same network and simulations.

Install ``"jax[cpu]" pgx mctx optax`` beside Flyball, and run on one core:
``taskset -c 0 pytest tests/benchmarks/bench_search_match.py -m benchmark -s``. Ours learns by ``flyball train``, theirs
as ``tests/support/pgx_mctx.py`` says. Then both play by our program, so that only their parameters differ.
"""

from pathlib import Path
from time import process_time
from typing import Any

import pytest
import torch

import flyball
from flyball.app.config import GAMES, NetworkSettings
from flyball.app.games import open_table
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import init_policy
from flyball.app.play.match_statistics import match_statistics
from flyball.app.play.matches import MatchPlan, play_match
from flyball.app.play.players import Player, load_player, policy_of
from flyball.app.play.search import SearchPlayer
from flyball.app.store import MemoryStore
from flyball.app.train.state import TrainingFolder

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(7200), pytest.mark.filterwarnings("ignore")]
SIMULATIONS, ITERATIONS, GAMES_A_MATCH = 32, 400, 1000  # ours trains for some ten minutes
NETWORK = NetworkSettings()
CONFIG = GAMES["connect_four_2p"].replace(network=NETWORK)
SPEC = open_table(CONFIG, 0).spec
SETTINGS = {
    "collection.games_per_iteration": 512,
    "collection.num_iterations": ITERATIONS,
    "network.kind": NETWORK.kind,
    "network.hidden": list(NETWORK.hidden),
    "network.residual": NETWORK.residual,
    "search.simulations": SIMULATIONS,
    "training.eval_frequency": ITERATIONS,
    "training.final_games": 0,
}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_match_against_pgx_and_mctx(pgx_mctx: Any, tmp_path: Path, seed: int) -> None:
    torch.set_num_threads(1)
    began = process_time()
    trained = flyball.train("connect_four_2p", SETTINGS, output=tmp_path, seed=seed, progress=print)
    seconds = process_time() - began
    print(f"\nours: {seconds:.0f} s of processor time, {trained.state.games:,} games")  # noqa: T201
    ours = policy_of(TrainingFolder(trained.output).model(trained.model))

    first = init_policy(NETWORK, SPEC.shape, seed)
    layers, positions = pgx_mctx.train(pgx_mctx.layers_of(first), SIMULATIONS, seconds, seed)
    print(f"theirs: the same time, {positions:,} positions")  # noqa: T201
    theirs = Policy(NETWORK, SPEC.shape, pgx_mctx.parameters_of(layers))

    heuristic = load_player(MemoryStore(), "heuristic", SPEC)
    bare = report("ours v. theirs, bare", ours, theirs, seed)
    report("ours v. theirs, searching", searching(ours), searching(theirs), seed)
    report("ours v. heuristic, bare", ours, heuristic, seed)
    report("theirs v. heuristic, bare", theirs, heuristic, seed)
    assert 0 <= bare <= 1


def searching(policy: Policy) -> SearchPlayer:
    return SearchPlayer(policy, CONFIG, SIMULATIONS)


def report(title: str, hero: Player, opponent: Player, seed: int) -> float:
    """Play a match as in evaluations; print and return its score."""
    settings = CONFIG.evaluation
    plan = MatchPlan(GAMES_A_MATCH, seed, settings.temperature, settings.opening_plies)
    found = match_statistics(play_match(CONFIG, hero, opponent, plan), CONFIG.players)
    score = found.score
    print(  # noqa: T201
        f"{title}: {score.mean:.1%} [{score.lower:.1%}, {score.upper:.1%}] of {found.games} games, "
        f"{found.distinct_games} distinct"
    )
    return score.mean
