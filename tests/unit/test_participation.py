"""Participants: settings of external runs, tasks and their answers, requests, commands."""

import asyncio
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from participation_specs import BASE, CONTEXT, INSPECT, JOBS, MODEL, PLAY, SHARD, THEIRS, TRAIN
from pydantic import ValidationError

from flyball.app.api.participation import HeldName, check_kinds, kinds_of
from flyball.app.backends import describe, understood
from flyball.app.config import GAMES, BadSettings, GameConfig, RunSettings
from flyball.app.config.loading import load
from flyball.app.core import BadUsage
from flyball.app.engine import JobFailed, LocalEngine
from flyball.app.engine.folder_command import BadResult, CommandFailed
from flyball.app.engine.relay import RelayEngine
from flyball.app.job_specs import BatchResult, InspectionResult, ModelResult, SelfplayResult
from flyball.app.participation import jobs
from flyball.app.participation.commands import CommandEngine, run_command
from flyball.app.participation.requests import AnsweredTwice, Request
from flyball.app.participation.tasks import NotExternal, task_of
from flyball.app.play.inspection import RepeatedShard
from flyball.daemons.registry import check_hosted_here, left_to_participants

OURS = GAMES["tic_tac_toe_2p"]
EXTERNAL = RunSettings(configs=(THEIRS,))


def match(games: int, first: int = 0, players: int = 2) -> dict[str, Any]:
    config = THEIRS.replace(key=f"mine_{players}p", players=players).model_dump(mode="json")
    opponent = {"name": "champion", "kind": "model", "model": BASE, "games": 64}
    batch = {"opponent": opponent, "first": first, "games": games}
    return CONTEXT | {"config": config, "model": MODEL, "batch": batch}


def task(name: str, spec: dict[str, Any]) -> Any:
    return task_of(f"{JOBS}:{name}", spec)


def test_external_and_our_configurations_are_not_mixed() -> None:
    with pytest.raises(ValidationError, match="give the configurations with backend external a run folder of their"):
        RunSettings(configs=(OURS, THEIRS))
    assert EXTERNAL.is_external
    assert not RunSettings(configs=(OURS,)).is_external


@pytest.mark.parametrize(
    "change", [{"trainer": "mine:train"}, {"train_command": ("a",)}, {"bots": {"b": {"player": "x:y"}}}]
)
def test_external_configuration_with_own_parts_is_refused(change: dict) -> None:
    with pytest.raises(ValidationError, match="participants train and play mine_2p"):
        GameConfig.model_validate(THEIRS.model_dump() | change)


def test_external_configuration_describes_itself() -> None:
    info = describe(THEIRS.replace(builtins=("random", "gnubg")))
    assert (info.rules_version, info.players, info.bots) == ("mine, rules 1", 2, ("random", "gnubg"))
    assert understood(EXTERNAL) == EXTERNAL
    replaying = RunSettings(configs=(THEIRS.replace(replay_rows=100),))
    assert understood(replaying) == replaying


def test_only_participants_host_the_workers_of_external_runs() -> None:
    assert left_to_participants(RunSettings(configs=(OURS,))) == frozenset()
    assert left_to_participants(EXTERNAL) == {"selfplay_worker", "training", "evaluation"}
    inspected = EXTERNAL.replace(external_inspection=True)
    assert left_to_participants(inspected) == {"selfplay_worker", "training", "evaluation", "quality_monitor"}
    check_hosted_here("quality_monitor", EXTERNAL)
    with pytest.raises(BadSettings, match="runs in its participants") as refused:
        check_hosted_here("training", EXTERNAL)
    assert "flyball participate" in refused.value.hint


def test_kinds_that_a_run_does_not_leave_are_refused() -> None:
    check_kinds(("training", "distribution"), EXTERNAL)
    check_kinds(("inspection",), EXTERNAL.replace(external_inspection=True))
    with pytest.raises(BadSettings, match="accepts every shard"):
        check_kinds(("inspection",), EXTERNAL)
    with pytest.raises(BadSettings, match="by the backend policy_gradient"):
        check_kinds(("training",), RunSettings(configs=(OURS,)))


