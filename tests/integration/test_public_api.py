"""The public API: results, errors, and agreement with the commands."""

import asyncio
import doctest
import gc
import json
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_overloads, get_type_hints

import numpy as np
import pytest
import torch
from bus_rig import broker_daemon
from commands import invoke, told
from recorded_run import KEY, OLD, Recording, evidence, recording, write_journal

import flyball
from flyball.app.api.run_reader import P
from flyball.app.core import Elo, ModelHash
from flyball.app.events import ModelPromoted, RunConfigured
from flyball.app.games import open_table
from flyball.app.learning.jobs import first_model
from flyball.app.store import put_checkpoint

BRIEF = {
    "collection": {"num_iterations": 1, "games_per_iteration": 16},
    "network.hidden": [16],
    "training.final_games": 8,
    "training.eval_games": 8,
}
EXAMPLES = [name for name in flyball.__all__ if ">>>" in (getattr(flyball, name).__doc__ or "")]
SOLVED = "connect_four_2p"
ROLLBACK = {"model": OLD, "reason": "odd play"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> flyball.TrainingResult:
    folder = tmp_path_factory.mktemp("trained")
    return flyball.train(KEY, BRIEF, output=folder / "trained", seed=3, run=folder)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return a run folder with a journal, and no broker."""
    write_journal(tmp_path / "journal.sqlite", recording().events)
    return tmp_path


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Path]:
    with broker_daemon(tmp_path):
        yield tmp_path


@pytest.mark.parametrize("name", EXAMPLES)
def test_docstring_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: flyball.TrainingResult
) -> None:
    monkeypatch.chdir(tmp_path)
    if name != "train":
        (tmp_path / "trained").symlink_to(trained.output)
    (tmp_path / "run").mkdir()
    write_journal(tmp_path / "run" / "journal.sqlite", recording().events)
    finder, names = doctest.DocTestFinder(recurse=False), {"flyball": flyball, "np": np}
    (example,) = finder.find(getattr(flyball, name), name, globs=names)
    assert example.examples
    results = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF).run(example)
    assert results.failed == 0
    assert results.attempted > 0


def test_page_of_the_api_shows_code_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    page = Path(__file__).parents[2] / "ADR" / "guide" / "python_api.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    with broker_daemon(tmp_path / "run"):
        for block in blocks:
            exec(compile(block, str(page), "exec"), names)
        asyncio.run(names["promotions"]("run"))
    assert names["event"].data.event_name == "ROLLBACK_REQUESTED"
    assert names["match"].games == 400


def test_train_gives_what_the_command_gives(trained: flyball.TrainingResult, tmp_path: Path) -> None:
    values = {"collection.num_iterations": 1, "collection.games_per_iteration": 16, "network.hidden": [16]}
    values |= {"training.final_games": 8, "training.eval_games": 8}
    sets = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    assert told(invoke("train", KEY, "--output", tmp_path / "other", "--seed", 3, "--json", *sets)) == trained.json()
    assert trained.model == trained.state.best.model
    assert trained.policy.is_file()
    assert trained.scores == {found.opponent: found.outcome for found in trained.final}
    assert trained.summary.startswith(f"# {KEY}, seed 3")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: flyball.train(KEY, seed=-1), "seed is -1"),
        (lambda: flyball.train("tic_tac_to_2p"), "Did you mean tic_tac_toe_2p"),
        (lambda: flyball.train(KEY, {"ppo.gama": 0.9}), r"'ppo.gama'\. Did you mean ppo.gamma"),
        (lambda: flyball.train(KEY, {"ppo": {"gamma": 2}}), r"ppo.gamma: Input"),
        (lambda: flyball.train(flyball.GAMES[KEY].replace(backend="language"), {}), "flyball up"),
        (lambda: flyball.train(KEY, resume=True), ""),
        (lambda: flyball.train(KEY, settings_file="none.toml"), ""),
        (lambda: flyball.train(KEY, config_file="none.toml"), ""),
        (lambda: flyball.check_game(KEY, games=1), "games is 1"),
        (lambda: flyball.check_game(KEY, seed=-1), "seed is -1"),
        (lambda: flyball.load_policy("current", precision="float16"), "precision is 'float16'"),
        (lambda: flyball.load_policy("current", seed=2**63), "seed is 9223372036854775808"),
        (lambda: flyball.load_policy("."), ""),
        (lambda: flyball.connect("nowhere"), "There is no run in"),
        (lambda: flyball.evaluate("random"), "Name the configuration"),
        (lambda: flyball.evaluate("current"), ""),
        (lambda: flyball.evaluate("current", KEY), ""),
        (lambda: flyball.evaluate("random", KEY, against="nobody"), ""),
        (lambda: flyball.evaluate("random", SOLVED, device="tpu"), "no device 'tpu'"),
        (lambda: flyball.evaluate("heuristic", SOLVED, against=[]), r"against is \[\]"),
        (lambda: flyball.evaluate("heuristic", SOLVED, games=0), "games is 0: .* greater than or equal to 1"),
        (lambda: flyball.evaluate("heuristic", SOLVED, workers=0), "workers is 0"),
        (lambda: flyball.evaluate("heuristic", SOLVED, seed=-1), "seed is -1"),
        (lambda: flyball.evaluate("heuristic", SOLVED, temperature=float("nan")), "temperature is nan"),
        (lambda: flyball.evaluate("heuristic", SOLVED, precision="float16"), "precision is 'float16'"),
        (lambda: flyball.simulate(["hex7_2p"], nodes=0), "nodes is 0"),
        (lambda: flyball.simulate(["hex7_2p"], days=0), "days is 0"),
        (lambda: flyball.simulate(["hex7_2p"], seeds=0), r"seeds is range\(0, 0\)"),
        (lambda: flyball.simulate(["hex7_2p"], seeds=[-1]), r"seeds is \[-1\]"),
        (lambda: flyball.simulate(["hex7_2p"], jobs=0), "jobs is 0"),
        (lambda: flyball.simulate(["hex7_2p", "hex7_2p"]), "named twice"),
        (lambda: flyball.simulate(settings={"feedback.x": 1}), ""),
        (lambda: flyball.simulate(plant="none.toml"), ""),
    ],
)
def test_function_refuses_as_its_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object], words: str
) -> None:
    """The errors name no options, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(flyball.FlyballError, match=words or None) as refused:
        call()
    said = str(refused.value)
    assert not re.search(r"--(set|run|config|config-file|resume|output|plant)\b|command line", said), said
    assert not list(tmp_path.iterdir())


def test_train_resumes_and_keeps_the_number_of_threads(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        flyball.train(KEY, BRIEF, output=tmp_path / "run", run=tmp_path)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    lines: list[str] = []
    more = {"collection.num_iterations": 2}
    longer = flyball.train(KEY, more, output=tmp_path / "run", resume=True, progress=lines.append)
    assert longer.state.iteration == 2
    assert "Going on after iteration 1." in lines
    assert sum(line.startswith("2/2") for line in lines) == 1


def test_evaluate_takes_folder_file_and_export(trained: flyball.TrainingResult, tmp_path: Path) -> None:
    exported = tmp_path / "policy.npz"
    assert invoke("export", trained.output, exported).exit_code == 0
    results = [flyball.evaluate(model, games=10) for model in (trained.output, trained.policy, exported)]
    assert results[0] == results[1] == results[2]
    assert (results[0].config, results[0].model) == (KEY, trained.model)
    shown = told(invoke("eval", "--config", KEY, "--model", exported, "--games", 10))
    assert shown == results[0].model_dump(mode="json")


def test_evaluate_writes_no_log_to_stdout() -> None:
    """Write the name of the device ``auto`` to stderr. A program's stdout is its own."""
    program = "import flyball; flyball.evaluate('heuristic', 'connect_four_2p', games=2, device='auto')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "device of networks" in done.stderr


def test_evaluate_works_inside_an_event_loop(trained: flyball.TrainingResult) -> None:
    async def notebook_cell() -> flyball.EvaluationResult:
        return flyball.evaluate(trained.policy, against=["random", trained.output], games=10)

    (match,) = asyncio.run(notebook_cell()).results
    assert (match.opponent, match.games) == ("random", 10)


def stored(folder: Path) -> ModelHash:
    """Store a model of tic-tac-toe in a run folder."""
    manifest, parameters = first_model(flyball.GAMES[KEY], open_table(flyball.GAMES[KEY], 0).spec, 1)
    return put_checkpoint(flyball.FileStore(folder / "store"), manifest, parameters, None)


def test_load_policy_of_a_run_folder_is_its_champion(tmp_path: Path) -> None:
    model, run, several = stored(tmp_path), Recording([]), tmp_path / "several"
    settings = flyball.RunSettings(configs=(flyball.GAMES[KEY],))
    root = run.add(RunConfigured(run_id="1", settings=settings.model_dump(mode="json")))
    run.add(ModelPromoted(model=model, previous=None, step=0, elo=Elo(5.0), evidence=evidence(5.0)), root, KEY)
    write_journal(tmp_path / "journal.sqlite", run.events)
    assert flyball.load_policy(tmp_path).model == model
    assert flyball.load_policy(tmp_path, KEY).model == model
    assert flyball.load_policy(model[:8], run=tmp_path).game == KEY
    write_journal(several / "journal.sqlite", recording().events)
    with pytest.raises(flyball.FlyballError, match="Name the configuration whose current model is meant"):
        flyball.load_policy(several)


def test_policy_acts_in_batches_and_alone(trained: flyball.TrainingResult) -> None:
    policy = flyball.load_policy(trained.policy, seed=5)
    table, games = flyball.open_table(flyball.GAMES[KEY], 64), np.arange(64)
    table.reset(games, list(range(64)))
    table.step(games, policy.act(*table.observe(games), temperature=1.0))
    obs, mask = table.observe(games)
    together = policy.act(obs, mask)
    assert together.tolist() == [int(policy.act(obs[n], mask[n])) for n in range(64)]
    assert together.tolist() == policy.forward(obs, mask)[0].argmax(axis=1).tolist()
    drawn = policy.act(obs, mask, temperature=1.0)
    assert len(set(drawn.tolist())) > len(set(together.tolist()))
    assert mask[games, drawn].all()
    again = flyball.load_policy(trained.policy, seed=5)
    again.act(*table.observe(games), temperature=1.0)
    assert again.act(obs, mask, temperature=1.0).tolist() == drawn.tolist()
    log_probs, values = policy.forward(obs, mask, 0)
    assert np.exp(log_probs).tolist() == np.eye(policy.actions)[together].tolist(), "temperature 0 is greedy"
    assert values.tolist() == policy.forward(obs, mask)[1].tolist()


def test_policy_refuses_other_shapes_and_numbers(trained: flyball.TrainingResult) -> None:
    policy = flyball.load_policy(trained.policy)
    for shape, mask in (((3, 27), (2, 9)), ((27,), (1, 9)), ((2, 26), (2, 9)), ((2, 27), (2, 8))):
        with pytest.raises(flyball.FlyballError, match="27 features and 9 actions"):
            policy.act(np.zeros(shape), np.ones(mask, dtype=bool))
    legal = np.ones((2, policy.actions), dtype=bool)
    for number in (np.nan, np.inf):
        obs = np.zeros((2, policy.observation_size))
        obs[1, 5] = number
        for answer in (policy.act, policy.forward):
            with pytest.raises(flyball.FlyballError, match=f"Feature 5 of observation 1 is {number}"):
                answer(obs, legal)
    with pytest.raises(flyball.FlyballError, match="temperature is -1"):
        policy.act(np.zeros(obs.shape), legal, temperature=-1)


def test_connection_reads_journal_and_state_of_a_stopped_run(recorded: Path) -> None:
    with flyball.connect(recorded) as run:
        assert [event.sequence for event in run.journal()] == list(range(1, len(recording().events) + 1))
        (promotion,) = run.journal("MODEL_PROMOTED", config_key=KEY)
        assert promotion.data.model == OLD
        last = [event.data.event_name for event in run.journal("TRAINING_*", last=2)]
        assert last == ["TRAINING_REQUESTED", "TRAINING_COMPLETED"]
        assert next(run.journal(since=3)).sequence == 3
        state = run.state(KEY)
        assert (state.config_key, state.lineage.current.model) == (KEY, OLD)
        for call, why in (
            (lambda: run.state("tic_tac_to_2p"), "Did you mean"),
            (lambda: run.journal("NOTHING"), "no event type"),
            (lambda: run.journal(flyball.FeedbackState), "no event type"),  # type: ignore[call-overload]
            (lambda: run.journal(3), "3 is no event type"),  # type: ignore[call-overload]
            (lambda: run.journal(last=-1), "last is -1"),
            (lambda: run.publish("ROLLBACK_REQUESTED", ROLLBACK, config_key=KEY), "No broker listens"),
        ):
            with pytest.raises(flyball.FlyballError, match=why):
                call()


def test_journal_takes_classes_of_events(recorded: Path) -> None:
    events = flyball.events
    with flyball.connect(recorded) as run:
        (promotion,) = run.journal(events.ModelPromoted)
        assert type(promotion.data) is events.ModelPromoted
        both = [type(event.data) for event in run.journal(events.TrainingRequested, events.ModelPromoted)]
        assert both == [type(event.data) for event in run.journal("TRAINING_REQUESTED", events.ModelPromoted)]
        assert set(both) == {events.TrainingRequested, events.ModelPromoted}
        assert {type(event.data) for event in run.journal(events.DaemonFact)} == {
            type(event.data) for event in run.journal("DAEMON_*")
        }, "a base class stands for its types"


@pytest.mark.parametrize("connection", [flyball.Connection, flyball.AsyncConnection])
@pytest.mark.parametrize("method", ["journal", "subscribe"])
def test_type_checkers_know_the_payload_of_a_class(connection: type, method: str) -> None:
    by_class, by_pattern = get_overloads(getattr(connection, method))
    assert get_type_hints(by_class)["kind"] == type[P]
    assert get_args(get_type_hints(by_class)["return"])[0] == flyball.Event[P]
    assert get_args(get_type_hints(by_pattern)["return"])[0] == flyball.Event[Any]


def test_league_of_a_run_is_what_the_command_shows(recorded: Path) -> None:
    with flyball.connect(recorded) as run:
        view = run.league(KEY)
        assert json.loads(json.dumps(view.json())) == told(invoke("league", KEY, "--json", run=recorded))[KEY]
        assert [row["agent"] for row in view.tables()["members"]] == [row["agent"] for row in view.members()]
        assert repr(view).startswith(f"<league of {KEY}, ")
        assert repr(run) == f"<Connection to the run in {recorded}>"
        with pytest.raises(flyball.FlyballError, match="does not play go7_2p"):
            run.league("go7_2p")


def test_results_have_a_line_and_tables(trained: flyball.TrainingResult) -> None:
    assert re.fullmatch(
        rf"<training of {KEY} in .*/trained after iteration 1: outcome in \[-1, 1\] against random [+-]\d\.\d{{3}}>",
        repr(trained),
    )
    assert [row["outcome"] for row in trained.tables()["final"]] == list(trained.scores.values())
    result = flyball.evaluate("heuristic", SOLVED, games=20)
    assert str(result).startswith(
        f"<evaluation of {SOLVED}, heuristic: score against random 100.0% [83.9%, 100.0%] n=20"
    )
    (first,) = result.tables()["results"]
    assert (first["opponent"], first["score_mean"], first["outcome_mean"]) == ("random", 1.0, 1.0)
    assert "rotations" not in first
    page = result._repr_html_()
    assert page.count("<tr>") == 2
    assert "<td>random</td><td>20</td><td>20</td>" in page
    share = flyball.optimal_moves("solver", KEY, positions=100)
    assert repr(share) == f"<optimal moves of {KEY}, solver: 100.0% [96.3%, 100.0%] n=100>"
    assert share.tables()["optimal"][0]["mean"] == 1.0
    policy = flyball.load_policy(trained.policy)
    assert repr(policy) == f"<policy of {KEY}, model {trained.model[:12]}, 27 features to 9 actions>"


def test_connection_publishes_receives_and_shows_status(broker: Path) -> None:
    with flyball.connect(broker) as run:
        status = run.status()
        assert status.running
        assert [(one.daemon, one.state, one.lag) for one in status.daemons] == [("broker", "ready", None)]
        assert [row["daemon"] for row in status.tables()["daemons"]] == ["broker"]
        assert re.fullmatch(r"<status of a run at event \d+, running: nothing rated yet>", repr(status))
        news = run.subscribe(flyball.events.RollbackRequested, seconds=60)
        done = run.publish("ROLLBACK_REQUESTED", ROLLBACK, config_key=KEY)
        event = next(news)
        assert (event.sequence, event.id, event.subject) == (done.position, done.id, KEY)
        assert event.source == "api@laptop"
        other = run.publish(flyball.events.RollbackRequested(**ROLLBACK), config_key="hex7_2p")
        only = run.subscribe("ROLLBACK_*", config_key="hex7_2p", after=done.position - 1, seconds=60)
        assert next(only).sequence == other.position
        assert list(run.subscribe("NODE_LOST", after=0, seconds=0.2)) == []
        assert [one.sequence for one in run.journal("ROLLBACK_*")] == [done.position, other.position]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            first = run.publish("CLOCK_TICK", {"period_seconds": 60}, event_id="mine")
            assert run.publish("CLOCK_TICK", {"period_seconds": 60}, event_id="mine") == first
            with pytest.raises(flyball.FlyballError, match="The id mine is taken"):
                run.publish("CLOCK_TICK", {"period_seconds": 61}, event_id="mine")
    assert [str(one.message) for one in said] == ["Already recorded with the same content: nothing new is recorded."]


@pytest.mark.parametrize(
    ("name", "data", "options", "words"),
    [
        ("ROLLBACK_REQUESTED", {"model": OLD}, {"config_key": KEY}, "reason: Field required"),
        ("ROLLBACK_REQUESTED", {"model": {1}, "reason": "r"}, {"config_key": KEY}, "not JSON serializable"),
        ("ROLLBACK_REQUESTED", ROLLBACK, {}, "name its config key"),
        ("CLOCK_TICK", {"period_seconds": 1}, {"config_key": KEY}, "whole system"),
        ("CLOCK_TICK", {"period_seconds": 1}, {"event_id": ""}, "an id has 1 to 255"),
        ("RUN_CONFIGURED", {"run_id": "1", "settings": {}}, {}, "Only the broker publishes"),
        ("ROLLBACK", {}, {}, "no event type"),
        (flyball.events.RollbackRequested(**ROLLBACK), ROLLBACK, {"config_key": KEY}, "has its own"),
    ],
)
def test_connection_refuses_what_is_no_event(recorded: Path, name: str, data, options, words: str) -> None:
    with flyball.connect(recorded) as run, pytest.raises(flyball.FlyballError, match=words):
        run.publish(name, data, **options)


def test_closed_connection_still_reads_files(recorded: Path) -> None:
    run = flyball.connect(recorded)
    run.close()
    run.close()
    with pytest.raises(flyball.FlyballError, match="The connection is closed"):
        run.publish("CLOCK_TICK", {"period_seconds": 60})
    assert next(run.journal()).sequence == 1


async def test_async_connection_reads_publishes_and_receives(recorded: Path) -> None:
    with broker_daemon(recorded):
        async with flyball.connect_async(recorded) as run:
            assert (await run.state(KEY)).lineage.current.model == OLD
            async for event in run.journal():
                assert event.sequence == 1
                break  # the rest is not read
            news = run.subscribe("ROLLBACK_REQUESTED", seconds=60)
            two = (run.publish("ROLLBACK_REQUESTED", ROLLBACK, config_key=KEY) for _ in range(2))
            done = await asyncio.gather(*two)
            assert {(await anext(news)).id, (await anext(news)).id} == {one.id for one in done}
            await news.aclose()
            last = max(done, key=lambda one: one.position)
            assert [event.id async for event in run.journal("ROLLBACK_*", last=1)] == [last.id]


def test_connection_outlives_a_restart_of_the_broker(tmp_path: Path) -> None:
    with broker_daemon(tmp_path):
        run = flyball.connect(tmp_path, timeout=60)
        news = run.subscribe("ROLLBACK_REQUESTED", seconds=60)
        first = run.publish("ROLLBACK_REQUESTED", ROLLBACK, config_key=KEY)
        assert next(news).id == first.id
    with broker_daemon(tmp_path), run:
        second = run.publish("ROLLBACK_REQUESTED", ROLLBACK, config_key=KEY)
        assert next(news).id == second.id


def test_forgotten_and_open_connections_end(broker: Path) -> None:
    before = set(threading.enumerate())
    run = flyball.connect(broker)
    run.publish("CLOCK_TICK", {"period_seconds": 60})
    (thread,) = (one for one in set(threading.enumerate()) - before if one.name == "flyball connection")
    del run
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()
    program = (
        f"import flyball; run = flyball.connect({str(broker)!r}); news = run.subscribe('CLOCK_TICK', after=0)\n"
        "print(next(news).data.event_name)"
    )
    words = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("CLOCK_TICK\n", "")


def test_simulate_gives_what_the_command_gives(tmp_path: Path) -> None:
    options = {"nodes": 2, "days": 0.02, "run": tmp_path}
    result = flyball.simulate(["hex7_2p"], {"feedback.stall.velocity": 3}, **options)
    words = "simulate --configs hex7_2p --nodes 2 --days 0.02 --set feedback.stall.velocity=3 --json"
    assert told(invoke(*words.split(), run=tmp_path)) == json.loads(result.model_dump_json())
    assert [arm.arm for arm in result.arms] == ["all", "none"]
    assert flyball.simulate("hex7_2p", {"feedback.stall.velocity": 3}, **options) == result, "the key of one game"
