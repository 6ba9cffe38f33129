"""The user's own games: classes, table factories and records."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import broken_games
import numpy as np
import pytest
from board_games import at_random

from flyball.app.backends import describe
from flyball.app.config import GAMES, BadSettings, GameConfig
from flyball.app.config.loading import load
from flyball.app.config.settings import SelfplaySettings
from flyball.app.core import FlyballError, UnknownPlugin
from flyball.app.games import FINISHED, Game, IllegalAction, UnknownGame, checker_for, open_table
from flyball.app.games.game import game_spec
from flyball.app.games.game_check import check_game
from flyball.app.games.openspiel import OpenSpielTable
from flyball.app.play.inspection import InspectionSpec, game_record, history, inspect_in
from flyball.app.play.players import RandomPlayer, load_player
from flyball.app.play.selfplay import play_recorded, selfplay_schedule
from flyball.app.scenarios.bad_data import falsify
from flyball.app.store import MemoryStore, Shard, game_seed, put_shard
from flyball.daemons.suitability import check_lasting, check_playable

EXAMPLES = Path(__file__).parents[1] / "examples"
SLOT = np.array([0])


def config(name: str, players: int = 2, **changes) -> GameConfig:
    return GameConfig(key=f"race_{players}p", game=f"broken_games:{name}", players=players, **changes)


def shard_of(configuration: GameConfig, games: int = 12, seed: int = 5) -> Shard:
    schedule = selfplay_schedule(games, configuration.players, [], (1.0,), seed, opening_plies=2)
    about = {"model": "a" * 64, "seed": seed, "worker": "w", "in_flight": 4}
    return play_recorded(configuration, [RandomPlayer()], schedule, **about)[0]


def play_out(table) -> None:
    for _ in at_random(table, len(table.seats())):
        pass


def test_description_names_version_scale_and_size_of_a_class() -> None:
    spec = open_table(config("Planes"), 0).spec
    assert (spec.rules_version, spec.players, spec.actions) == ("broken_games-3:Planes", 2, 3)
    assert (spec.planes, spec.observation_size, spec.observation_type) == ((1, 1, 12), 13, np.uint8)
    info = describe(config("Planes"))
    assert (info.rules_version, info.players, info.bots) == ("broken_games-3:Planes", 2, ("random", "heuristic"))
    assert describe(config("Race")).bots == ("random",)
    assert open_table(config("Planes", scale=100), 0).spec.scale == 100
    assert open_table(GAMES["connect_four_2p"].replace(scale=2), 0).spec.scale == 2
    with pytest.raises(UnknownGame, match=r"games\.race_2p\.scale: scale has 2 numbers for 13 features"):
        open_table(config("Chips", scale=(1, 2)), 0)
    body = {name: value for name, value in vars(broken_games.Race).items() if name != "observation_size"}
    board = type("Board", (Game,), body | {"planes": (1, 1, 13)})
    assert game_spec(board, "board").observation_size == 13


@pytest.mark.parametrize(
    ("game", "scale"),
    [
        ("broken_games:Planes", 1.0),
        ("beacon_games:DimBeacon", 1.0),
        ("beacon_games:Beacon", 255.0),
        ("broken_games:ScaledChips", (*[1] * 12, 100)),
    ],
)
def test_scale_is_the_games_own_or_implied_by_pixels(game: str, scale: object) -> None:
    assert open_table(GameConfig(key="mine_2p", game=game, players=2), 0).spec.scale == scale


def test_games_of_chance_and_forced_moves_are_recorded() -> None:
    table = open_table(config("Race"), 16)
    for live, _ in at_random(table, 16):
        assert table.observe(live)[1].sum(axis=1).min() > 1
    starts = [12 - sum(action + 1 for action in table.history(slot)) for slot in range(16)]
    assert set(starts) == {0, 1, 2}  # a forced last move of 1 is in the history, chance is not
    first, second = open_table(config("Race"), 3), open_table(config("Race"), 1)
    first.reset(np.arange(3), [7, 8, 9])
    for slot, seed in enumerate((7, 8, 9)):
        second.reset(SLOT, [seed])
        assert np.array_equal(first.observe(np.array([slot]))[0], second.observe(SLOT)[0])
    table = open_table(config("Three", players=3), 8)
    play_out(table)
    assert {tuple(sorted(row)) for row in table.returns().tolist()} == {(-1.0, 0.0, 1.0)}
    spec = open_table(config("Planes"), 0).spec
    player = load_player(MemoryStore(), "heuristic", spec)
    log_probs, _ = player.forward(np.zeros((1, 13), np.uint8), np.array([[True, True, False]]))
    assert log_probs.argmax() == 1


def test_games_that_are_cut_off_are_truncated() -> None:
    table = open_table(config("Race", max_moves=2), 4)
    play_out(table)
    assert table.truncated().all()
    assert {len(table.history(slot)) for slot in range(4)} == {2}
    assert not table.returns().any()
    assert table.view(SLOT, np.array([1], dtype=np.int8)).shape == (1, 13)
    table = open_table(config("Undecided"), 4)
    play_out(table)
    assert table.truncated().all()
    assert not table.returns().any()


@pytest.mark.parametrize("action", [-1, 3, 99])
def test_action_outside_the_game_is_refused(action: int) -> None:
    table = open_table(config("Race"), 1)
    table.reset(SLOT, [0])
    with pytest.raises(IllegalAction, match=f"Action {action} in slot 0 is not among the legal ones"):
        table.step(SLOT, np.array([action], dtype=np.int32))


def test_refused_or_finished_slot_moves_nothing() -> None:
    table = open_table(config("Race"), 2)
    table.reset(np.arange(2), [0, 0])
    with pytest.raises(IllegalAction):
        table.step(np.arange(2), np.array([0, 5], dtype=np.int32))
    assert [table.history(slot) for slot in (0, 1)] == [[], []]
    table = open_table(config("Race"), 1)
    play_out(table)
    assert table.seats()[0] == FINISHED
    with pytest.raises(IllegalAction):
        table.step(SLOT, np.array([0], dtype=np.int32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"players": 3, "key": "race_3p"}, "is played by 2, the configuration says 3"),
        ({"engine": "flyball"}, "engine = 'flyball', which is for Flyball's own rules"),
        ({"selfplay": SelfplaySettings(rewards="shaped")}, "rewarded at its end, not shaped"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(UnknownGame, match=message) as refused:
        open_table(config("Race").replace(**changes), 0)
    assert refused.value.hint


def test_run_with_a_game_for_other_players_is_refused(tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text(
        "configs = ['race_3p']\n[games.race_3p]\ngame = 'broken_games:Race'\nplayers = 3\n"
    )
    with pytest.raises(BadSettings, match="race_3p cannot be played: 'broken_games:Race' is played by 2") as refused:
        check_playable(load(tmp_path).run)
    assert "players = 2" in refused.value.hint


# the parity check of own games


@pytest.mark.parametrize("name", ["Race", "Planes", "Race16", "Undecided"])
def test_recorded_games_replay_by_their_own_rules(name: str) -> None:
    shard, checker = shard_of(config(name)), checker_for(config(name))
    assert checker.against == "its own rules"
    assert [checker.failures(game_record(shard, game)) for game in range(12)] == [[]] * 12


def test_records_replay_from_their_own_seed_alone() -> None:
    shard = shard_of(config("Race"))
    table = open_table(config("Race"), 1)
    for game in range(12):
        table.reset(SLOT, [game_seed(shard.meta.seed, game)])
        start = int(table.view(SLOT, np.zeros(1, dtype=np.int8)).argmax())
        assert start + sum(history(shard, game) + 1) == 12
    shard, checker = shard_of(config("Race")), checker_for(config("Race"))
    records = [replace(game_record(shard, game), seed=game) for game in range(12)]
    assert any(checker.failures(record) for record in records)


def test_replay_names_what_was_altered() -> None:
    shard, checker = shard_of(config("Race")), checker_for(config("Race"))
    record = max((game_record(shard, game) for game in range(12)), key=lambda one: len(one.step))
    first = int(record.step[0])
    altered = {
        "is not legal": replace(record, history=[99, *record.history[1:]]),
        "it goes on": replace(record, history=record.history[:-2]),
        "recorded, [": replace(record, history=[*record.history, 0]),
        "outcome": replace(record, returns=-record.returns),
        "recorded as truncated, by the rules it is finished": replace(record, truncated=True),
        f"decision {first}: the observation": replace(record, obs=1 - record.obs),
        f"decision {first}: the legal mask": replace(record, mask=~record.mask),
        "was to move": replace(record, seat=1 - record.seat),
        "played": replace(record, action=(record.action + 1) % 3),
        "the game has": replace(record, step=record.step + 50),
    }
    for complaint, broken in altered.items():
        assert any(complaint in failure for failure in checker.failures(broken)), complaint


def test_false_outcomes_are_found_by_rules_or_by_own_checker() -> None:
    store, shard = MemoryStore(), shard_of(config("Race"), games=64)
    about = {"store": Path(), "config": config("Race"), "model": "a" * 64, "seed": 1}
    honest, false = put_shard(store, shard), put_shard(store, falsify(shard))
    result = inspect_in(store, InspectionSpec(shard=honest, **about), lambda _: None)
    assert (result.against, result.checked, result.failures) == ("its own rules", 16, ())
    assert len(inspect_in(store, InspectionSpec(shard=false, **about), lambda _: None).failures) == 16
    checker = checker_for(config("Doubted"))
    assert checker.against == "a doubter"
    assert "moves are too many" in checker.failures(game_record(shard_of(config("Doubted")), 0))[0]


def unlucky() -> None:
    raise OSError("no rules")


@pytest.mark.parametrize(
    ("checker", "message"),
    [
        (dict, "a checker that makes a dict without failures, or against = None"),
        (type("Long", (broken_games.Doubter,), {"against": "x" * 101}), "or against = 'xxx.*at most 100 characters"),
        (staticmethod(unlucky), "a checker that raised OSError: no rules"),
    ],
)
def test_checker_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, checker: Any, message: str) -> None:
    monkeypatch.setattr(broken_games.Doubted, "checker", checker)
    with pytest.raises(UnknownGame, match=message):
        checker_for(config("Doubted"))


# finding games


def test_entry_point_names_a_game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "racing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: racing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[flyball.games]\nracing = broken_games:Race\ntic_tac_toe = broken_games:Race\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    racing = config("Race").replace(game="racing")
    assert open_table(racing, 1).spec.rules_version == "broken_games-3:Race"
    assert isinstance(open_table(racing.replace(game="tic_tac_toe"), 1), OpenSpielTable)  # OpenSpiel's names win


def test_imported_module_registers_its_games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "registering_module.py").write_text((EXAMPLES / "subtraction.py").read_text())
    (tmp_path / "flyball.toml").write_text(
        "import = ['registering_module']\nconfigs = ['subtraction_2p']\n"
        "[games.subtraction_2p]\ngame = 'my_subtraction(heap=9)'\nplayers = 2\n"
    )
    loaded = load(tmp_path)
    (configuration,) = loaded.run.configs
    assert configuration.imports == ("registering_module",)
    assert (loaded.values()["import"], loaded.origins["import"]) == (["registering_module"], "flyball.toml")
    assert "games.subtraction_2p.imports" not in loaded.values()
    assert open_table(configuration, 1).spec.rules_version.endswith(":my_subtraction(heap=9)")
    assert check_game(configuration) == []
    assert checker_for(configuration).against == "openspiel"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import = ['no games']", "import.0 (flyball.toml)"),
        ("import = 'my_games'", "import (flyball.toml)"),
        ("imports = ['my_games']", "Unknown setting 'imports'"),
        ("[games.hex7_2p]\nimports = ['my_games']", "Unknown setting 'games.hex7_2p.imports'"),
    ],
)
def test_bad_import_names_its_key_and_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "flyball.toml").write_text(text + "\n")
    with pytest.raises(BadSettings) as refused:
        load(tmp_path)
    assert message in refused.value.message


def test_imports_are_named_and_may_change(tmp_path: Path) -> None:
    before = load(tmp_path).run
    (tmp_path / "flyball.toml").write_text("import = ['json']\n")
    after = load(tmp_path).run
    assert {one.imports for one in after.configs} == {("json",)}
    check_lasting([before], after)
    with pytest.raises(UnknownPlugin, match="The module 'no_such_games' cannot be imported: ModuleNotFoundError"):
        open_table(GameConfig(key="hex7_2p", game="hex(board_size=7)", players=2, imports=("no_such_games",)), 0)


# the examples


@pytest.mark.parametrize("game", ["nim:Nim", "nim_table:nim", "pig:Pig"])
def test_check_of_an_example_finds_nothing(game: str) -> None:
    assert check_game(GameConfig(key="mine_2p", game=game, players=2)) == []


def test_example_with_chance_rolls_another_die_for_another_seed() -> None:
    """The first roll is forced, so it is played at the start."""
    table = open_table(GameConfig(key="pig_2p", game="pig:Pig", players=2), 8)
    table.reset(np.arange(8), [5, 5, *range(6)])
    pots = table.observe(np.arange(8))[0][:, 2]
    assert pots[0] == pots[1]
    assert len(set(pots.tolist())) > 2


def test_examples_play_alike_and_refuse_what_they_lack() -> None:
    one, other = (
        open_table(GameConfig(key="nim_2p", game=game, players=2), 50) for game in ("nim:Nim", "nim_table:nim")
    )
    other.reset(np.arange(50), range(50))
    for live, actions in at_random(one, 50):
        assert np.array_equal(one.seats(), other.seats())
        assert all(np.array_equal(*pair) for pair in zip(one.observe(live), other.observe(live), strict=True))
        other.step(live, actions)
    assert [one.history(slot) for slot in range(50)] == [other.history(slot) for slot in range(50)]
    assert np.array_equal(one.returns(), other.returns())
    with pytest.raises(FlyballError, match=r"Nim ends by itself"):
        open_table(GameConfig(key="nim_2p", game="nim_table:nim", players=2, max_moves=5), 1)


class Undefined(broken_games.Race16):
    """A table that divides by 0 in observations of seat 1."""

    def observe(self, slots):
        obs, mask = super().observe(slots)
        obs[self.seats()[slots] == 1, 3] = np.nan
        return obs, mask


def test_table_with_undefined_observations_is_named() -> None:
    table = open_table(config("Race").replace(game=f"{__name__}:Undefined"), 4)
    table.reset(np.arange(4), [1, 2, 3, 4])
    _, mask = table.observe(np.arange(4))
    table.step(np.array([2]), mask[[2]].argmax(axis=1).astype(np.int32))
    with pytest.raises(FlyballError, match=r":Undefined: observe returned nan at index 3, for seat 1 in slot 2"):
        table.observe(np.arange(4))
