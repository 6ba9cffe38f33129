"""The loop of a training run: games, learning, checkpoints and interruptions."""

import dataclasses
import json
import shutil

import beacon_games
import numpy as np
import pytest
import torch

from flyball.app.config import GAMES, SELF, GameConfig, PipelinePpoSettings, PipelineSettings
from flyball.app.core import ModelHash
from flyball.app.games import open_table
from flyball.app.play.inspection import history
from flyball.app.play.players import RandomPlayer, policy_of
from flyball.app.play.search import Unsearchable
from flyball.app.store import FileStore
from flyball.app.train.game import UnfitSettings, collect, divided, evaluate, lessons, run_game
from flyball.app.train.learning import first_policy
from flyball.app.train.methods import METHODS, scheduled
from flyball.app.train.networks import TooManyDivergences, most_rise
from flyball.app.train.run import TrainingRun
from flyball.app.train.state import NoRun, RunExists, RunHead, RunState, TrainingFolder

TINY = {
    "collection": {"games_per_iteration": 32, "num_iterations": 5},
    "network": {"hidden": [16]},
    "ppo": {"epochs": 2, "batch_size": 64, "target_kl": 1.0},
    "training": {"eval_games": 8, "checkpoint_frequency": 2, "early_stopping": False},
}
SEARCH = {"simulations": 4, "considered": 4, "batch_size": 32, "epochs": 2}
MODEL = ModelHash("a" * 64)


def settings_of(**changes) -> PipelineSettings:
    tree = {section: TINY.get(section, {}) | changes.get(section, {}) for section in {*TINY, *changes}}
    return PipelineSettings.model_validate(tree)


def searching(search=None, **changes) -> PipelineSettings:
    return settings_of(search=SEARCH | (search or {}), **changes).replace(backend="search")


class Listener:
    def __init__(self, interrupt_at: int | None = None, error: type[BaseException] = KeyboardInterrupt) -> None:
        self._error = error
        self.iterations, self.begun = [], []
        self._interrupt_at = interrupt_at

    def begin(self, evaluation) -> None:
        self.begun.append(evaluation)

    def write(self, iteration) -> None:
        if iteration.number == self._interrupt_at:
            raise self._error
        self.iterations.append(iteration)

    def close(self) -> None:
        """Do nothing."""


def begin(folder, settings, key="tic_tac_toe_2p", seed=1, *sinks, said=None) -> TrainingRun:
    place = TrainingFolder(folder)
    with place.held():
        place.begin(RunHead(config=key, seed=seed, settings=settings))
    return resume(folder, *sinks, said=said)


def resume(folder, *sinks, said=None) -> TrainingRun:
    place = TrainingFolder(folder)
    head = place.head()
    method = METHODS[head.settings.backend](place, head, run_game(GAMES[head.config], head.settings))
    method.say = (lambda _text: None) if said is None else said.append
    return TrainingRun(method, sinks)


def assert_resumed_as_whole(folder, settings, key, interrupted_at) -> tuple[Listener, Listener, Listener, RunState]:
    """Compare a run that is interrupted and resumed with a whole one; return their listeners and last state."""
    whole, before, after = Listener(), Listener(interrupted_at), Listener()
    expected = begin(folder / "whole", settings, key, 1, whole).run()
    with pytest.raises(KeyboardInterrupt):
        begin(folder / "cut", settings, key, 1, before).run()
    assert resume(folder / "cut", after).run() == expected
    for iteration in before.iterations + after.iterations:
        assert figures(iteration) == figures(whole.iterations[iteration.number - 1])
    return whole, before, after, expected


@pytest.mark.parametrize("name", ["Beacon", "DimBeacon"])
def test_pixels_of_any_brightness_are_learned(tmp_path, name):
    """Naming the bright place wins 3/4 of a game from random."""
    config = GameConfig(key="beacon_2p", game=f"beacon_games:{name}", players=2)
    tree = {"collection": {"games_per_iteration": 256, "num_iterations": 25}, "training": {"eval_games": 2}}
    settings = PipelineSettings.model_validate(tree)
    place, head = TrainingFolder(tmp_path), RunHead(config=config.key, seed=1, settings=settings)
    with place.held():
        place.begin(head)
    run = TrainingRun(METHODS["policy_gradient"](place, head, run_game(config, settings)))
    policy = policy_of(place.model(run.run().model))
    images = np.array([getattr(beacon_games, name).image(at) for at in range(4)])
    log_probs, _ = policy.forward(images, np.ones((4, 4), dtype=np.bool_))
    assert np.exp(log_probs).diagonal().mean() - 1 / 4 == pytest.approx(0.75, abs=0.02)


