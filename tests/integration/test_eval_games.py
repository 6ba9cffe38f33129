"""``flyball eval --config``: a model of a run or file against others."""

import json
from functools import partial
from pathlib import Path

import pytest
from commands import Flyball, invoke, refused, succeeded
from recorded_run import write_league

from flyball.app.config import GAMES
from flyball.app.core import ModelHash
from flyball.app.games import open_table
from flyball.app.learning.jobs import first_model
from flyball.app.store import FileStore, put_checkpoint

KEY = "tic_tac_toe_2p"


def stored(folder: Path, seed: int, key: str = KEY) -> ModelHash:
    manifest, parameters = first_model(GAMES[key], open_table(GAMES[key], 0).spec, seed)
    return put_checkpoint(FileStore(folder / "store"), manifest, parameters, None)


@pytest.fixture
def models(tmp_path: Path) -> list[ModelHash]:
    """Return three models of a run; the first is current."""
    hashes = [stored(tmp_path, seed) for seed in range(3)]
    write_league(tmp_path / "journal.sqlite", current=hashes[0])
    return hashes


@pytest.fixture
def flyball(tmp_path: Path) -> Flyball:
    return partial(invoke, "eval", run=tmp_path)


def test_a_model_meets_each_opponent(flyball: Flyball, models: list[ModelHash], tmp_path: Path) -> None:
    file = tmp_path / "store" / models[2][:2] / models[2][2:4] / models[2]
    assert file.is_file()
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    done = flyball("--config", KEY, "--model", models[1][:10], "--against", "random,champion", "--against", file,
                   "--games", 40)  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    told = json.loads(done.stdout)
    assert (told["config"], told["model"], told["seed"]) == (KEY, models[1], 0)
    assert [match["opponent_model"] for match in told["results"]] == [None, models[0], models[2]]
    for match in told["results"]:
        assert match["games"] == 40 == match["wins"] + match["draws"] + match["losses"] + match["truncated"]
        assert match["score"]["lower"] <= match["score"]["mean"] <= match["score"]["upper"]
    after = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert [path for path in after if path.name != "board.json" and "sqlite" not in path.name] == [
        path for path in before if "sqlite" not in path.name
    ]


def test_current_model_is_meant_and_does_not_meet_itself(flyball: Flyball, models: list[ModelHash]) -> None:
    assert json.loads(flyball("--config", KEY, "--games", 2).stdout)["model"] == models[0]
    done = succeeded(flyball("--config", KEY, "--against", f"champion,random,{models[0]}", "--games", 2))
    assert [match["opponent"] for match in json.loads(done.stdout)["results"]] == ["random"]
    assert done.stderr.count("is the model itself, and is not played") == 2


def test_same_arguments_write_the_same_bytes_with_any_workers(flyball: Flyball, models: list[ModelHash]) -> None:
    words = ("--config", KEY, "--against", f"random,{models[1]}", "--games", 600)
    written = flyball(*words, "--seed", 3).stdout_bytes
    assert written == flyball(*words, "--seed", 3, "--workers", 2).stdout_bytes
    assert written != flyball(*words, "--seed", 4).stdout_bytes


def test_games_are_rounded_up_to_whole_rotations(flyball: Flyball, models: list[ModelHash], tmp_path: Path) -> None:
    model = stored(tmp_path, 5, "oh_hell_3p")
    done = flyball("--config", "oh_hell_3p", "--model", model, "--games", 4)
    assert json.loads(done.stdout)["results"][0]["games"] == 6
    assert "6 games against random instead of 4" in done.stderr


def test_built_in_players_are_opponents_where_there_are_any(
    flyball: Flyball, models: list[ModelHash], tmp_path
) -> None:
    model = stored(tmp_path, 5, "connect_four_2p")
    told = json.loads(flyball("--config", "connect_four_2p", "--model", model, "--against", "heuristic").stdout)
    assert (told["results"][0]["opponent"], told["results"][0]["opponent_model"]) == ("heuristic", None)
    assert told["results"][0]["score"]["mean"] < 0.3  # it has learned nothing yet
    refused(flyball("--config", KEY, "--against", "heuristic"), 4, "no heuristic player")


def test_a_bot_can_be_the_hero(flyball: Flyball) -> None:
    told = json.loads(flyball("--config", "connect_four_2p", "--model", "heuristic", "--games", 100).stdout)
    assert (told["model"], told["results"][0]["opponent"]) == ("heuristic", "random")
    assert told["results"][0]["score"]["mean"] > 0.8
    hearts = flyball("--config", "hearts_4p", "--model", "normal", "--against", "easy,random", "--games", 40)
    easy, even = json.loads(hearts.stdout)["results"]
    assert (easy["opponent"], easy["opponent_model"], even["opponent"]) == ("easy", None, "random")
    assert even["score"]["mean"] > 0.7


@pytest.fixture
def league(tmp_path: Path, models: list[ModelHash]) -> list[ModelHash]:
    """Let all three be members, the second of the highest rating."""
    ratings = [*zip(models, (10.0, 90.0, 50.0), strict=True)]
    write_league(tmp_path / "journal.sqlite", ratings, current=models[0])
    return models


