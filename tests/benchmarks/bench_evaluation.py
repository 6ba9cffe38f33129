"""Evaluation in batches against a forward pass for each position.

Run with ``pytest tests/benchmarks/bench_evaluation.py -m benchmark -s``. Both sides play the same matches between the
same two networks in one run: the same deals, openings and draws, so that their statistics have to be identical. The
other side plays one game at a time. The ratios are asserted, not the figures.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, process_time

import numpy as np
import pytest
import torch
from torch.distributions import Categorical

from flyball.app.config import GAMES, PROFILES, GameConfig
from flyball.app.core import derive_seed
from flyball.app.engine import LocalEngine
from flyball.app.games import open_table
from flyball.app.games.catalogue import openspiel_rules
from flyball.app.learning.dense import ActorCritic
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import MASKED_LOGIT, init_policy, load_network, parameters_to_bytes
from flyball.app.play.gauntlet import GauntletSpec, Opponent, OpponentResult
from flyball.app.play.match_statistics import MatchStatistics, match_games, match_statistics, win_margin
from flyball.app.play.matches import EvaluationManager, MatchPlan, play_match
from flyball.app.play.rng import draw_points, number_streams
from flyball.app.store import FileStore, Manifest, put_checkpoint

pytestmark = pytest.mark.benchmark
ROUNDS = 3
LONGEST = 2000  # decisions


class OneAtATime:
    """The common way: one game at a time.

    It uses OpenSpiel's lists, a forward pass for each position, and ``Categorical``.
    """

    def __init__(self, config: GameConfig, networks: list[ActorCritic], plan: MatchPlan) -> None:
        self.config, self.networks, self.plan = config, networks, plan
        self.rules = openspiel_rules(config)
        kind = self.rules.game.get_type()
        self.tensor = "observation_tensor" if kind.provides_observation_tensor else "information_state_tensor"

    def play(self) -> tuple[MatchStatistics, float]:
        """Return the match's statistics and the seconds that it took. The time to generate the draws is not counted."""
        players = self.config.players
        draws = [self._draws(game) for game in range(self.plan.games)]
        began = perf_counter()
        ends = [self._game(game % players, *drawn) for game, drawn in enumerate(draws)]
        seconds = perf_counter() - began
        returns, truncated, lengths, histories = zip(*ends, strict=True)
        heroes = np.arange(len(ends)) % players
        ended = np.array(returns), heroes, np.array(truncated), np.array(lengths), histories
        games = match_games(*ended, openings=np.zeros(len(ends), np.int64), margin=win_margin(np.array(returns)))
        return match_statistics(games, players), seconds

    def _draws(self, game: int):
        seed = derive_seed(self.plan.seed, "deal", game // self.config.players)
        stream = number_streams(derive_seed(self.plan.seed, "choices"), np.array([game]))
        opening = draw_points(np.full(self.plan.opening_plies, seed, np.uint64), np.arange(self.plan.opening_plies))
        return Random(seed), opening.tolist(), draw_points(stream.repeat(LONGEST), np.arange(LONGEST)).tolist()

    def _game(self, hero: int, chance: Random, opening: list[float], points: list[float]):
        state, moves, decisions = self.rules.game.new_initial_state(), 0, 0
        while not state.is_terminal() and moves != self.config.max_moves:
            legal = state.legal_actions()
            if state.is_chance_node():
                state.apply_action(self._dealt(state, legal, chance.random()))
                continue
            moves += 1
            if len(legal) == 1:
                state.apply_action(legal[0])
            elif opening:
                state.apply_action(self._opened(state.current_player(), legal, opening.pop(0)))
                decisions += 1
            else:
                seat = state.current_player()
                network = self.networks[0 if seat == hero else 1]
                state.apply_action(self._chosen(network, state, seat, legal, points[decisions]))
                decisions += 1
        over = state.is_terminal()
        returns = self.rules.outcome(state) if over else np.zeros(self.config.players, dtype=np.float32)
        return returns, not over, decisions, state.history()

    def _dealt(self, state, legal: list[int], point: float) -> int:
        if self.rules.codec.uniform_chance:
            return legal[int(point * len(legal))]
        for action, probability in state.chance_outcomes():
            point -= probability
            if point < 0:
                return action
        return legal[-1]

    def _opened(self, seat: int, legal: list[int], point: float) -> int:
        own = sorted(self.rules.codec.from_game[seat, legal])
        return int(self.rules.codec.to_game[seat, own[int(point * len(own))]])

    def _chosen(self, network: ActorCritic, state, seat: int, legal: list[int], point: float) -> int:
        codec = self.rules.codec
        raw = np.array(getattr(state, self.tensor)(seat), dtype=np.float32)
        obs = codec.encode(raw[None], np.array([seat], dtype=np.int8))
        mask = torch.zeros(self.rules.spec.actions, dtype=torch.bool)
        mask[codec.from_game[seat, legal]] = True
        with torch.inference_mode():
            logits, _ = network(torch.from_numpy(obs).float())
            legal_logits = logits[0].masked_fill(~mask, MASKED_LOGIT)
            if self.plan.temperature == 0:
                return int(codec.to_game[seat, int(legal_logits.argmax())])
            choices = Categorical(logits=legal_logits / self.plan.temperature)
            action = int((choices.probs.cumsum(0) <= point).sum())  # as sample() does, with a point from our stream
        return int(codec.to_game[seat, action])


def parameters_of(config: GameConfig, seed: int):
    spec = openspiel_rules(config).spec
    return spec, init_policy(config.network, spec.shape, seed=seed)


def policies(config: GameConfig) -> list[Policy]:
    made = [parameters_of(config, seed) for seed in (0, 1)]
    return [Policy(config.network, spec.shape, tensors) for spec, tensors in made]


def networks(config: GameConfig) -> list[ActorCritic]:
    made = [parameters_of(config, seed) for seed in (0, 1)]
    return [load_network(config.network, spec.shape, tensors) for spec, tensors in made]


def batched(config: GameConfig, plan: MatchPlan) -> tuple[MatchStatistics, float]:
    hero, opponent = policies(config)
    began = perf_counter()
    games = play_match(config, hero, opponent, plan)
    return match_statistics(games, config.players), perf_counter() - began


def stored(config: GameConfig, folder: Path) -> list[str]:
    """Store both networks as checkpoints; return their hashes."""
    names = []
    for seed in (0, 1):
        spec, tensors = parameters_of(config, seed)
        manifest = Manifest(
            config_key=config.key, network=config.network, obs_size=spec.observation_size, actions=spec.actions,
            step=0, parent=None, optimizer=None,
        )  # fmt: skip
        names.append(put_checkpoint(FileStore(folder), manifest, parameters_to_bytes(tensors), None))
    return names


async def two_processes(spec: GauntletSpec) -> tuple[OpponentResult, float]:
    """Play on two warm worker processes."""
    opponent = spec.opponents[0]
    engine = LocalEngine(workers=2)
    try:
        warming = opponent.replace(games=2 * spec.config.players)
        await asyncio.gather(*(EvaluationManager(engine).evaluate(with_opponent(spec, warming)) for _ in range(2)))
        began = perf_counter()
        result = await EvaluationManager(engine).evaluate(spec)
        return result.results[0], perf_counter() - began
    finally:
        await engine.close()


def with_opponent(spec: GauntletSpec, opponent: Opponent) -> GauntletSpec:
    return spec.replace(opponents=(opponent,))


GOALS = {"hearts_4p": 35.0, "connect_four_2p": 35.0, "othello_2p": 30.0}
SIZES = {"chinese_checkers_3p": (384, 3), "maedn_4p": (512, 8), "tic_tac_toe_2p": (16_384, 100)}
"""Games in batches and one at a time, where they are long."""


@pytest.mark.parametrize("key", [key for key in PROFILES["full"] if "shogi" not in key])  # see bench_shogi.py
def test_batched_evaluation_plays_the_same_games_faster(key: str, tmp_path: Path) -> None:
    dealt = {"engine": "openspiel"} if key == "hearts_4p" else {}  # our own rules draw other hands from a seed
    config = GAMES[key].replace(**dealt)
    many, few = SIZES.get(key, (2048, 24))
    settings = config.evaluation.replace(batch_games=many // 2)
    hero, model = stored(config, tmp_path)
    opponent = Opponent(name="other", kind="model", model=model, games=many)
    rows = []
    for seed in range(ROUNDS):
        spec = GauntletSpec(
            store=tmp_path, config=config.replace(evaluation=settings), model=hero, opponents=(opponent,), seed=seed
        )
        plies = settings.openings(dealt=open_table(config, 0).spec.dealt)
        plan = MatchPlan(few, derive_seed(seed, "match", model), settings.temperature, plies)
        alone, seconds = OneAtATime(config, networks(config), plan).play()
        assert batched(config, plan)[0] == alone
        one, seconds_one = batched(config, replace(plan, games=many))
        two, seconds_two = asyncio.run(two_processes(spec))
        assert one == MatchStatistics.model_validate(two.model_dump(include=set(MatchStatistics.model_fields)))
        rows.append((few / seconds, many / seconds_one, many / seconds_two))
    slow, fast, faster = (median(column) for column in zip(*rows, strict=True))
    goal = GOALS.get(key, 20.0)
    print(  # noqa: T201
        f"{key}: {slow:,.1f} games/s one at a time; batched {fast:,.0f} in one process ({fast / slow:.1f} times), "
        f"{faster:,.0f} in two ({faster / slow:.1f} times, goal {goal:.0f})"
    )
    assert faster / slow >= goal


@pytest.mark.parametrize("key", PROFILES["laptop"])
def test_half_the_games_of_a_match_take_more_than_half_its_time(key: str) -> None:
    """A step takes about the same time however few games take part, so shorter rounds of a gate save little."""
    torch.set_num_threads(1)  # as in the processes of evaluations
    config, milliseconds = GAMES[key], dict[int, float]()
    plies = config.evaluation.openings(dealt=open_table(config, 0).spec.dealt)
    hero, opponent = policies(config)
    for games in (24, 48, 102, 204):
        taken = []
        for _ in range(5):
            began = process_time()
            play_match(config, hero, opponent, MatchPlan(games, 1, config.evaluation.temperature, plies))
            taken.append(1000 * (process_time() - began))
        milliseconds[games] = min(taken)
    print(f"{key}: " + ", ".join(f"{games} games {taken:.0f} ms" for games, taken in milliseconds.items()))  # noqa: T201
    assert milliseconds[48] > milliseconds[102] / 2
