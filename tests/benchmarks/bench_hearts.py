"""Hearts: our rules and self-play against OpenSpiel from Python.

Both are measured in one run, by CPU time and on one thread, unless a test says otherwise. Run with
``pytest tests/benchmarks/bench_hearts.py -m benchmark -s``. Ratios are asserted, not figures.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np
import pyspiel
import pytest
import torch
from open_spiel.python.observation import make_observation
from taking_turns import median_rates
from torch.distributions import Categorical

from flyball.app.config import GAMES, GameConfig
from flyball.app.core import ModelHash, NetworkShape, derive_seed
from flyball.app.core.kernels import kernel
from flyball.app.games import FINISHED, open_table
from flyball.app.games.hearts import bots
from flyball.app.games.hearts.rules import HeartsRules
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import init_policy, load_network
from flyball.app.play.players import HeuristicPlayer
from flyball.app.play.recording import ShardRecorder
from flyball.app.play.rollout import Rollout, Schedule
from flyball.app.store import ShardMeta

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]
CONFIG = GAMES["hearts_4p"]
SHAPE = NetworkShape(270, 52)
GAME = pyspiel.load_game(CONFIG.game)
ROUNDS = 5
SLOTS = 1024
BIT = 1 << np.arange(52)
PLACE = np.zeros(53, dtype=np.int64)
PLACE[BIT % 53] = np.arange(52)  # of each single bit, as powers of two have different remainders modulo 53


@kernel
def pick(mask: np.ndarray, state: int, actions: np.ndarray) -> int:
    """Choose the first legal action at or after a random one.

    The search wraps around the deck. Returns the generator's next state.
    """
    for k in range(len(mask)):
        legal = 0
        for card in range(52):
            legal |= BIT[card] if mask[k, card] else 0
        state = state * 0x5851F42D4C957F2D + 0x14057B7EF767814F  # Knuth's linear congruences modulo 2**64
        after = legal & -(1 << ((state >> 32 & 0xFFFFFFFF) * 52 >> 32))
        cards = after or legal
        actions[k] = PLACE[(cards & -cards) % 53]
    return state


def play(config: GameConfig, seed: int, hands: int, slots: int) -> int:
    """Play hands at random, observing and masking every decision; return their number."""
    table, state, decisions = open_table(config, slots), seed, 0
    for first in range(seed * hands, (seed + 1) * hands, slots):
        table.reset(np.arange(slots), range(first, first + slots))
        while len(live := np.flatnonzero(table.seats() != FINISHED)):
            mask = table.observe(live)[1]  # results are dropped here, as theirs are overwritten
            actions = np.empty(len(live), dtype=np.int32)
            state = pick(mask, state, actions)
            table.step(live, actions)
            decisions += len(live)
    return decisions


def their_decisions(seed: int, hands: int = 60) -> int:
    """Make the same decisions with OpenSpiel's fast observer.

    It plays one game at a time, and keeps its 5,088 raw features.
    """
    rng, decisions = np.random.default_rng(seed), 0
    points = rng.random(hands * 200).tolist()
    observation = make_observation(GAME, pyspiel.IIGObservationType(perfect_recall=True))
    for _ in range(hands):
        state = GAME.new_initial_state()
        while not state.is_terminal():
            legal = state.legal_actions()
            if not state.is_chance_node() and len(legal) > 1:
                observation.set_from(state, state.current_player())
                decisions += 1
            state.apply_action(legal[int(points.pop() * len(legal))])
    return decisions


def test_the_environment_alone() -> None:
    theirs = CONFIG.replace(engine="openspiel")
    ours, more, same, raw = median_rates(
        lambda seed: play(CONFIG, seed, 4 * SLOTS, SLOTS),
        lambda seed: play(CONFIG, seed, 4 * SLOTS, 2 * SLOTS),
        lambda seed: play(theirs, seed, 64, 64),
        their_decisions,
        rounds=ROUNDS,
    )
    print(  # noqa: T201
        f"environment: {ours:,.0f} decisions/s, {more:,.0f} with twice as many games; OpenSpiel {same:,.0f} with these "
        f"features ({ours / same:.0f} times), {raw:,.0f} with its own ({ours / raw:.1f} and {more / raw:.1f} times)"
    )
    assert ours / same >= 100
    assert ours / raw >= 30


def on_two_cores(ours: Callable[[int], int], theirs: Callable[[int], int]) -> tuple[float, float, float]:
    """Return units of work a second of one program, by the clock.

    There are three rates: ours in two threads, theirs in one and theirs in two.

    Our kernels and multiplications release the interpreter's lock, so threads share the cores; OpenSpiel's calls keep
    it. Two programs would make twice as many of theirs: core by core, the ratios are those of the tests before.
    """

    def pace(work: Callable[[int], int], threads: int) -> float:
        with ThreadPoolExecutor(threads) as pool:
            began = perf_counter()
            return sum(pool.map(work, range(threads))) / (perf_counter() - began)

    ours(0)
    rounds = [(pace(ours, 2), pace(theirs, 1), pace(theirs, 2)) for _ in range(ROUNDS)]
    mine, alone, two = np.max(rounds, axis=0).tolist()  # the maximum, because other load only slows down
    return mine, alone, two


def test_the_environment_of_one_program_on_two_cores() -> None:
    ours, alone, two = on_two_cores(lambda seed: play(CONFIG, seed, 16 * SLOTS, 2 * SLOTS), their_decisions)
    ratio = ours / max(alone, two)
    print(  # noqa: T201
        f"two threads: {ours:,.0f} decisions/s; OpenSpiel with its own features {alone:,.0f}, in two "
        f"threads {two:,.0f}; {ratio:.0f} times"
    )
    assert ratio >= 50


def our_hands(seed: int, hands: int = 2 * SLOTS) -> int:
    """Play hands of one model against itself into a shard. Forced moves are left out."""
    seating = np.zeros((hands, 4), dtype=np.int8)
    schedule = Schedule([derive_seed(seed, game) for game in range(hands)], seating, (1.0,), seed)
    recorder = ShardRecorder()
    outcomes = Rollout(open_table(CONFIG, SLOTS), [policy()], schedule, recorder).run()
    about = {"config_key": CONFIG.key, "rules_version": "", "model": ModelHash("a" * 64), "opponents": ()}
    meta = ShardMeta(**about, seed=seed, worker="", temperature=1.0)
    return recorder.shard(outcomes, meta).games


def parameters():
    return init_policy(CONFIG.network, SHAPE, seed=0)


def policy() -> Policy:
    return Policy(CONFIG.network, SHAPE, parameters())


def sequential_hands(seed: int, hands: int = 12) -> int:
    """Play sequentially, with a forward pass for each position.

    It makes a ``Categorical`` for each position and a record for each decision. It also asks about forced moves, a
    quarter more decisions a hand than ours. The observation is OpenSpiel's information state, of which the network sees
    270 features, so that it is no larger than ours. To encode the observations as ours would take still longer.
    """
    network, rng = load_network(CONFIG.network, SHAPE, parameters()), np.random.default_rng(seed)
    records = []
    for _ in range(hands):
        state = GAME.new_initial_state()
        while not state.is_terminal():
            legal = state.legal_actions()
            if state.is_chance_node():
                state.apply_action(legal[int(rng.random() * len(legal))])
                continue
            obs = torch.tensor(state.information_state_tensor()[:270]).unsqueeze(0)
            mask = torch.tensor(state.legal_actions_mask(), dtype=torch.bool).unsqueeze(0)
            with torch.no_grad():
                logits, value = network(obs)
                policy = Categorical(logits=logits.masked_fill(~mask, -1e9))
                action = policy.sample()
                log_prob = policy.log_prob(action)
            records.append((obs, mask, action.item(), log_prob.item(), value.item(), state.current_player()))
            state.apply_action(records[-1][2])
    return hands


def test_self_play_with_recorded_rows() -> None:
    ours, sequential = median_rates(our_hands, sequential_hands, rounds=ROUNDS)
    ratio = ours / sequential
    print(f"self-play: {ours:,.0f} hands/s, one decision at a time {sequential:,.0f}, {ratio:.0f} times")  # noqa: T201
    assert ratio >= 100


def test_self_play_with_recorded_rows_on_two_cores() -> None:
    ours, alone, two = on_two_cores(our_hands, sequential_hands)
    ratio = ours / max(alone, two)
    print(  # noqa: T201
        f"two threads: {ours:,.0f} hands/s; one decision at a time {alone:,.0f}, in two threads {two:,.0f}; "
        f"{ratio:.0f} times"
    )
    assert ratio >= 100


@pytest.mark.parametrize(("level", "hands"), [("easy", 1024), ("normal", 1024), ("hard", 32)])
def test_what_the_bots_cost(level: str, hands: int) -> None:
    def work(seed: int) -> int:
        seating = np.zeros((hands, 4), dtype=np.int8)
        schedule = Schedule(range(seed * hands, (seed + 1) * hands), seating, (1.0,), seed)
        player = HeuristicPlayer(bots.LEVELS[level](HeartsRules()))
        return int(Rollout(open_table(CONFIG, hands), [player], schedule).run().lengths.sum())

    (decisions,) = median_rates(work, rounds=3)
    print(f"{level}: {1e6 / decisions:,.1f} µs a decision, the table included")  # noqa: T201
    assert decisions > 0
