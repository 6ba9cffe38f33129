"""``flyball experience``: games written as lines of JSON, checked, and learned from."""

import json
from pathlib import Path

import pytest
from commands import invoke, refused, succeeded
from selfplay_rig import put_model

from flyball.app.config import GAMES
from flyball.app.play import selfplay

HEARTS = ("--game", "hearts_4p")


@pytest.fixture
def hands(tmp_path: Path) -> Path:
    succeeded(invoke("experience", "export", tmp_path / "hands.jsonl", *HEARTS, "--hands", 6, "--model", "normal"))
    return tmp_path / "hands.jsonl"


def test_hands_are_written_repeat_and_pass_the_check(hands: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in hands.read_text().splitlines()]
    assert {row["game_id"] for row in rows} == set(range(6))
    assert len(rows[0]["obs"]) == 270
    told = json.loads(invoke("experience", "check", hands, *HEARTS, "--json").stdout)
    assert (told["games"], told["rows"], told["episodes"], told["seats"]) == (6, len(rows), 24, [0, 1, 2, 3])
    assert ["rows", str(len(rows))] in [
        line.split() for line in invoke("experience", "check", hands, *HEARTS).stdout.splitlines()
    ]

    def written(*words: object) -> str:
        file = tmp_path / "again.jsonl"
        words = ("experience", "export", file, *HEARTS, "--hands", 6, "--model", "normal", *words)
        assert invoke(*words).exit_code == 0
        return file.read_text()

    assert written() == hands.read_text()
    assert written("--seed", 1) != hands.read_text()
    ends = [json.loads(line) for line in hands.read_text().splitlines()]
    spread = [json.loads(line) for line in written("--rewards", "per_trick").splitlines()]
    assert not any(row["reward"] for row in ends if not row["done"])
    assert any(row["reward"] for row in spread if not row["done"])
    assert sum(row["reward"] for row in spread) == pytest.approx(0, abs=1e-5)
    lines = hands.read_text().splitlines()
    whole = invoke("experience", "check", hands, *HEARTS, "--json")
    assert (json.loads(whole.stdout)["steps_left_out"], whole.stderr) == (0, "")
    inner = [k for k, line in enumerate(lines) if not json.loads(line)["done"]]
    hands.write_text("".join(f"{line}\n" for k, line in enumerate(lines) if k not in (inner[0], inner[-1])))
    lacking = invoke("experience", "check", hands, *HEARTS, "--json")
    assert (lacking.exit_code, json.loads(lacking.stdout)["steps_left_out"]) == (0, 2)
    assert "are lines missing" in lacking.stderr


def test_many_games_are_one_file_of_several_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selfplay, "LESSON_GAMES", 4)
    model, file = put_model(tmp_path / "store"), tmp_path / "games.jsonl"
    words = ("export", file, "--game", "connect_four_2p", "--games", 10, "--model", model, "--json")
    done = invoke("--run", tmp_path, "experience", *words)
    told = json.loads(done.stdout)
    assert (told["games"], told["player"]) == (10, model)
    checked = json.loads(invoke("experience", "check", file, "--game", "connect_four_2p", "--json").stdout)
    assert (checked["games"], checked["rows"], checked["episodes"]) == (10, told["rows"], 20)


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("check", "{hands}", "--game", "connect_four_2p"), 2, "line 1: field obs: 270 numbers"),
        (("check", "{hands}", *HEARTS), 2, "line 3: field reward"),
        (("check", "{hands}.no", *HEARTS), 2, "cannot be read"),
        (("export", "/nowhere/x.jsonl", *HEARTS), 2, "cannot be written"),
        (("export", "x.jsonl", "--game", "hearts_5p"), 4, "Did you mean hearts_4p"),
        (("export", "x.jsonl", *HEARTS, "--model", "abc"), 4, "no models"),
        (("export", "x.jsonl"), 2, "Missing option"),
    ],
)
def test_what_is_wrong_is_named(hands: Path, tmp_path: Path, words, code: int, why: str) -> None:
    lines = hands.read_text().splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | {"reward": "much"})
    hands.write_text("\n".join(lines))
    words = [word.replace("{hands}", str(hands)) for word in words]
    refused(invoke("--run", tmp_path / "run", "experience", *words), code, why)  # not a run of the checkout


def test_a_run_is_cloned_from_a_file(hands: Path, tmp_path: Path) -> None:
    settings = {
        "collection.games_per_iteration": 8,
        "collection.num_iterations": 1,
        "network.hidden": [32],
        "cloning.experience": json.dumps(str(hands)),
        "cloning.rounds": 2,
        "cloning.epochs": 10,
        "cloning.batch_size": 16,
        "training.eval_games": 8,
        "training.final_games": 0,
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    done = succeeded(invoke("train", "hearts_4p", "--start", "bc", "--output", tmp_path / "run", *words))
    first, second = (line for line in done.stderr.splitlines() if line.startswith("cloning"))
    assert f"rows of {hands}, accuracy" in first
    losses = [float(line.split("cross-entropy ")[1].split(",")[0]) for line in (first, second)]
    assert losses[1] < losses[0] - 0.1, "the same rows are learned from again"
    assert GAMES["hearts_4p"].key in done.stdout