@pytest.mark.parametrize(
    ("hero", "against", "met"),
    [
        (2, "recent:", [1]),
        (0, "recent:2", [2, 1]),
        (0, "top_k:1", [1]),
        (0, "top_k:9", [1, 2]),
        (2, "champion:1", [0]),
        (0, "random,recent:1", [None, 2]),
        (0, "round_robin:9", [None, 1, 2]),
    ],
)
def test_strategies_choose_from_the_runs_league(flyball: Flyball, league, hero: int, against: str, met) -> None:
    done = flyball("--config", KEY, "--model", league[hero], "--against", against, "--games", 2)
    chosen = [match["opponent_model"] for match in json.loads(done.stdout)["results"]]
    assert chosen == [None if one is None else league[one] for one in met]
    assert ("the league of tic_tac_toe_2p has" in done.stderr) == against.endswith(":9")


def test_who_is_chosen_twice_is_played_once(flyball: Flyball, league) -> None:
    done = flyball("--config", KEY, "--against", f"{league[2]},top_k:2,recent:2,random,random", "--games", 2)
    assert [match["opponent_model"] for match in json.loads(done.stdout)["results"]] == [league[2], league[1], None]
    assert done.stderr.count("is there already, and is played once") == 4


def test_drawn_members_are_the_same_for_a_seed(flyball: Flyball, league) -> None:
    words = ("--config", KEY, "--model", league[0], "--against", "random:1", "--games", 2)
    met = [
        json.loads(flyball(*words, "--seed", seed).stdout)["results"][0]["opponent"] for seed in (1, 1, 2, 3, 4, 5, 6)
    ]
    assert met[0] == met[1]
    assert len(set(met)) > 1


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("--against", "recent:none"), 2, "for instance recent:3"),
        (("--against", "recent:0"), 2, "for instance recent:3"),
        (("--against", "recent:1"), 4, "against recent:1: the league of tic_tac_toe_2p has no opponents"),
        (("--against", "recent"), 2, "against recent: say how many, for instance recent:3"),
        (("--against", "best:3"), 2, "no strategy 'best', but champion, top_k"),
        (("--against", ""), 2, "against names nobody"),
        (("--against", "random,,"), 2, "against names nobody"),
        (("--against", "randm"), 4, "against: there is nothing called 'randm'. hint: It takes a file"),
        (("--against", "hard"), 4, "Bots of tic_tac_toe_2p are random. A strategy is written top_k:3."),
        (("--against", "champion"), 2, "against champion is the same as model current"),
        (("--model", "random"), 2, "against random is the same as model random"),
        (("--model", ""), 2, "model is empty"),
        (("--model", "abcdef"), 4, "model: there is nothing called 'abcdef'"),
        (("--model", "ab"), 4, "at least 6 digits"),
        (("--model", "absent.npz"), 2, "model: there is no file absent.npz"),
        (("--model", __file__), 2, "test_eval_games.py is no model. hint: What is read: a checkpoint"),
        (("--episodes", 5), 2, "--episodes goes with --env"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(
    flyball: Flyball, models: list[ModelHash], words, code: int, why: str
) -> None:
    refused(flyball("--config", KEY, *words), code, why)


@pytest.mark.parametrize(
    ("key", "why"), [("tic_tac_to_2p", "Did you mean tic_tac_toe_2p"), ("hex7_2p", "no current model yet")]
)
def test_a_configuration_that_cannot_be_played_is_refused(flyball: Flyball, models, key: str, why: str) -> None:
    refused(flyball("--config", key), 4, why)


@pytest.mark.parametrize("option", ["--model", "--against"])
def test_model_of_another_game_is_refused_before_any_game(
    flyball: Flyball, models: list[ModelHash], tmp_path: Path, option: str
) -> None:
    model = stored(tmp_path, 1, "connect_four_2p")
    done = flyball("--config", KEY, option, model)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{option.removeprefix('--')} {model} was trained for connect_four_2p, not for {KEY}" in done.stderr
    assert "games" not in done.stderr
    # A game of the same size is accepted, because no game that is played could show the difference.
    othello, variant = GAMES["othello_2p"], tmp_path / "flyball.toml"
    variant.write_text(f'[games.other_2p]\ngame = "{othello.game}"\nplayers = 2\n')
    same = stored(tmp_path, 1, "othello_2p")
    assert flyball("--config", "other_2p", "--model", same, "--games", 2).exit_code == 0


def test_a_model_of_hearts_plays_games_of_any_number_of_hands(flyball: Flyball, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text(
        '[games.long_4p]\ngame = "hearts(hands=2)"\nplayers = 4\nengine = "flyball"\n'
        '[games.other_4p]\ngame = "hearts(pass_cards=false)"\nplayers = 4\nengine = "flyball"\n'
    )
    model = stored(tmp_path, 1, "hearts_4p")
    succeeded(flyball("--config", "long_4p", "--model", model, "--games", 4))
    refused(flyball("--config", "other_4p", "--model", model, "--games", 4), 2, "was trained for hearts_4p")


def test_what_the_workers_would_refuse_is_refused_before(flyball: Flyball, models, tmp_path: Path) -> None:
    whole = tmp_path / "store" / models[1][:2] / models[1][2:4] / models[1]
    part = tmp_path / "part.safetensors"
    part.write_bytes(whole.read_bytes()[:-4])
    done = flyball("--config", KEY, "--model", part)
    assert (done.exit_code, done.stdout) == (2, "")
    shard = FileStore(tmp_path / "store").put(b"anything else")
    refused(flyball("--config", KEY, "--model", shard), 2, "is no model")


def test_without_a_run_there_are_only_files(flyball: Flyball) -> None:
    refused(flyball("--config", KEY), 3, "There is no run in")
    refused(flyball("--config", KEY, "--model", "abcdef12"), 4, "has no models")