def figures(iteration):
    told = {field.name: getattr(iteration, field.name) for field in dataclasses.fields(iteration)}
    distributions = told.pop("distributions")
    del told["seconds"]
    return told, distributions.values.tolist(), distributions.advantages.tolist(), dict(distributions.gradients)


def test_an_iteration_collects_learns_evaluates_and_tells(tmp_path) -> None:
    listener = Listener()
    state = begin(tmp_path, settings_of(), "tic_tac_toe_2p", 1, listener).run()
    assert [iteration.number for iteration in listener.iterations] == [1, 2, 3, 4, 5]
    first = listener.iterations[0]
    assert first.games == 32
    assert first.rows > 32 * 4
    assert first.mean_return == pytest.approx(0, abs=1e-6), "both seats are recorded, and their outcomes sum to 0"
    assert first.metrics["epochs"] == 2
    assert 0 < first.metrics["entropy"] < np.log(9)
    assert first.metrics["approx_kl"] >= 0
    assert first.metrics["gradient_norm"] > 0
    assert first.evaluation.opponent == "random"
    assert first.evaluation.games == 8
    assert first.distributions.gradients.keys() >= {"policy_head.weight", "trunk.0.weight"}
    assert len(first.distributions.values) == min(first.rows, 1024)
    assert (state.iteration, state.games) == (5, 160)
    assert TrainingFolder(tmp_path).state() == state


def test_the_same_seed_gives_the_same_weights_bit_for_bit(tmp_path) -> None:
    models = [
        begin(tmp_path / str(number), settings_of(), "tic_tac_toe_2p", seed).run().model
        for number, seed in enumerate((1, 1, 2))
    ]
    assert models[0] == models[1] != models[2]


@pytest.mark.parametrize("interrupted_at", [1, 3, 4])
@pytest.mark.parametrize("start", ["random", "behavioral_clone"])
def test_interrupted_and_resumed_equals_uninterrupted(tmp_path, interrupted_at, start) -> None:
    settings = settings_of(
        collection={"initial_policy": start, "opponents": {SELF: 0.5, "heuristic": 0.5}},
        cloning={"rounds": 2, "games_per_round": 16},
    )
    whole, before, after, _ = assert_resumed_as_whole(tmp_path, settings, "connect_four_2p", interrupted_at)
    assert (before.begun, after.begun) == (whole.begun, []), "the first policy is told of once"
    assert len(whole.begun) == 1
    assert after.iterations[0].number == interrupted_at, "no whole iteration is lost"


def test_crashed_run_resumes_from_its_last_checkpoint(tmp_path) -> None:
    whole, before, after = Listener(), Listener(4, MemoryError), Listener()
    expected = begin(tmp_path / "whole", settings_of(), "connect_four_2p", 1, whole).run()
    with pytest.raises(MemoryError):
        begin(tmp_path / "cut", settings_of(), "connect_four_2p", 1, before).run()
    assert resume(tmp_path / "cut", after).run() == expected
    assert [one.number for one in after.iterations] == [3, 4, 5]


@pytest.mark.parametrize("interrupted_at", [1, 3, 4])
def test_search_run_interrupted_and_resumed_equals_uninterrupted(tmp_path, interrupted_at) -> None:
    settings = searching(collection={"opponents": {SELF: 0.5, "random": 0.5}, "opening_plies": 2})
    *_, expected = assert_resumed_as_whole(tmp_path, settings, "tic_tac_toe_2p", interrupted_at)
    assert stored_shards(tmp_path / "cut") == {shard.key for shard in expected.replayed}


def stored_shards(folder) -> set[str]:
    return set(FileStore(folder / "shards").keys())


def test_search_run_replays_rows_of_earlier_iterations(tmp_path) -> None:
    listener = Listener()
    settings = searching({"learning_rate": 1e-2, "learning_rate_end": 1e-3})
    state = begin(tmp_path, settings, "tic_tac_toe_2p", 1, listener).run()
    shards = [TrainingFolder(tmp_path).shard(shard) for shard in state.replayed]
    assert all(shard.policy is not None for shard in shards)
    iterations = listener.iterations
    replayed = [iteration.metrics["replayed_rows"] for iteration in iterations]
    assert replayed[:3] == [0, iterations[0].rows, iterations[1].rows], "a quarter of all rows is one shard's"
    assert state.rows == sum(iteration.rows for iteration in iterations)
    rates = [iteration.metrics["learning_rate"] for iteration in iterations]
    assert rates == pytest.approx(np.linspace(1e-2, 1e-3, 5))
    assert iterations[-1].metrics["divergence"] < iterations[0].metrics["divergence"]
    assert iterations[0].metrics["epochs"] == 2
    assert TrainingFolder(tmp_path).model(state.model).manifest.backend == "search"


