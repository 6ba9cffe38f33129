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
from typing import Any

import numpy as np
import pytest
import torch
from bus_rig import broker_daemon
from click.testing import CliRunner
from recorded_run import KEY, NEW, OLD, Recording, evidence, recording, write_journal

import flyball
from app.cli.group import main
from app.config import NetworkSettings
from app.core import Elo, ModelHash, NetworkShape
from app.events import ModelPromoted, RunConfigured
from app.games import open_table
from app.learning.network import init_policy, parameters_to_bytes
from app.store import Manifest, put_checkpoint

BRIEF = {
    "collection": {"num_iterations": 1, "games_per_iteration": 16},
    "network.hidden": [16],
    "training.final_games": 8,
    "training.eval_games": 8,
}
EXAMPLES = [name for name in flyball.__all__ if ">>>" in (getattr(flyball, name).__doc__ or "")]
ROLLBACK = {"model": NEW, "reason": "odd play"}


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
    (example,) = doctest.DocTestFinder(recurse=False).find(
        getattr(flyball, name), name, globs={"flyball": flyball, "np": np}
    )
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
    sets = [
        word
        for key, value in {
            "collection.num_iterations": 1,
            "collection.games_per_iteration": 16,
            "network.hidden": "[16]",
            "training.final_games": 8,
            "training.eval_games": 8,
        }.items()
        for word in ("--set", f"{key}={value}")
    ]
    words = ["train", KEY, "--output", str(tmp_path / "other"), "--seed", "3", "--json", *sets]
    done = CliRunner().invoke(main, words)
    assert json.loads(done.stdout) == trained.json()
    assert trained.model == trained.state.best.model
    assert trained.policy.is_file()
    assert trained.scores == {found.opponent: found.outcome for found in trained.final}
    assert trained.summary.startswith(f"# {KEY}, seed 3")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: flyball.train(KEY, seed=-1), "seed is -1"),
        (lambda: flyball.check_game(KEY, games=1), "games is 1"),
        (lambda: flyball.check_game(KEY, seed=-1), "seed is -1"),
        (lambda: flyball.load_policy("current", precision="float16"), "precision is 'float16'"),
        (lambda: flyball.load_policy("current", seed=2**63), "seed is 9223372036854775808"),
        (lambda: flyball.simulate(["hex7_2p"], nodes=0), "nodes is 0"),
        (lambda: flyball.simulate(["hex7_2p"], days=0), "days is 0"),
        (lambda: flyball.simulate(["hex7_2p"], seeds=0), r"seeds is range\(0, 0\)"),
        (lambda: flyball.simulate(["hex7_2p"], seeds=[-1]), r"seeds is \[-1\]"),
        (lambda: flyball.simulate(["hex7_2p"], jobs=0), "jobs is 0"),
    ],
)
def test_function_refuses_what_its_command_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(flyball.FlyballError, match=words):
        call()
    assert not list(tmp_path.iterdir())


