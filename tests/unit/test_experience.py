"""Experience as lines of JSON. Nothing is lost, and errors name file, line and field."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from shard_rows import META, played

from flyball.app.config import GAMES
from flyball.app.core import FlyballError
from flyball.app.games import open_table
from flyball.app.learning.samples import make_samples
from flyball.app.store import Shard, experience_lines, load_experience, steps_left_out
from flyball.app.store.experience import BadExperience, read_experience


def shard_of(key: str, games: int, **changes) -> Shard:
    return played(GAMES[key].replace(**changes), games)


def read(lines, key="hearts_4p") -> Shard:
    return read_experience(lines, "data.jsonl", META, open_table(GAMES[key], 0).spec)


@pytest.mark.parametrize(
    ("key", "changes"), [("hearts_4p", {}), ("connect_four_2p", {}), ("chinese_checkers_3p", {"max_moves": 9})]
)
def test_what_is_written_is_read_again(key: str, changes: dict) -> None:
    shard = shard_of(key, 5, **changes)
    lines = list(experience_lines(shard))
    again = read(lines, key)
    for name in ("obs", "mask", "action", "log_prob", "value", "reward", "done", "truncated", "bootstrap", "seat"):
        np.testing.assert_array_equal(getattr(again, name), getattr(shard, name))
        assert getattr(again, name).dtype == getattr(shard, name).dtype
    np.testing.assert_array_equal(again.game, shard.game)
    np.testing.assert_array_equal(again.step, shard.step)
    np.testing.assert_allclose(again.returns, shard.returns, atol=1e-6)
    if key == "hearts_4p":
        first = "obs mask action reward value log_prob done game_id step_id seat"
        assert " ".join(json.loads(lines[0])) == first
        assert len(json.loads(lines[0])["obs"]) == 270


def test_experience_in_any_order_and_numbering_is_the_same() -> None:
    shard = shard_of("hearts_4p", 3)
    lines = [json.loads(line) for line in experience_lines(shard)]
    for line in lines:
        line["game_id"] = [70, 700, 8000][line["game_id"]]
    shuffled = [json.dumps(lines[k]) for k in np.random.default_rng(0).permutation(len(lines))]
    again = read(["", *shuffled, "\n"])
    np.testing.assert_array_equal(again.game, shard.game)
    expected, found = make_samples([shard], 1.0, 0.95), make_samples([again], 1.0, 0.95)
    np.testing.assert_allclose(found.advantage.numpy(), expected.advantage.numpy(), atol=1e-6)
    shard = shard_of("connect_four_2p", 2)
    names = "obs mask action log_prob value reward done truncated bootstrap seat game step"
    backwards = replace(shard, **{name: getattr(shard, name)[::-1].copy() for name in names.split()})
    assert list(experience_lines(backwards)) == list(experience_lines(shard))[::-1]


@pytest.mark.parametrize("first", [0, 1])
def test_steps_that_no_line_has_are_counted(first: int) -> None:
    rows = [json.loads(line) for line in experience_lines(shard_of("connect_four_2p", 3))]
    for row in rows:
        row["step_id"] += first
    whole = read(map(json.dumps, rows), "connect_four_2p")
    assert steps_left_out(whole) == 0
    beginnings = [row for row in rows if not (row["game_id"] == 1 and row["step_id"] < first + 2)]
    assert steps_left_out(read(map(json.dumps, beginnings), "connect_four_2p")) == 2
    of_one_seat = [row for row in rows if row["seat"] == 0]
    left = steps_left_out(read(map(json.dumps, of_one_seat), "connect_four_2p"))
    assert len(of_one_seat) - 3 <= left <= len(of_one_seat)


def edited(change) -> list[str]:
    """Return the lines of two hands, the third of them changed."""
    lines = list(experience_lines(shard_of("hearts_4p", 2)))
    row = json.loads(lines[2])
    change(row)
    lines[2] = json.dumps(row)
    return lines


def put(name, value):
    return lambda row: row.update({name: value})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda row: row.pop("mask"), r"line 3: field mask: Field required"),
        (put("obs", [0.0] * 269), r"line 3: field obs: 269 numbers, and .*hearts has 270"),
        (put("mask", [1] * 51), r"line 3: field mask: 51 numbers|line 3: action"),
        (lambda row: row["obs"].__setitem__(7, "x"), r"line 3: field obs\[7\]: Input should be a valid number"),
        (lambda row: row["mask"].__setitem__(row["action"], 0), r"line 3: action \d+ is not legal"),
        (put("action", 52), r"line 3: action 52 is not legal"),
        (put("reward", None), r"line 3: field reward"),
        (put("log_prob", 0.5), r"line 3: field log_prob: Input should be less than or equal to 0"),
        (put("seat", 4), r"line 3: field seat: 4, but there are 4 players"),
        (put("done", True), r"line 3: field done: seat 0 in game 0 ends here but goes on later"),
        (put("step", 3), r"line 3: field step: Extra inputs are not permitted"),
        (put("truncated", True), r"line 3: field done: seat 0 in game 0 ends here"),
    ],
)
def test_a_bad_line_is_named(change, complaint: str) -> None:
    with pytest.raises(BadExperience, match=r"data\.jsonl, " + complaint):
        read(edited(change))


def test_a_file_is_loaded_as_a_shard_of_its_game(tmp_path) -> None:
    shard, file = shard_of("hearts_4p", 3), tmp_path / "hands.jsonl"
    file.write_text("\n".join([*experience_lines(shard), *experience_lines(shard_of("hearts_4p", 2), 3)]))
    found = load_experience(file, GAMES["hearts_4p"])
    assert (found.games, found.rows > shard.rows) == (5, True)
    np.testing.assert_array_equal(found.obs[: shard.rows], shard.obs)
    assert found.meta.config_key == "hearts_4p"
    assert found.meta.model == hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(FlyballError, match=r"no\.jsonl cannot be read"):
        load_experience(tmp_path / "no.jsonl", GAMES["hearts_4p"])


def test_bad_files_and_features_are_named() -> None:
    first, second, *rest = experience_lines(shard_of("hearts_4p", 1))
    for lines, complaint in (
        ([first, second[:50]], "line 2: Invalid JSON"),
        ([first, second, *rest[:-1]], r"line \d+: field done: seat 3 in game 0 never ends"),
        ([first, first, second, *rest], r"line \d: field step_id: seat 0 in game 0 has step \d twice"),
        ([], "no experience"),
        ([json.dumps(json.loads(first) | {"value": float("nan")}), second], r"line 1: field value: .* finite"),
    ):
        with pytest.raises(BadExperience, match=complaint):
            read(lines)
    lines = list(experience_lines(shard_of("connect_four_2p", 1)))
    row = json.loads(lines[1])
    for value in (0.5, 256, -1):
        row["obs"][3] = value
        with pytest.raises(BadExperience, match=r"line 2: field obs: .*connect_four has whole numbers from 0 to 255"):
            read([lines[0], json.dumps(row), *lines[2:]], "connect_four_2p")
