"""``flyball eval --paired``: Hearts, hand for hand."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from commands import invoke, refused, succeeded
from recorded_run import write_league
from selfplay_rig import put_model

from flyball.app.config import GAMES, RunSettings

KEY = "hearts_4p"
Flyball = Callable[..., Result]


@pytest.fixture
def flyball(tmp_path: Path) -> Flyball:
    words = ("--run", str(tmp_path), "eval", "--paired")
    return lambda *more, key=KEY: invoke(*words, "--config", key, *more)


def test_checkpoint_is_compared_with_each_opponent_in_its_seat(flyball: Flyball, tmp_path: Path) -> None:
    model = put_model(tmp_path / "store", GAMES[KEY])
    done = succeeded(flyball("--model", model[:8], "--against", "normal,easy", "--games", 200, "--temperature", 0))
    assert len(done.stdout.splitlines()) == 1
    told = json.loads(done.stdout)
    assert (told["config"], told["policy"], told["temperature"]) == (KEY, model, 0)
    first, second = told["results"]
    assert [first["opponent"], first["reference_player"], second["opponent"]] == ["normal", "normal", "easy"]
    assert (first["hands"], first["deals"]) == (200, 50)
    assert first["lower"] < first["difference"] < first["upper"]
    assert first["difference"] == pytest.approx(first["hero"]["points"] - first["reference"]["points"])
    assert first["difference"] > 2  # it has learned nothing yet
    assert first["p_value"] < 0.001
    assert first["reference"]["win_share"] == pytest.approx(0.25)


def test_levels_are_played_once_in_whole_deals(flyball: Flyball) -> None:
    done = flyball("--model", "easy", "--against", "heuristic,normal", "--games", 8)
    assert [one["opponent_player"] for one in json.loads(done.stdout)["results"]] == ["normal"]
    assert "normal is there already, and is played once" in done.stderr
    (found,) = json.loads(flyball("--model", "normal", "--against", "normal", "--games", 40).stdout)["results"]
    assert (found["difference"], found["p_value"]) == (0, 1)
    done = flyball("--model", "easy", "--against", "normal", "--games", 1)
    assert json.loads(done.stdout)["results"][0]["hands"] == 8
    assert "8 hands instead of 1" in done.stderr
    assert done.stderr.splitlines()[-1] == "100% of 8 hands against each opponent, the reference's included"


def test_same_arguments_write_the_same_bytes_with_any_workers(flyball: Flyball) -> None:
    words = ("--model", "random", "--against", "easy", "--reference", "normal", "--games", 120)
    written = flyball(*words).stdout_bytes
    assert written == flyball(*words, "--workers", 2).stdout_bytes
    assert written != flyball(*words, "--seed", 4).stdout_bytes
    assert json.loads(written)["results"][0]["reference_player"] == "normal"


def test_checkpoints_are_opponents_and_references_too(flyball: Flyball, tmp_path: Path) -> None:
    first, second = (put_model(tmp_path / "store", GAMES[KEY], seed=seed, scale=3) for seed in range(2))
    file = tmp_path / "store" / second[:2] / second[2:4] / second
    done = flyball("--model", first, "--against", file, "--reference", "easy", "--games", 40)
    (found,) = json.loads(done.stdout)["results"]
    assert (found["opponent_player"], found["reference_player"]) == (second, "easy")
    assert found["hero"]["points"] != found["reference"]["points"]


def test_strategies_choose_opponents_here_too(flyball: Flyball, tmp_path: Path) -> None:
    members = [put_model(tmp_path / "store", GAMES[KEY], seed=seed) for seed in range(2)]
    settings = RunSettings(configs=(GAMES[KEY],))
    ratings = [*zip(members, (0.0, 10.0), strict=True)]
    write_league(tmp_path / "journal.sqlite", ratings, key=KEY, settings=settings)
    done = flyball("--model", "easy", "--against", "top_k:3,easy", "--games", 8)
    assert "has 2 of these, not 3" in done.stderr
    assert [found["opponent_player"] for found in json.loads(done.stdout)["results"]] == [*members[::-1], "easy"]


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("--model", "normal", "--against", "abcdef"), 4, "has no models"),
        (("--model", "normal", "--reference", "abcdef"), 4, "reference: there is nothing called 'abcdef'"),
        (("--episodes", 4), 2, "--episodes goes with --env"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(flyball: Flyball, words, code: int, why: str) -> None:
    refused(flyball(*words), code, why)


def test_paired_games_are_those_of_hearts(flyball: Flyball) -> None:
    refused(flyball("--model", "random", key="connect_four_2p"), 2, "as hearts_4p plays it, and connect_four_2p plays")


@pytest.mark.parametrize(
    "words",
    [
        ("--config", KEY, "--reference", "easy"),
        ("--env", "CartPole-v1", "--paired"),
        ("--env", "CartPole-v1", "--temperature", "1"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words) -> None:
    refused(invoke("eval", *words), 2, "goes with")