def test_train_keeps_the_number_of_threads(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        flyball.train(KEY, BRIEF, output=tmp_path / "run", run=tmp_path)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_train_resumes_and_says_its_progress(tmp_path: Path) -> None:
    flyball.train(KEY, BRIEF, output=tmp_path / "run")
    lines: list[str] = []
    longer = flyball.train(
        KEY, {"collection.num_iterations": 2}, output=tmp_path / "run", resume=True, progress=lines.append
    )
    assert longer.state.iteration == 2
    assert "Going on after iteration 1." in lines
    assert sum(line.startswith("2/2") for line in lines) == 1


@pytest.mark.parametrize(
    ("game", "settings", "words"),
    [
        ("tic_tac_to_2p", {}, "Did you mean tic_tac_toe_2p"),
        (KEY, {"ppo.gama": 0.9}, r"'ppo.gama'\. Did you mean ppo.gamma"),
        (KEY, {"ppo": {"gamma": 2}}, r"ppo.gamma: Input"),
        (flyball.GAMES[KEY].replace(backend="language"), {}, "flyball up"),
    ],
)
def test_train_refuses_bad_settings(tmp_path: Path, game, settings, words: str) -> None:
    with pytest.raises(flyball.FlyballError, match=words):
        flyball.train(game, settings, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_evaluate_takes_folder_file_and_export(trained: flyball.TrainingResult, tmp_path: Path) -> None:
    exported = tmp_path / "policy.npz"
    assert CliRunner().invoke(main, ["export", str(trained.output), str(exported)]).exit_code == 0
    results = [flyball.evaluate(model, games=10) for model in (trained.output, trained.policy, exported)]
    assert results[0] == results[1] == results[2]
    assert (results[0].config, results[0].model) == (KEY, trained.model)
    words = ["eval", "--config", KEY, "--model", str(exported), "--games", "10"]
    assert json.loads(CliRunner().invoke(main, words).stdout) == results[0].model_dump(mode="json")


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


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("random", {}, "Name the configuration"),
        ("absent.npz", {}, "model: there is no file absent.npz"),
        ("heuristic", {"game": KEY}, "no heuristic player"),
        ("random", {"game": KEY}, "against random is the same as model random"),
        ("random", {"game": KEY, "against": "best:3"}, "no strategy 'best'"),
        ("random", {"game": "connect_four_2p", "device": "tpu"}, "no device 'tpu'"),
        ("heuristic", {"game": "connect_four_2p", "against": []}, r"against is \[\]"),
        ("heuristic", {"game": "connect_four_2p", "games": 0}, "games is 0: .* greater than or equal to 1"),
        ("heuristic", {"game": "connect_four_2p", "workers": 0}, "workers is 0"),
        ("heuristic", {"game": "connect_four_2p", "seed": -1}, "seed is -1"),
        ("heuristic", {"game": "connect_four_2p", "temperature": float("nan")}, "temperature is nan"),
        ("heuristic", {"game": "connect_four_2p", "precision": "float16"}, "precision is 'float16'"),
    ],
)
def test_evaluate_refuses_what_it_cannot_play(tmp_path: Path, model: str, options, words: str) -> None:
    with pytest.raises(flyball.FlyballError, match=words):
        flyball.evaluate(model, run=tmp_path, **options)


def stored(folder: Path) -> ModelHash:
    """Store a model of tic-tac-toe in a run folder."""
    spec, network = open_table(flyball.GAMES[KEY], 0).spec, NetworkSettings(hidden=(16,))
    shape = NetworkShape(spec.observation_size, spec.actions)
    manifest = Manifest(
        config_key=KEY,
        network=network,
        obs_size=spec.observation_size,
        actions=spec.actions,
        step=0,
        parent=None,
        optimizer=None,
    )
    parameters = parameters_to_bytes(init_policy(network, shape, seed=1))
    return put_checkpoint(flyball.FileStore(folder / "store"), manifest, parameters, None)


def test_load_policy_of_a_run_folder_is_its_champion(tmp_path: Path) -> None:
    model, run = stored(tmp_path), Recording([])
    settings = flyball.RunSettings(configs=(flyball.GAMES[KEY],))
    root = run.add(RunConfigured(run_id="1", settings=settings.model_dump(mode="json")))
    run.add(ModelPromoted(model=model, previous=None, step=0, elo=Elo(5.0), evidence=evidence(5.0)), root, KEY)
    write_journal(tmp_path / "journal.sqlite", run.events)
    assert flyball.load_policy(tmp_path).model == model
    assert flyball.load_policy(tmp_path, KEY).model == model
    assert flyball.load_policy(model[:8], run=tmp_path).game == KEY


def test_load_policy_of_a_run_with_several_games_needs_a_name(recorded: Path) -> None:
    with pytest.raises(flyball.FlyballError, match="Name the configuration whose current model is meant"):
        flyball.load_policy(recorded)


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