def test_kinds_have_aliases_and_misspellings_a_hint() -> None:
    assert kinds_of(("play", "selfplay", "quality_monitor")) == ("selfplay", "inspection")
    with pytest.raises(BadUsage) as refused:
        kinds_of(("trianing",))
    assert "training" in refused.value.hint
    with pytest.raises(BadUsage, match="needs a kind"):
        kinds_of(())


def test_unnamed_participants_take_free_names_in_order(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    first, second = HeldName(loaded, tmp_path, None), HeldName(loaded, tmp_path, None)
    assert (first.name, second.name) == ("laptop.1", "laptop.2")
    first.close()
    third = HeldName(loaded, tmp_path, None)
    assert third.name == "laptop.1"
    with pytest.raises(Exception, match=r"Another participant called laptop\.2 runs"):
        HeldName(loaded, tmp_path, "laptop.2")
    for name in ("laptop", "../up", "", "x" * 64):
        with pytest.raises(BadUsage, match="cannot be a participant's name"):
            HeldName(loaded, tmp_path, name)
    second.close()
    third.close()


def test_task_has_what_a_program_needs_and_a_steady_id() -> None:
    training = task("train", TRAIN)
    document = training.model_dump(mode="json")
    assert document == {
        "kind": "training",
        "id": training.id,
        "config_key": "mine_2p",
        "game": "mine, rules 1",
        "players": 2,
        "options": {"size": 3},
        "base_model": BASE,
        "step": 4,
        "shards": [SHARD],
        "replayed": [],
        "rows": 70,
        "seed": 5,
        "learning_rate": 0.1,
        "epochs": 2,
    }
    assert task("train", TRAIN | {"store": "/elsewhere"}).id == training.id
    assert task("train", TRAIN | {"seed": 6}).id != training.id
    with pytest.raises(NotExternal):
        task_of("flyball.app.learning.jobs:train", TRAIN)


def test_games_against_itself_are_no_lineup() -> None:
    lineups = [{"opponents": [opponent], "games": 2} for opponent in (MODEL, BASE, "random")]
    asked = task("play", PLAY | {"lineups": lineups})
    assert [lineup.opponents for lineup in asked.lineups] == [(BASE,), ("random",)]
    assert asked.games == 8


def test_first_model_has_step_0_and_no_parent() -> None:
    first = task("initialise", CONTEXT)
    assert (first.base_model, first.step, first.rows, first.shards) == (None, 0, 0, ())
    result = ModelResult.model_validate(first.result({"model": MODEL, "metrics": {"loss": 1.0}}, 2.0))
    assert (result.model, result.parent, result.step, result.rows, result.metrics) == (MODEL, None, 0, 0, None)


def test_answers_become_results_that_daemons_take(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"weights")
    trained = task("train", TRAIN).result({"model": tmp_path / "model.bin", "metrics": {"loss": 1}}, 2.0)
    result = ModelResult.model_validate(trained)
    assert (result.model, result.parent) == (sha256(b"weights").hexdigest(), BASE)
    assert (result.step, result.rows, result.metrics) == (4, 70, {"loss": 1.0})
    played = task("play", PLAY).result({"shard": f"s3://bucket/{SHARD}.npz", "rows": 40}, 2.5)
    shard = SelfplayResult.model_validate(played)
    assert (shard.shard, shard.rows, shard.games, shard.mean_length, shard.seconds) == (SHARD, 40, 8, 5.0, 2.5)
    judged = task("inspect", INSPECT).result({"score": 0.5, "failures": ["game 3"]}, 1.0)
    assert InspectionResult.model_validate(judged).checked == 1


@pytest.mark.parametrize(
    ("players", "scores", "verdicts"),
    [(2, [1, 0.5, 0, 0.75], ("won", "drawn", "lost", "won")), (4, [1, 0.5, 0, 0.75], ("won", "lost", "lost", "lost"))],
)
def test_scores_of_games_have_verdicts_and_stay_distinct(players: int, scores: list, verdicts: tuple) -> None:
    games = BatchResult.model_validate(task("match", match(4, 4, players)).result({"scores": scores}, 1.0)).games
    assert (games.scores, games.verdicts) == (tuple(scores), verdicts)
    assert len({*games.fingerprints}) == 4
    said = {"verdicts": ["truncated"] * 4, "outcomes": [3, 2, 1, 0], "fingerprints": ["same"] * 4}
    games = BatchResult.model_validate(task("match", match(4, 0, players)).result({"scores": scores} | said, 1.0)).games
    assert (games.verdicts, games.outcomes, {*games.fingerprints}) == (("truncated",) * 4, (3, 2, 1, 0), {"same"})


@pytest.mark.parametrize(
    ("name", "spec", "answer", "message"),
    [
        ("train", TRAIN, {"model": "latest.pt"}, "does not have the SHA-256"),
        ("train", TRAIN, {"model": Path("missing.pt")}, "the file cannot be read"),
        ("train", TRAIN, {"model": BASE}, "names the base model bbbbbbbb as the new one"),
        ("train", TRAIN, {"model": MODEL, "metrics": {"loss": float("nan")}}, r"metrics\.loss"),
        ("train", TRAIN, {"model": MODEL, "lost": 1}, "lost: Extra inputs"),
        ("play", PLAY, {"shard": SHARD, "rows": 0}, "rows"),
        ("play", PLAY, {"shard": SHARD, "rows": 9, "games": 10**9}, "for a task of"),
        ("play", PLAY, {"shard": SHARD, "rows": 9, "truncated": 10**6}, "cut off"),
        ("inspect", INSPECT, {"score": 2}, "score"),
        ("match", match(4), {"scores": [1, -1, 1, -1]}, "1 for a win"),
        ("match", match(4), {"scores": [1, 0]}, "2 scores for 4 games"),
    ],
)
def test_answer_that_does_not_fit_is_refused(name: str, spec: dict, answer: dict, message: str) -> None:
    with pytest.raises(BadResult, match=message):
        task(name, spec).result(answer, 1.0)


def test_shard_that_nobody_inspects_is_accepted() -> None:
    result = InspectionResult.model_validate(jobs.inspect(INSPECT, print))
    assert (result.score, result.checked, result.failures) == (1.0, 0, ())
    with pytest.raises(RepeatedShard):
        jobs.inspect(INSPECT | {"earlier": [INSPECT["shard"]]}, print)
    with pytest.raises(jobs.LeftToParticipants):
        jobs.train(TRAIN, print)


async def handed(engine: RelayEngine, name: str = "train", spec: dict = TRAIN, reports: Any = None) -> Any:
    running = asyncio.get_running_loop().create_task(engine.run(f"{JOBS}:{name}", spec, reports, 60.0))
    job = await asyncio.to_thread(engine.take, 10.0)
    assert job is not None
    return running, Request(job)


async def test_request_reports_progress_and_succeeds_once() -> None:
    engine, reports = RelayEngine(), list[dict]()
    running, request = await handed(engine, reports=reports.append)
    assert (request.kind, request["epochs"], request.deadline_seconds) == ("training", 2, 60.0)
    assert request.document["id"] == request.id
    request.progress(1, 2, loss=0.5)
    with pytest.raises(BadResult, match="epoch"):
        request.progress(0, 2)
    with pytest.raises(BadResult):
        request.succeed(model="nothing")
    assert request.succeed(model=MODEL)
    assert (await running)["model"] == MODEL
    assert reports == [{"epoch": 1, "epochs": 2, "metrics": {"loss": 0.5}}]
    assert not request.is_wanted
    with pytest.raises(AnsweredTwice, match="answered already"):
        request.fail("error", "late")


@pytest.mark.parametrize(("reason", "code"), [("diverged", "diverged"), ("bad_data", "bad_data"), ("error", "failed")])
async def test_failed_request_has_the_code_that_daemons_judge(reason: Any, code: str) -> None:
    running, request = await handed(RelayEngine())
    request.fail(reason, "the loss is infinite")
    with pytest.raises(JobFailed, match=f"{reason}: the loss is infinite") as failed:
        await running
    assert failed.value.code == code


async def test_failure_may_be_an_exception() -> None:
    running, request = await handed(RelayEngine())
    request.fail("error", ValueError("no rows"))
    with pytest.raises(JobFailed, match="no rows"):
        await running


async def test_exception_in_a_block_is_the_requests_failure() -> None:
    running, request = await handed(RelayEngine())
    with request:
        raise ValueError("no rows")
    with pytest.raises(JobFailed, match="ValueError: no rows"):
        await running


async def test_answer_after_the_end_is_told_that_nobody_waits() -> None:
    running, request = await handed(RelayEngine())
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not request.is_wanted
    assert not request.succeed(model=MODEL)


async def test_withdrawn_jobs_are_cancelled_and_not_failed() -> None:
    engine = RelayEngine()
    running, request = await handed(engine)
    waiting = asyncio.get_running_loop().create_task(engine.run(f"{JOBS}:train", TRAIN))
    await asyncio.sleep(0)
    engine.withdraw()
    assert engine.take(0.0) is None
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(asyncio.CancelledError):
        await engine.run(f"{JOBS}:train", TRAIN)
    request.succeed(model=MODEL)
    assert (await running)["model"] == MODEL


async def test_withdrawn_jobs_keep_their_answers() -> None:
    engine = RelayEngine()
    answered, request = await handed(engine)
    open_one, _ = await handed(engine)
    request.succeed(model=MODEL)
    engine.withdraw(taken=True)
    assert (await answered)["model"] == MODEL
    with pytest.raises(asyncio.CancelledError):
        await open_one


COMMAND = """import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
request = json.loads((folder / "request.json").read_text())
{body}
"""


def commanded(tmp_path: Path, body: str) -> dict[str, Any]:
    (tmp_path / "work.py").write_text(COMMAND.format(body=body))
    same = {"working_folder": str(tmp_path), "scratch": str(tmp_path / "tasks"), "deadline_seconds": 9.0}
    return same | {"command": ["python", "work.py"], "function": f"{JOBS}:train", "spec": TRAIN}


ANSWER = '(folder / "result.json").write_text(json.dumps({}))'


def test_command_answers_in_its_folder(tmp_path: Path) -> None:
    body = 'print(json.dumps({"epoch": 1, "epochs": 2, "loss": 0.5}))\n'
    body += ANSWER.format(
        '{"model": request["base_model"].replace("b", "d"), "metrics": {"d": request["deadline_seconds"]}}'
    )
    reports: list[dict] = []
    result = run_command(commanded(tmp_path, body), reports.append)
    assert (result["model"], result["metrics"]) == ("d" * 64, {"d": 9.0})
    assert reports == [{"epoch": 1, "epochs": 2, "metrics": {"loss": 0.5}}]
    assert not list((tmp_path / "tasks").iterdir())


@pytest.mark.parametrize("line", ['{"epoch": 0, "epochs": 2}', '{"epoch": 1, "epochs": 2, "phase": "train"}'])
def test_unusable_progress_costs_no_result(tmp_path: Path, line: str) -> None:
    body = f"print({line!r})\n" + ANSWER.format('{"model": "d" * 64}')
    reports: list[dict] = []
    assert run_command(commanded(tmp_path, body), reports.append)["model"] == "d" * 64
    assert reports == []


@pytest.mark.parametrize(
    ("body", "error", "message", "code"),
    [
        ("sys.exit('no rows')", CommandFailed, "exited with code 1", "failed"),
        ("pass", BadResult, r"wrote no result\.json", "failed"),
        (ANSWER.format('{"model": "x"}'), BadResult, "does not have the SHA-256", "failed"),
        (ANSWER.format('["model"]'), BadResult, "result.json is", "failed"),
        (ANSWER.format('{"discard": "NaN"}'), Exception, "NaN", "diverged"),
        (ANSWER.format('{"bad_data": "torn"}'), Exception, "torn", "bad_data"),
    ],
)
def test_command_that_fails_says_why(tmp_path: Path, body: str, error: Any, message: str, code: str) -> None:
    with pytest.raises(error, match=message) as failed:
        run_command(commanded(tmp_path, body), print)
    assert failed.value.code == code


async def test_command_engine_runs_tasks_in_processes(tmp_path: Path) -> None:
    body = ANSWER.format('{"model": request["base_model"].replace("b", "d")}')
    commanded(tmp_path, body)
    engine = CommandEngine(LocalEngine(), (sys.executable, "work.py"), tmp_path, tmp_path / "tasks")
    try:
        assert (await engine.run(f"{JOBS}:train", TRAIN))["model"] == "d" * 64
        assert await engine.capacity() is None
    finally:
        await engine.close()
