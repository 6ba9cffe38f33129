"""Jobs of self-play, inspection and evaluation, on a store in a folder."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from selfplay_rig import CONFIG, ignore, inspection_spec, put_model, selfplay_spec

from flyball.app.config import GAMES
from flyball.app.games import open_table
from flyball.app.play.inspection import ForeignShard, RepeatedShard, history, inspect
from flyball.app.play.match_statistics import MatchGames, match_statistics
from flyball.app.play.matches import batch
from flyball.app.play.players import WrongModel, load_player
from flyball.app.play.selfplay import play
from flyball.app.store import DamagedBlob, FileStore, get_shard, put_shard

HEARTS = GAMES["hearts_4p"]


def played(root: Path, **changes):
    reports: list[dict[str, object]] = []
    result = play(selfplay_spec(root, put_model(root), **changes), reports.append)
    return result, reports


def test_selfplay_stores_a_shard_that_says_where_it_comes_from(tmp_path: Path) -> None:
    result, reports = played(tmp_path, games=40)
    shard = get_shard(FileStore(tmp_path), result["shard"])
    assert (result["rows"], result["games"]) == (shard.rows, shard.games) == (shard.rows, 40)
    assert shard.meta.model == put_model(tmp_path)
    assert shard.meta.rules_version.endswith(":connect_four")
    assert (shard.meta.worker, shard.meta.seed, shard.meta.temperature) == ("worker@test", 5, 1.0)
    assert result["mean_length"] == pytest.approx(shard.rows / 40)
    assert sum(result["wins"]) + result["draws"] + result["truncated"] == 40
    assert [report["games"] for report in reports][-1] == 40
    assert len(reports) <= 10


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_same_spec_gives_the_same_shard_and_another_seed_not(tmp_path: Path, temperature: float) -> None:
    first, _ = played(tmp_path, temperature=temperature)
    again, _ = played(tmp_path, temperature=temperature)
    other, _ = played(tmp_path, temperature=temperature, seed=6)
    assert first["shard"] == again["shard"] != other["shard"]


def test_recorded_probabilities_have_the_temperature_of_play(tmp_path: Path) -> None:
    model = put_model(tmp_path, scale=5)
    store = FileStore(tmp_path)
    table = open_table(CONFIG, 0)
    for temperature in (0.5, 4.0):
        shard = get_shard(store, play(selfplay_spec(tmp_path, model, temperature=temperature), ignore)["shard"])
        log_probs, values = load_player(store, model, table.spec).forward(shard.obs, shard.mask)
        weights = np.exp(log_probs / temperature) * shard.mask
        expected = weights[np.arange(shard.rows), shard.action] / weights.sum(axis=1)
        np.testing.assert_allclose(np.exp(shard.log_prob), expected, rtol=1e-3)
        np.testing.assert_allclose(shard.value, values, rtol=1e-3, atol=1e-5)


def test_games_cut_off_in_their_opening_pass_inspection(tmp_path: Path) -> None:
    """Such games have no rows that could show the cut."""
    selfplay = CONFIG.selfplay.replace(opening_plies=12)
    config = CONFIG.replace(max_moves=10, selfplay=selfplay)
    result = play(selfplay_spec(tmp_path, put_model(tmp_path), config, games=30), ignore)
    assert inspect(inspection_spec(tmp_path, result["shard"], config, sample_games=30), ignore)["failures"] == []


def test_against_opponents_only_the_heros_rows_are_kept(tmp_path: Path) -> None:
    other = put_model(tmp_path, seed=1)
    lineups = [{"opponents": ["random"], "games": 4}, {"opponents": [other], "games": 6}]
    result, _ = played(tmp_path, lineups=lineups, games=10)
    shard = get_shard(FileStore(tmp_path), result["shard"])
    for game in range(10):
        assert set(shard.seat[shard.game == game].tolist()) == {game % 2}
    assert shard.meta.opponents == ("random", other)
    assert inspect(inspection_spec(tmp_path, result["shard"]), ignore)["failures"] == []


def test_mirrors_and_games_without_lineup_have_hero_seats_only(tmp_path: Path) -> None:
    model = put_model(tmp_path)
    lineups = [{"opponents": [model], "games": 4}, {"opponents": ["random"], "games": 4}]
    spec = selfplay_spec(tmp_path, model, lineups=lineups, games=10)
    shard = get_shard(FileStore(tmp_path), play(spec, ignore)["shard"])
    seats = [set(shard.seat[shard.game == game].tolist()) for game in range(10)]
    assert seats == [{0, 1}] * 4 + [{0}, {1}] * 2 + [{0, 1}] * 2
    assert shard.meta.opponents == ("random",)


def test_lineup_at_a_table_of_four_fills_the_other_seats(tmp_path: Path) -> None:
    config = GAMES["hearts_4p"]
    model = put_model(tmp_path, config)
    lineups = [{"opponents": [model, "random", "heuristic"], "games": 4}]
    result = play(selfplay_spec(tmp_path, model, config, lineups=lineups, games=4), ignore)
    shard = get_shard(FileStore(tmp_path), result["shard"])
    for game in range(4):
        assert set(shard.seat[shard.game == game].tolist()) == {game, (game + 1) % 4}
    assert inspect(inspection_spec(tmp_path, result["shard"], config), ignore)["failures"] == []


def test_a_boost_of_the_hero_leaves_its_opponents_as_they_are(tmp_path: Path) -> None:
    other = put_model(tmp_path, seed=1, scale=40.0)
    cold = CONFIG.replace(selfplay=CONFIG.selfplay.replace(temperature=0.01))
    spec = selfplay_spec(tmp_path, put_model(tmp_path), cold, temperature=9.0, games=40)
    spec["lineups"] = [{"opponents": [other], "games": 40}]
    shard = get_shard(FileStore(tmp_path), play(spec, ignore)["shard"])
    begun = [history(shard, game)[0] for game in range(1, 40, 2)]  # the opponent has the first move there
    assert len(set(begun)) == 1
    assert len({history(shard, game)[0] for game in range(0, 40, 2)}) > 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"lineups": [{"opponents": ["random"], "games": 13}]}, "more than 12"),
        ({"lineups": [{"opponents": ["random"] * 2, "games": 2}]}, "seats"),
        ({"sead": 1}, "sead"),
    ],
)
def test_specs_that_do_not_fit_are_refused(tmp_path: Path, changes, why) -> None:
    with pytest.raises(ValidationError, match=why):
        play(selfplay_spec(tmp_path, "a" * 64, **changes), ignore)


def test_games_or_models_of_another_game_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongModel, match="126 features and 7 actions"):
        play(selfplay_spec(tmp_path, put_model(tmp_path, HEARTS)), ignore)
    result, _ = played(tmp_path)
    with pytest.raises(ForeignShard, match="connect_four"):
        inspect(inspection_spec(tmp_path, result["shard"], GAMES["othello_2p"]), ignore)


@pytest.mark.parametrize("key", ["hearts_4p", "maedn_4p", "chinese_checkers_3p", "oh_hell_3p"])
def test_games_of_several_players_pass_their_inspection(tmp_path: Path, key: str) -> None:
    config = GAMES[key]
    spec = selfplay_spec(tmp_path, put_model(tmp_path, config), config, games=6)
    result = play(spec, ignore)
    found = inspect(inspection_spec(tmp_path, result["shard"], config), ignore)
    assert found["failures"] == []
    assert found["checked"] == 6
    assert found["score"] > 0.5


def test_an_inspection_counts_and_scores(tmp_path: Path) -> None:
    result, _ = played(tmp_path, games=30)
    found = inspect(inspection_spec(tmp_path, result["shard"], sample_games=7), ignore)
    assert found["checked"] == 7
    assert found["failures"] == []
    assert found["score"] == pytest.approx(1, abs=0.05)
    counted = found["statistics"]
    assert (counted["rows"], counted["games"]) == (result["rows"], 30)
    assert counted["wins"] == result["wins"]
    assert counted["distinct_positions"] < counted["rows"]  # the empty board at least


def test_a_policy_that_always_plays_the_same_game_scores_badly(tmp_path: Path) -> None:
    result = play(selfplay_spec(tmp_path, put_model(tmp_path, scale=50), temperature=0.001, games=40), ignore)
    found = inspect(inspection_spec(tmp_path, result["shard"]), ignore)
    assert found["failures"] == []
    assert found["components"]["originality"] <= 2 / 40
    assert found["score"] < 0.3


def flipped(shard, name, place, value):
    array = getattr(shard, name).copy()
    array[place] = value
    return replace(shard, **{name: array})


@pytest.mark.parametrize(
    ("config", "change", "complaint"),
    [
        (CONFIG, lambda s: flipped(s, "returns", 3, -s.returns[3]), "outcome"),
        (CONFIG, lambda s: flipped(s, "history", s.history_offsets[3], 99), "not legal"),
        (CONFIG, lambda s: flipped(s, "reward", np.flatnonzero(s.game == 3)[0], 0.5), "rewarded"),
        (CONFIG, lambda s: flipped(s, "obs", np.flatnonzero(s.game == 3)[0], 1), "observation"),
        (HEARTS, lambda s: flipped(s, "returns", 3, np.roll(s.returns[3], 1)), "outcome"),
        (
            HEARTS,
            lambda s: flipped(s, "history", s.history_offsets[4] - 1, s.history[s.history_offsets[3] + 1]),
            "not legal",
        ),
        (HEARTS, lambda s: flipped(s, "mask", np.flatnonzero(s.game == 3)[0], True), "legal mask"),
        (HEARTS, lambda s: flipped(s, "obs", (np.flatnonzero(s.game == 3)[0], 179), 0.13), "observation"),
    ],
)
def test_the_inspection_finds_a_wrong_game(tmp_path: Path, config, change, complaint: str) -> None:
    spec = selfplay_spec(tmp_path, put_model(tmp_path, config), config, games=6)
    store, shard = FileStore(tmp_path), play(spec, ignore)["shard"]
    key = put_shard(store, change(get_shard(store, shard)))
    (failure,) = inspect(inspection_spec(tmp_path, key, config), ignore)["failures"]
    assert failure.startswith("game 3: ")
    assert complaint in failure


def test_a_flipped_bit_is_found_before_anything_is_read(tmp_path: Path) -> None:
    result, _ = played(tmp_path)
    path = next(tmp_path.glob(f"**/{result['shard']}"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedBlob, match="is damaged"):
        inspect(inspection_spec(tmp_path, result["shard"]), ignore)


def test_an_inspection_deletes_what_is_spent_even_if_it_refuses(tmp_path: Path) -> None:
    spent, repeated = (played(tmp_path, seed=seed)[0]["shard"] for seed in range(2))
    with pytest.raises(RepeatedShard):
        inspect(inspection_spec(tmp_path, repeated, earlier=[repeated], discard=[spent]), ignore)
    assert [FileStore(tmp_path).has(shard) for shard in (spent, repeated)] == [False, True]
    shards = [played(tmp_path, seed=seed)[0]["shard"] for seed in range(3)]
    gone, spent, inspected = shards
    for discard in ([gone], [gone, spent]):  # repeated, as after the loss of the first inspection
        assert not inspect(inspection_spec(tmp_path, inspected, discard=discard), ignore)["failures"]
    assert [FileStore(tmp_path).has(shard) for shard in shards] == [False, False, True]


def batch_spec(root: Path, model: str, opponent, config=CONFIG):
    return {
        "store": str(root),
        "config": config.model_dump(mode="json"),
        "model": model,
        "batch": {"opponent": opponent, "first": 0, "games": opponent["games"]},
        "seed": 9,
    }


def test_a_gauntlet_repeats_its_games_and_has_another_opponent(tmp_path: Path) -> None:
    hero, other = put_model(tmp_path), put_model(tmp_path, seed=1)
    spec = batch_spec(tmp_path, hero, {"name": "champion", "kind": "model", "model": other, "games": 20})
    reports: list[dict[str, object]] = []
    games = batch(spec, reports.append)["games"]
    assert reports == [{"opponent": "champion", "games": 20}]
    assert match_statistics(MatchGames.model_validate(games), 2).games == 20
    assert batch(spec, ignore)["games"] == games
    hero = put_model(tmp_path)
    own = {"name": "champion", "kind": "model", "model": hero, "games": 10}
    with pytest.raises(ValidationError, match="own opponent"):
        batch(batch_spec(tmp_path, hero, own), ignore)