def test_policy_at_temperature_0_is_greedy(trained: flyball.TrainingResult) -> None:
    policy = flyball.load_policy(trained.policy)
    table, games = flyball.open_table(flyball.GAMES[KEY], 8), np.arange(8)
    table.reset(games, list(range(8)))
    obs, mask = table.observe(games)
    log_probs, values = policy.forward(obs, mask, 0)
    assert np.exp(log_probs).tolist() == np.eye(policy.actions)[policy.act(obs, mask)].tolist()
    assert values.tolist() == policy.forward(obs, mask)[1].tolist()


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_policy_refuses_numbers_that_are_not_finite(trained: flyball.TrainingResult, number: float) -> None:
    policy = flyball.load_policy(trained.policy)
    obs, mask = np.zeros((2, policy.observation_size)), np.ones((2, policy.actions), dtype=bool)
    obs[1, 5] = number
    for answer in (policy.act, policy.forward):
        with pytest.raises(flyball.FlyballError, match=f"Feature 5 of observation 1 is {number}"):
            answer(obs, mask)
    with pytest.raises(flyball.FlyballError, match="temperature is -1"):
        policy.act(obs, mask, temperature=-1)


@pytest.mark.parametrize(("obs", "mask"), [((3, 27), (2, 9)), ((27,), (1, 9)), ((2, 26), (2, 9)), ((2, 27), (2, 8))])
def test_policy_refuses_other_shapes(trained: flyball.TrainingResult, obs, mask) -> None:
    with pytest.raises(flyball.FlyballError, match="27 features and 9 actions"):
        flyball.load_policy(trained.policy).act(np.zeros(obs), np.ones(mask, dtype=bool))


def test_connection_reads_journal_and_state_of_a_stopped_run(recorded: Path) -> None:
    with flyball.connect(recorded) as run:
        assert [event.sequence for event in run.journal()] == list(range(1, len(recording().events) + 1))
        (promotion,) = run.journal("MODEL_PROMOTED", config_key=KEY)
        assert promotion.data.model == OLD
        assert [event.data.event_name for event in run.journal("TRAINING_*", last=2)] == [
            "TRAINING_REQUESTED",
            "TRAINING_COMPLETED",
        ]
        assert next(run.journal(since=3)).sequence == 3
        state = run.state(KEY)
        assert (state.config_key, state.lineage.current.model) == (KEY, OLD)
        with pytest.raises(flyball.FlyballError, match="Did you mean"):
            run.state("tic_tac_to_2p")
        with pytest.raises(flyball.FlyballError, match="no event type"):
            run.journal("NOTHING")
        with pytest.raises(flyball.FlyballError, match="last is -1"):
            run.journal(last=-1)
        with pytest.raises(flyball.FlyballError, match="No broker listens"):
            run.publish("ROLLBACK_REQUESTED", ROLLBACK, config_key=KEY)


def test_connect_refuses_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(flyball.FlyballError, match="There is no run in"):
        flyball.connect(tmp_path)


def test_connection_publishes_and_receives(broker: Path) -> None:
    with flyball.connect(broker) as run:
        news = run.subscribe("ROLLBACK_REQUESTED", seconds=60)
        done = run.publish("ROLLBACK_REQUESTED", ROLLBACK, config_key=KEY)
        event = next(news)
        assert (event.sequence, event.id, event.subject) == (done.position, done.id, KEY)
        assert event.source == "api@laptop"
        other = run.publish(flyball.events.RollbackRequested(**ROLLBACK), config_key="hex7_2p")
        only = run.subscribe("ROLLBACK_*", config_key="hex7_2p", after=done.position - 1, seconds=60)
        assert next(only).sequence == other.position
        assert list(run.subscribe("NODE_LOST", after=0, seconds=0.2)) == []
        assert [one.sequence for one in run.journal("ROLLBACK_*")] == [done.position, other.position]


def test_connection_shows_the_status_of_the_run(broker: Path) -> None:
    with flyball.connect(broker) as run:
        status = run.status()
    assert status.running
    assert [(one.daemon, one.state, one.lag) for one in status.daemons] == [("broker", "ready", None)]


def test_connection_records_an_id_once(broker: Path) -> None:
    with flyball.connect(broker) as run, warnings.catch_warnings(record=True) as said:
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


