"""Games of language models: recording, inspection, learning and ``flyball train``."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_text_server import FakeTextServer

from flyball.app.config import GAMES, BadSettings, LanguageSettings
from flyball.app.core import UnusableFile
from flyball.app.language import jobs, selfplay
from flyball.app.language.base_files import UnfitLanguageSettings
from flyball.app.language.base_model import get_base, load_base
from flyball.app.language.inspection import inspect
from flyball.app.language.selfplay import grouped_schedule
from flyball.app.language.token_shard import get_token_shard, put_token_shard
from flyball.app.language.training_settings import text_settings
from flyball.app.learning.devices import MissingDevice
from flyball.app.play.inspection import ForeignShard, RepeatedShard
from flyball.app.store import FileStore, MissingBlob
from flyball.app.train.run import train
from flyball.app.train.state import RunExists
from flyball.app.train.text import language_method
from flyball.daemons.clock import SystemClock

SMALL = GAMES["tic_tac_toe_text_2p"].replace(
    language=LanguageSettings(
        teacher="random", lessons=128, base_layers=1, base_width=16, base_heads=1, rank=2, group_games=4
    )
)


def silent(_report: object) -> None:
    return None


def train_text(folder: Path, values: dict[str, Any], *, resume: bool = False, say: Any = silent) -> dict[str, Any]:
    method = language_method(SMALL, values, 3, folder, resume=resume)
    method.say = say
    return train(method, SystemClock(), "").json()


class Played:
    def __init__(self, folder: Path, **language: Any) -> None:
        self.store = FileStore(folder)
        config = SMALL.replace(language=SMALL.language.replace(**language))
        self.spec = {"store": str(folder), "config": config.model_dump(mode="json"), "seed": 1}
        self.model = jobs.initialise(self.spec, silent)["model"]
        about = {"model": self.model, "games": 12, "temperature": 1.0, "worker": "test"}
        self.result = selfplay.play(self.spec | about, silent)
        self.key = self.result["shard"]

    def inspected(self, **changes: Any) -> dict[str, Any]:
        return inspect(self.spec | {"shard": self.key, "model": self.model} | changes, silent)


@pytest.fixture(scope="module")
def bound(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return Played(tmp_path_factory.mktemp("bound"))


def test_games_along_options_are_legal_and_pass_inspection(bound: Played) -> None:
    verdict = bound.inspected()
    assert verdict["failures"] == []
    assert verdict["checked"] == 12
    assert verdict["components"]["legality"] == verdict["components"]["parsing"] == 1.0
    assert verdict["score"] > 0.9
    shard = get_token_shard(bound.store, bound.key)
    assert shard.legal.all()
    assert (shard.reward == shard.returns[shard.game, shard.seat]).all()


def test_free_answers_that_are_not_legal_cost_their_seat(tmp_path: Path) -> None:
    free = Played(tmp_path, constrained=False, lessons=0, most_tokens=3)
    verdict, shard = free.inspected(), get_token_shard(free.store, free.key)
    assert verdict["failures"] == []  # the substituted actions are legal
    assert verdict["components"]["legality"] < 0.5
    assert verdict["score"] < 0.7
    assert not shard.legal.all()
    worst = shard.reward - shard.returns[shard.game, shard.seat]
    assert worst.min() == pytest.approx(-1)
    assert (worst[shard.legal & (worst > -1e-6)] <= 1e-6).all()
    assert (shard.allowed_counts == 0).all()
    trained = jobs.train(
        free.spec | {"base_model": free.model, "shards": [free.key], "step": 0, "learning_rate": 1e-3, "epochs": 1},
        silent,
    )
    assert trained["metrics"]["legal"] == pytest.approx(float(shard.legal.mean()))


@pytest.mark.parametrize("what", ["returns", "ids", "said"])
def test_altered_games_are_noticed(bound: Played, what: str) -> None:
    shard = get_token_shard(bound.store, bound.key)
    array = getattr(shard, what).copy()
    if what == "returns":
        array = np.roll(array, 1, axis=1)
    elif what == "ids":
        array[5] += 1
    else:
        array[:] = np.roll(array, 3)
    key = put_token_shard(bound.store, replace(shard, **{what: array}))
    assert bound.inspected(shard=key)["failures"]


def test_foreign_and_repeated_shards_are_refused(bound: Played) -> None:
    with pytest.raises(ForeignShard):
        bound.inspected(model="f" * 64)
    with pytest.raises(RepeatedShard, match="delivered before"):
        bound.inspected(earlier=[bound.key])
    shard = get_token_shard(bound.store, bound.key)
    copy = put_token_shard(bound.store, replace(shard, meta=shard.meta.replace(worker="another")))
    with pytest.raises(RepeatedShard, match="too many to be chance"):
        bound.inspected(shard=copy, earlier=[bound.key])
    spent = put_token_shard(bound.store, replace(shard, meta=shard.meta.replace(worker="spent")))
    bound.inspected(discard=[spent])
    with pytest.raises(MissingBlob):
        get_token_shard(bound.store, spent)


def test_games_by_a_server_are_those_of_the_job(bound: Played, tmp_path: Path) -> None:
    fingerprint = get_token_shard(bound.store, bound.key).meta.base
    about = {"model": bound.model, "games": 12, "temperature": 1.0, "worker": "test"}
    with FakeTextServer(get_base(bound.store, fingerprint)) as server:
        place = {"text_servers": {"addresses": [server.address], "folder": str(tmp_path)}}
        served = selfplay.play(bound.spec | about | place, silent)["shard"]
        assert server.asked
    one, other = get_token_shard(bound.store, bound.key), get_token_shard(bound.store, served)
    for column in ("ids", "offsets", "allowed", "loss_mask", "returns", "said"):
        assert np.array_equal(getattr(one, column), getattr(other, column))
    assert np.allclose(one.log_prob, other.log_prob, atol=1e-4)
    assert load_base(str(tmp_path / fingerprint)).encode("x wins") == get_base(bound.store, fingerprint).encode(
        "x wins"
    )


def test_groups_share_start_and_seat() -> None:
    schedule = grouped_schedule(22, 3, [((1, 2), 8), ((2, 2), 6)], group=4, openings=5, seed=7)
    assert schedule.starts == [0] * 4 + [1] * 4 + [2] * 3 + [3] * 3 + [4] * 4 + [5] * 4
    assert len(schedule.seeds) == len(set(schedule.seeds)) == len(schedule.openings) == 6
    for first, end in ((0, 4), (4, 8), (8, 11), (11, 14)):
        assert (schedule.seating[first:end] == schedule.seating[first]).all()
        assert (schedule.seating[first] == 0).sum() == 1
    assert {tuple(np.roll(row, -int(np.argmin(row)))) for row in schedule.seating[:8]} == {(0, 1, 2)}
    assert (schedule.seating[14:] == 0).all()
    assert 0 <= min(schedule.openings) <= max(schedule.openings) <= 5


@pytest.mark.parametrize("players", [3, 7])
def test_hero_takes_every_seat_over_groups_or_requests(players: int) -> None:
    lineups = [((1,) * (players - 1), 4)] * players
    schedule = grouped_schedule(4 * players, players, lineups, group=4, openings=0, seed=1)
    heroes = (schedule.seating == 0).argmax(axis=1)
    assert sorted(heroes[::4].tolist()) == list(range(players))
    schedules = [grouped_schedule(4, 3, [((1, 2), 4)], group=4, openings=0, seed=seed) for seed in range(20)]
    assert {int((schedule.seating[0] == 0).argmax()) for schedule in schedules} == {0, 1, 2}


def test_interrupted_training_becomes_what_it_would_have_become(tmp_path: Path) -> None:
    loop = {"evaluate_every": 5, "evaluation_games": 4, "final_games": 4, "selfplay.games_per_request": 8}
    lines: list[str] = []

    def trained(name: str, iterations: int, *, resume: bool = False) -> dict[str, Any]:
        values = {"iterations": iterations} if resume else loop | {"iterations": iterations}
        return train_text(tmp_path / name, values, resume=resume, say=lines.append)

    whole = trained("whole", 2)
    trained("parts", 1)
    parts = trained("parts", 2, resume=True)
    assert parts["model"] == whole["model"]
    assert json.loads((tmp_path / "parts" / "report.json").read_text())["iterations"] == 2
    assert any("free answers legal" in line for line in lines)
    with pytest.raises(RunExists, match="holds a run"):
        trained("whole", 3)


def test_report_that_cannot_be_written_is_an_error_and_healed(tmp_path: Path) -> None:
    train_text(tmp_path, {"iterations": 1, "evaluation_games": 4, "final_games": 4, "selfplay.games_per_request": 8})
    report = tmp_path / "report.json"
    whole = report.read_text()
    report.unlink()
    report.mkdir()
    with pytest.raises(UnusableFile):
        train_text(tmp_path, {}, resume=True)
    report.rmdir()
    report.write_text(whole[:20])
    train_text(tmp_path, {}, resume=True)
    assert report.read_text() == whole


def test_learning_rate_falls_over_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, int]] = []

    def counted(spec: Any, report: Any) -> Any:
        seen.append((spec["learning_rate"], torch.get_num_threads()))
        return learn(spec, report)

    learn = jobs.train
    monkeypatch.setattr(jobs, "train", counted)
    values = {"iterations": 4, "threads": 2, "evaluation_games": 2, "final_games": 2, "selfplay.games_per_request": 8}
    train_text(tmp_path / "run", values)
    assert seen == [(SMALL.learning_rate * share, 2) for share in (1, 0.75, 0.5, 0.25)]


def test_unfit_settings_begin_no_training(tmp_path: Path) -> None:
    for values, error in (({"device": "cuda:99"}, MissingDevice), ({"language.rank": 200}, UnfitLanguageSettings)):
        with pytest.raises(error, match=r"cuda:99|rank"):
            train_text(tmp_path / "new", values)
        assert not (tmp_path / "new").exists()
    config, loop = text_settings(SMALL, {"iterations": 3, "language.rank": 4, "learning_rate": 0.1})
    assert (config.language.rank, config.language.lessons, config.learning_rate, loop.iterations) == (4, 128, 0.1, 3)
    for values in ({"language.rnk": 4}, {"iterations": 0}, {"no_such": 1}):
        with pytest.raises(BadSettings, match=r"rnk|iterations|no_such"):
            text_settings(SMALL, values)