def test_search_run_that_replays_nothing_stores_no_shards(tmp_path) -> None:
    place, none = TrainingFolder(tmp_path / "later"), {"replay_rows": 0}
    assert begin(tmp_path / "never", searching(none, collection={"num_iterations": 2})).run().replayed == ()
    assert not (tmp_path / "never" / "shards").exists()
    begin(place.path, searching(collection={"num_iterations": 2})).run()
    place.change(place.head().replace(settings=searching(none, collection={"num_iterations": 3})))
    assert resume(place.path).run().replayed == ()
    assert stored_shards(place.path) == set()


def test_run_that_lost_its_shards_says_so(tmp_path) -> None:
    begin(tmp_path / "run", searching(collection={"num_iterations": 2})).run()
    place = TrainingFolder(shutil.move(tmp_path / "run", tmp_path / "moved"))
    place.change(place.head().replace(settings=searching(collection={"num_iterations": 3})))
    shutil.rmtree(tmp_path / "moved" / "shards")
    with pytest.raises(NoRun, match="lacks a shard"):
        resume(tmp_path / "moved").run()


def test_search_settings_change_what_is_learned(tmp_path) -> None:
    critic = ({"root_value_share": 1.0}, {"value_lambda": 0.5})
    changes = ({}, {"simulations": 8}, *critic, {"replay_rows": 0}, {"symmetries": False})
    models = {
        begin(tmp_path / str(number), searching(change, collection={"num_iterations": 2})).run().model
        for number, change in enumerate(changes)
    }
    assert len(models) == len(changes)


def test_checkpoint_keeps_only_the_current_and_best_model(tmp_path) -> None:
    state = begin(tmp_path, settings_of(training={"patience": 3, "early_stopping": True})).run()
    place = TrainingFolder(tmp_path)
    current, best = place.model(state.model), place.model(state.best.model)
    needed = {state.model, state.best.model, current.manifest.optimizer, best.manifest.optimizer} - {None}
    assert set(FileStore(place.models).keys()) == needed
    assert best.manifest.step == state.best.iteration


FLAT = {"learning_rate": 1e-9}
"""PPO settings by which a policy stays as strong as it is."""


def test_plateau_needs_evidence_to_end_a_run(tmp_path) -> None:
    said, training = [], {"early_stopping": True, "patience": 4, "least_rise": 2.0}
    settings = settings_of(collection={"num_iterations": 50}, ppo=FLAT, training=training)
    assert begin(tmp_path / "early", settings, said=said).run().iteration == 4
    assert "over 4 evaluations the outcome rose by at most" in said[-1]
    listener, training = Listener(), {"early_stopping": True, "patience": 3, "eval_frequency": 1}
    settings = settings_of(collection={"num_iterations": 12}, ppo=FLAT, training=training)
    state = begin(tmp_path / "late", settings, "tic_tac_toe_2p", 1, listener).run()
    assert len({one.evaluation.outcome for one in listener.iterations}) == 1
    assert (state.iteration, state.best.iteration) == (12, 12)


def test_most_rise_ends_few_rising_runs_and_most_flat_ones() -> None:
    """Runs that rise by exactly the least rise end with probability 0.05. Runs that rise by 0.1 never end early."""
    assert most_rise([(0.1, 0.0), (0.2, 0.0), (0.3, 0.0)]) == pytest.approx(0.2), "without noise"
    rng, stderr, least, share = np.random.default_rng(1), 0.01, 0.02, {}
    for rise in (0.0, least, 0.1):
        series = np.linspace(0, rise, 20) + rng.normal(0, stderr, (1000, 20))
        share[rise] = np.mean([most_rise([(outcome, stderr) for outcome in run]) < least for run in series])
    assert share[0.0] > 0.7
    assert 0.03 < share[least] < 0.07
    assert share[0.1] == 0