async def test_async_connection_publishes_and_receives(broker: Path) -> None:
    async with flyball.connect_async(broker) as run:
        news = run.subscribe("ROLLBACK_REQUESTED", seconds=60)
        done = await asyncio.gather(*(run.publish("ROLLBACK_REQUESTED", ROLLBACK, config_key=KEY) for _ in range(2)))
        assert {(await anext(news)).id, (await anext(news)).id} == {one.id for one in done}
        await news.aclose()
        assert [event.id async for event in run.journal("ROLLBACK_*", last=1)] == [max(done, key=position).id]


def position(one) -> int:
    return one.position


async def test_async_connection_reads_the_state(recorded: Path) -> None:
    async with flyball.connect_async(recorded) as run:
        assert (await run.state(KEY)).lineage.current.model == OLD
        async for event in run.journal():
            assert event.sequence == 1
            break  # the rest is not read


def test_connection_outlives_a_restart_of_the_broker(tmp_path: Path) -> None:
    with broker_daemon(tmp_path):
        run = flyball.connect(tmp_path, timeout=60)
        news = run.subscribe("ROLLBACK_REQUESTED", seconds=60)
        first = run.publish("ROLLBACK_REQUESTED", ROLLBACK, config_key=KEY)
        assert next(news).id == first.id
    with broker_daemon(tmp_path), run:
        second = run.publish("ROLLBACK_REQUESTED", ROLLBACK, config_key=KEY)
        assert next(news).id == second.id


def test_forgotten_connection_ends_its_thread(broker: Path) -> None:
    before = set(threading.enumerate())
    run = flyball.connect(broker)
    run.publish("CLOCK_TICK", {"period_seconds": 60})
    (thread,) = (one for one in set(threading.enumerate()) - before if one.name == "flyball connection")
    del run
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_program_ends_with_an_open_connection(broker: Path) -> None:
    program = (
        f"import flyball; run = flyball.connect({str(broker)!r}); news = run.subscribe('CLOCK_TICK', after=0)\n"
        "print(next(news).data.event_name)"
    )
    words = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("CLOCK_TICK\n", "")


def test_simulate_gives_what_the_command_gives(tmp_path: Path) -> None:
    result = flyball.simulate(["hex7_2p"], {"feedback.stall.velocity": 3}, nodes=2, days=0.02, run=tmp_path)
    words = "simulate --configs hex7_2p --nodes 2 --days 0.02 --set feedback.stall.velocity=3 --json"
    done = CliRunner().invoke(main, ["--run", str(tmp_path), *words.split()])
    assert json.loads(done.stdout) == json.loads(result.model_dump_json())
    assert [arm.arm for arm in result.arms] == ["all", "none"]
    with pytest.raises(flyball.FlyballError, match="named twice"):
        flyball.simulate(["hex7_2p", "hex7_2p"])


def test_simulate_takes_the_key_of_one_game(tmp_path: Path) -> None:
    options = {"nodes": 2, "days": 0.01, "run": tmp_path}
    assert flyball.simulate("hex7_2p", **options) == flyball.simulate(["hex7_2p"], **options)


@pytest.mark.parametrize(
    "call",
    [
        lambda: flyball.train("nothing_2p"),
        lambda: flyball.train(KEY, {"ppo.lr": 1}),
        lambda: flyball.train(KEY, {"ppo": {"gamma": 2}}),
        lambda: flyball.train(KEY, resume=True),
        lambda: flyball.train(KEY, settings_file="none.toml"),
        lambda: flyball.train(KEY, config_file="none.toml"),
        lambda: flyball.evaluate("current", KEY),
        lambda: flyball.evaluate("current"),
        lambda: flyball.evaluate("random", KEY, against="nobody"),
        lambda: flyball.connect("nowhere"),
        lambda: flyball.load_policy("."),
        lambda: flyball.simulate(settings={"feedback.x": 1}),
        lambda: flyball.simulate(plant="none.toml"),
    ],
)
def test_errors_in_python_name_no_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(flyball.FlyballError) as refused:
        call()
    assert not re.search(r"--(set|run|config|config-file|resume|output|plant)\b|command line", str(refused.value)), str(
        refused.value
    )
