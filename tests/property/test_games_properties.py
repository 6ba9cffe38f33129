"""Every configuration, played at random: what must hold of any game."""

import numpy as np
import pyspiel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.config import GAMES, GameConfig
from app.games import FINISHED, GameRecord, checker_for, open_table

CONFIGS = pytest.mark.parametrize("config", GAMES.values(), ids=list(GAMES))
SEEDS = st.integers(0, 2**62)
SLOTS = 3


def play_randomly(config, seeds, rng, *, checks=lambda table: None):
    """Play one game per seed; return the table and the rows [(slot, step, seat, action, obs, mask)]."""
    table = open_table(config, len(seeds))
    table.reset(np.arange(len(seeds)), seeds)
    rows, steps = [], np.zeros(len(seeds), dtype=int)
    while True:
        live = np.flatnonzero(table.seats() != FINISHED)
        if not len(live):
            return table, rows
        obs, mask = table.observe(live)
        checks(table)
        actions = (rng.random(mask.shape) * mask).argmax(axis=1).astype(np.int32)
        seats = table.seats()[live]
        for k, slot in enumerate(live.tolist()):
            rows.append((slot, steps[slot], seats[k], actions[k], obs[k], mask[k]))
        steps[live] += 1
        table.step(live, actions)


def record_of(table, rows, slot):
    mine = [row[1:] for row in rows if row[0] == slot]
    step, seat, action, obs, mask = (np.array(column) for column in zip(*mine, strict=True))
    return GameRecord(
        table.history(slot), table.returns()[slot], bool(table.truncated()[slot]), step, seat, action, obs, mask
    )


@CONFIGS
def test_games_end_and_agree_with_a_replay_by_the_rules_alone(config: GameConfig) -> None:
    @settings(max_examples=3)
    @given(SEEDS)
    def check(seed: int) -> None:
        def unfinished_games_are_open(table):
            live = table.seats() != FINISHED
            assert table.observe(np.flatnonzero(live))[1].sum(axis=1).min() >= 2  # forced moves are not asked
            assert not table.returns()[live].any()
            assert not table.truncated()[live].any()

        seeds = [seed + i for i in range(SLOTS)]
        table, rows = play_randomly(config, seeds, np.random.default_rng(seed), checks=unfinished_games_are_open)
        spec = table.spec
        assert {row[4].dtype for row in rows} == {np.dtype(spec.observation_type)}
        assert {row[4].shape for row in rows} == {(spec.observation_size,)}
        assert np.abs(table.returns()).max() <= 1
        assert np.abs(table.returns().sum(axis=1)).max() < 1e-5
        for slot in range(SLOTS):
            assert checker_for(config).failures(record_of(table, rows, slot)) == []

    check()


@CONFIGS
def test_the_same_seeds_and_choices_give_the_same_games(config: GameConfig) -> None:
    first, rows = play_randomly(config, [5, 6], np.random.default_rng(1))
    again, _ = play_randomly(config, [5, 6], np.random.default_rng(1))
    alone, _ = play_one_by_one(config, 6, [row[3] for row in rows if row[0] == 1])
    assert [first.history(slot) for slot in (0, 1)] == [again.history(slot) for slot in (0, 1)]
    assert first.history(1) == alone.history(0)
    assert np.array_equal(first.returns()[1], alone.returns()[0])


@CONFIGS
def test_every_slot_begins_from_a_seed_of_its_own(config: GameConfig) -> None:
    with pytest.raises(ValueError, match=r"seeds|zip"):
        open_table(config, 4).reset(np.arange(4), [7])


def play_one_by_one(config, seed, actions):
    table = open_table(config, 1)
    table.reset(np.arange(1), [seed])
    for action in actions:
        table.step(np.arange(1), np.array([action], dtype=np.int32))
    return table, actions


@pytest.mark.parametrize("key", ["hearts_4p", "oh_hell_3p", "maedn_4p"])
def test_another_seed_gives_other_chance(key: str) -> None:
    table = open_table(GAMES[key], 2)
    table.reset(np.arange(2), [1, 2])
    assert table.history(0) != table.history(1)


@CONFIGS
def test_chance_declared_uniform_is_uniform(config: GameConfig) -> None:
    table, _ = play_randomly(config, [11], np.random.default_rng(11))
    state = pyspiel.load_game(config.game).new_initial_state()
    for action in table.history(0):
        if state.is_chance_node():
            outcomes = state.chance_outcomes()
            assert [outcome for outcome, _ in outcomes] == state.legal_actions()
            assert {round(p * len(outcomes), 9) for _, p in outcomes} == {1.0}
        state.apply_action(action)


@CONFIGS
def test_the_image_of_a_game_under_a_symmetry_is_a_game(config: GameConfig) -> None:
    """Both are played side by side; the image must be seen as the image, be legal, and end alike."""
    for symmetry in open_table(config, 1).spec.symmetries:
        table = open_table(config, 2)
        table.reset(np.arange(2), [0, 0])
        rng = np.random.default_rng(3)
        while table.seats()[0] != FINISHED:
            obs, mask = table.observe(np.arange(2))
            assert np.array_equal(obs[0][symmetry.observation], obs[1]), symmetry.name
            assert np.array_equal(mask[0][symmetry.action], mask[1]), symmetry.name
            action = rng.choice(np.flatnonzero(mask[0]))
            assert symmetry.action[symmetry.image[action]] == action
            table.step(np.arange(2), np.array([action, symmetry.image[action]], dtype=np.int32))
        assert table.seats()[1] == FINISHED
        assert np.array_equal(table.returns()[0], table.returns()[1])