def test_a_folder_holds_one_run(tmp_path) -> None:
    begin(tmp_path, settings_of(collection={"num_iterations": 1})).run()
    with pytest.raises(RunExists):
        begin(tmp_path, settings_of())
    with pytest.raises(NoRun):
        resume(tmp_path / "elsewhere")
    path = tmp_path / "state.json"
    earlier = json.loads(path.read_text()) | {"stale": 3}  # as an earlier version wrote it
    del earlier["recent"]
    path.write_text(json.dumps(earlier))
    assert resume(tmp_path).run().iteration == 1
    path.write_text(json.dumps({"iteration": -1}))
    with pytest.raises(NoRun, match="damaged"):
        resume(tmp_path).run()


def test_it_stops_when_enough_was_played(tmp_path) -> None:
    before = torch.random.get_rng_state()
    assert begin(tmp_path, settings_of(training={"max_episodes": 40})).run().games == 64
    assert torch.equal(before, torch.random.get_rng_state()), "global randomness is not touched"


def test_diverging_update_is_discarded_and_the_next_are_smaller(tmp_path) -> None:
    listener, said = Listener(), []
    settings = settings_of(ppo={"learning_rate": 0.5, "max_kl": 0.2}, training={"max_recoveries": 50})
    begin(tmp_path, settings, "tic_tac_toe_2p", 1, listener, said=said).run()
    first, second = listener.iterations[:2]
    assert first.recovered
    assert second.metrics["learning_rate"] == first.metrics["learning_rate"] / 2
    assert second.metrics["entropy_coef"] > first.metrics["entropy_coef"]
    assert "discarded" in said[1]


@pytest.mark.parametrize(
    "settings",
    [
        settings_of(ppo={"learning_rate": 0.5, "max_kl": 1e-9}, training={"max_recoveries": 1}),
        searching({"value_coef": 1e39}, training={"max_recoveries": 1}),
    ],
    ids=["PPO", "search"],
)
def test_what_diverges_again_and_again_fails(tmp_path, settings) -> None:
    listener = Listener()
    with pytest.raises(TooManyDivergences, match="2 updates diverged in 2 iterations"):
        begin(tmp_path, settings, "tic_tac_toe_2p", 1, listener).run()
    first, second = listener.iterations
    assert first.recovered
    assert second.metrics["learning_rate"] == first.metrics["learning_rate"] / 2
    assert "policy_loss" not in first.metrics or settings.backend != "search"


def test_schedules_and_shares_are_divided_as_set() -> None:
    ppo = PipelinePpoSettings(
        learning_rate=1e-3, learning_rate_end=1e-4, entropy_coef=0.02, entropy_coef_end=0.0, clip_epsilon=0.2
    )
    assert scheduled(ppo, 0, 0) == ppo
    assert scheduled(ppo, 1, 0).learning_rate == pytest.approx(1e-4)
    assert scheduled(ppo, 0.5, 0).entropy_coef == pytest.approx(0.01)
    cosine = ppo.replace(schedule="cosine")
    assert scheduled(cosine, 0.25, 0).learning_rate > scheduled(ppo, 0.25, 0).learning_rate
    careful = scheduled(ppo, 0, 1)
    assert careful.learning_rate == 5e-4
    assert careful.clip_epsilon == 0.1, "lower, not higher"
    steady = PipelinePpoSettings()
    assert scheduled(steady, 1, 0) == steady
    assert divided(100, {SELF: 1.0, "random": 3.0}) == {SELF: 25, "random": 75}
    assert sum(divided(7, {"a": 0.2, "b": 0.3, "c": 0.1}).values()) == 7


@pytest.mark.parametrize(
    ("opponents", "all_seats", "seats"),
    [({SELF: 1.0}, True, 4), ({SELF: 1.0}, False, 1), ({"random": 1.0}, True, 1), ({SELF: 1, "random": 1}, True, 2.5)],
)
def test_rows_are_those_of_the_seats_that_learn(opponents, all_seats, seats) -> None:
    settings = settings_of(
        collection={"opponents": opponents, "games_per_iteration": 16}, env={"collect_all_seats": all_seats}
    )
    game = run_game(GAMES["hearts_4p"], settings)
    games = collect(game, MODEL, RandomPlayer(), settings, seed=3)
    episodes = len(np.unique(games.shard.game * 4 + games.shard.seat))
    assert episodes == 16 * seats
    assert 0 < games.mean_points < 26
    assert games.shard.meta.opponents == tuple(name for name in opponents if name != SELF or not all_seats)


def test_all_passing_directions_come_up_and_no_game_twice() -> None:
    """On-policy data: new deals each iteration."""
    settings = settings_of(env={"reward_mode": "per_trick"})
    game = run_game(GAMES["hearts_4p"], settings)
    shards = [collect(game, MODEL, RandomPlayer(), settings, seed).shard for seed in (1, 2)]
    first, second = ([tuple(history(shard, number)) for number in range(shard.games)] for shard in shards)
    assert {actions[0] for actions in first} == {0, 1, 2, 3}, "the first chance outcome is the direction"
    assert not set(first) & set(second)


def test_a_student_does_what_its_teacher_does() -> None:
    settings = settings_of(
        collection={"initial_policy": "behavioral_clone"},
        cloning={"teacher": "heuristic", "rounds": 4, "games_per_round": 128, "learning_rate": 3e-3, "epochs": 2},
        network={"hidden": [64]},
    )
    game = run_game(GAMES["connect_four_2p"], settings)
    said: list[str] = []
    student = first_policy(game, settings, 1, said.append)
    assert student.manifest.step == 4
    assert student.optimizer is None, "what Adam knows of imitating is no help in reinforcement"
    teaching = lessons(game, game.bot("heuristic"), MODEL, 64, seed=9, opening_plies=0)
    log_probs, values = policy_of(student).forward(teaching.obs, teaching.mask)
    agreed = np.exp(log_probs[np.arange(teaching.rows), teaching.action]).mean()
    assert agreed > 1.5 / teaching.mask.sum(axis=1).mean()
    outcome = teaching.returns[teaching.game, teaching.seat]
    assert np.corrcoef(values, outcome)[0, 1] > 0.1
    assert len(said) == 1 + 4


def test_openings_vary_games_of_a_deterministic_teacher() -> None:
    game = run_game(GAMES["minishogi_2p"], settings_of())
    teacher = game.bot("search")

    def games(opening_plies: int) -> set[tuple[int, ...]]:
        shard = lessons(game, teacher, MODEL, 8, seed=1, opening_plies=opening_plies)
        return {tuple(shard.action[shard.game == number].tolist()) for number in range(8)}

    def clone(opening_plies: int) -> str:
        beginning = {"initial_policy": "behavioral_clone", "opening_plies": opening_plies}
        settings = settings_of(collection=beginning, cloning={"teacher": "search", "games_per_round": 8})
        return first_policy(game, settings, 1, lambda _text: None).model

    assert len(games(0)) == 1, "from the same position the bot always plays the same"
    assert len(games(8)) >= 7
    assert clone(0) != clone(8), "the openings of the run are those of the lessons"


def test_evaluation_of_equals_is_even_and_of_a_better_is_not() -> None:
    settings = settings_of()
    game = run_game(GAMES["hearts_4p"], settings)
    bot = game.bot("heuristic")
    equal = evaluate(game, bot, "heuristic", games=6, temperature=0, seed=1)
    assert equal.games == 8, "whole rotations"
    assert equal.outcome == pytest.approx(0, abs=1e-7)
    assert equal.stderr == pytest.approx(0, abs=1e-7), "all seats of a deal, played by the same"
    better = evaluate(game, bot, "random", games=200, temperature=0, seed=1)
    assert better.outcome > 4 * better.stderr
    assert equal.points > 6.4 > 3 > better.points
    assert 0 <= better.moon_rate < 0.3
    assert 0.25 < better.win_share <= 1


def test_settings_that_do_not_fit_the_game_are_refused() -> None:
    with pytest.raises(UnfitSettings, match=r"network.obs_dim is 271; hearts_4p has 270"):
        run_game(GAMES["hearts_4p"], settings_of(network={"obs_dim": 271}))
    seeds = settings_of(network={"obs_dim": 270, "action_dim": 52, "hidden": None}, env={"game": "hearts(hands=4)"})
    game = run_game(GAMES["hearts_4p"], seeds)
    assert game.config.network.hidden == (256, 128)
    assert "hands=4" in open_table(game.config, 0).spec.rules_version
    with pytest.raises(Unsearchable):
        run_game(GAMES["hearts_4p"], searching())


def test_settings_of_earlier_runs_keep_keys_with_dots():
    options = {"a.b": 1, "c": {"d.e": 2}}
    head = PipelineSettings.model_validate(
        {"network": {"kind": "transformer", "options": options, "shared_trunk": True}, "ppo": {"entropy_trainings": 3}}
    )
    assert head.network.options == options
