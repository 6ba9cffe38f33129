"""The league in a file: lossless, checked, and shared by processes.

A damaged or foreign file is refused, and no process's update is lost.
"""

import json
import threading
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from independent_games import of_games
from league_processes import hold_and_die, take_steps
from league_strategies import leagues
from leagues import checkpoint, league_of, meet, model
from prepared import PREPARED

from flyball.app.core import Elo
from flyball.app.league.document import DamagedLeague, dump_league, load_league
from flyball.app.league.league import Agent, League
from flyball.app.store import ForeignLeague, LeagueFile

SEEDLIKE = {
    "agents": {
        "random_bot": {"type": "baseline", "elo": 800, "matches": 0, "path": None},
        model(40): {
            "type": "checkpoint",
            "path": model(40),
            "elo": 1200,
            "matches": 30,
            "step": 40,
            "created_at": "2025-12-06T10:00:00+01:00",
            "parent": model(30),
        },
    },
    "history": [
        {"step": 40, "p1": model(40), "p2": "random_bot", "result": {"games": 10, "points": 9}},
        {"step": 50, "p1": "random_bot", "p2": model(40), "result": {"games": 10, "points": 2}},
    ],
    "metadata": {"run_name": "grpo", "best_elo": 1200, "best_agent": model(40)},
}


def file_in(folder: Path, run: str = "grpo", config: str = "x_2p", **more) -> LeagueFile:
    return LeagueFile(folder / "leagues" / "league.json", run, config, **more)


def text_of(folder: Path) -> Path:
    return folder / "leagues" / "league.json"


@given(leagues(), st.none() | st.floats(0, 500), st.integers(0, 10**6), st.none() | st.integers(0, 4 * 10**15))
def test_a_league_comes_back_as_it_was(league: League, stderr, matches, created_us) -> None:
    detailed = checkpoint(301, 1e-17, roles=("elite",)).replace(
        elo_stderr=stderr, matches=matches, created_us=created_us
    )
    league = meet(league.with_agent(detailed), detailed, model(302), 3, 0.1 + 0.2)
    data = dump_league(league, "run", "x_2p")
    restored, metadata = load_league(data, "it")
    assert restored == league
    assert dump_league(restored, "run", "x_2p") == data
    best = league.best
    assert best is not None
    assert (metadata.best_agent, metadata.best_elo) == (best.id, best.elo)


def test_the_file_has_the_schema_of_the_seed(tmp_path: Path) -> None:
    league = meet(league_of(checkpoint(40, 1200.0, parent=30, roles=("recent",))), model(40), "random", 10, 9.5)
    file_in(tmp_path).update(lambda _: league)
    written = json.loads(text_of(tmp_path).read_text())
    assert list(written) == ["agents", "history", "metadata"]
    seeds_fields = {"type": "baseline", "path": None, "elo": 0.0, "matches": 0}
    ours = {"step": None, "created_at": None, "parent": None, "elo_stderr": 0.0, "roles": [], "retired": False}
    ours |= {"bound": None}
    assert written["agents"]["random"] == seeds_fields | ours
    entry = written["agents"][model(40)]
    assert (entry["type"], entry["path"], entry["elo"], entry["step"]) == ("checkpoint", model(40), 1200.0, 40)
    assert (entry["created_at"], entry["parent"]) == ("1970-01-01T00:00:40Z", model(30))
    ours_of_games = {"rotations": 10, "squares": 9.5}
    assert written["history"] == [
        {"step": 40, "p1": model(40), "p2": "random", "result": {"games": 10, "points": 9.5} | ours_of_games}
    ]
    assert written["metadata"]["run_name"] == "grpo"
    assert (written["metadata"]["best_elo"], written["metadata"]["best_agent"]) == (1200.0, model(40))


def test_a_file_with_nothing_but_what_the_seed_knows_is_read(tmp_path: Path) -> None:
    text_of(tmp_path).parent.mkdir()
    text_of(tmp_path).write_text(json.dumps(SEEDLIKE))
    league = file_in(tmp_path).read()
    assert league.agents["random_bot"] == Agent(id="random_bot", kind="baseline", elo=Elo(800))
    agent = league.agents[model(40)]
    assert (agent.step, agent.elo, agent.elo_stderr, agent.matches, agent.parent) == (40, 1200, None, 30, model(30))
    assert agent.created_us == datetime(2025, 12, 6, 9, tzinfo=UTC).timestamp() * 1e6
    assert league.between(model(40), "random_bot") == of_games(model(40), "random_bot", 17, 0, 3)
    assert league.latest_step == 40


def test_before_the_first_change_there_are_baselines_and_no_file(tmp_path: Path) -> None:
    league = file_in(tmp_path, baselines=("heuristic", "random"))
    assert [agent.id for agent in league.read().active] == ["heuristic", "random"]
    assert not text_of(tmp_path).exists()
    league.update(lambda same: same)
    assert league.read() == league_of(baselines=("heuristic", "random"))


def test_empty_or_failed_change_leaves_the_file_unwritten(tmp_path: Path) -> None:
    league = file_in(tmp_path)
    league.update(lambda one: one.with_agent(checkpoint(1, 5.0)))
    before = text_of(tmp_path).stat()

    def fail(_: League) -> League:
        raise ZeroDivisionError

    league.update(lambda same: same)
    with pytest.raises(ZeroDivisionError):
        league.update(fail)
    assert (text_of(tmp_path).stat().st_ino, text_of(tmp_path).stat().st_mtime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
    )
    league.update(lambda one: one.with_agent(checkpoint(2, 5.0)))  # the failed update released its lock
    assert sorted(path.name for path in text_of(tmp_path).parent.iterdir()) == ["league.json", "league.json.lock"]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"elo": 5.0', '"elo": 6.0', "damaged: what it holds has another checksum"),
        ('"games": 10', '"games": 11', "another checksum"),
        ('"type": "checkpoint"', '"type": "chekpoint"', "agents.0*1.type: Input should be 'baseline' or 'checkpoint'"),
        ('"run_name"', '"name"', "metadata.name: Extra inputs|metadata.run_name: Field required"),
        ('"points": 9.5', '"points": 99.5', "points of 10 games"),
        (f'"path": "{model(1)}"', f'"path": "{model(2)}"', "a checkpoint's id and path are its content hash"),
        (f'"path": "{model(1)}"', '"path": "run/adapter_v50"', "path: String should match"),
        ('"history"', '"matches"', "history"),
        ("{", "", "is not a league"),
    ],
)
def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path: Path, old, new, complaint) -> None:
    league = file_in(tmp_path)
    league.update(lambda one: meet(one.with_agent(checkpoint(1, 5.0)), model(1), "random", 10, 9.5))
    text = text_of(tmp_path).read_text()
    assert old in text
    text_of(tmp_path).write_text(text.replace(old, new, 1))
    for attempt in (league.read, partial(league.update, lambda one: one.without(model(1)))):
        with pytest.raises(DamagedLeague, match=complaint) as error:
            attempt()
        assert str(text_of(tmp_path)) in str(error.value)
        assert error.value.hint
    assert text_of(tmp_path).read_text() == text.replace(old, new, 1)


def test_a_cut_off_file_is_refused_at_any_length(tmp_path: Path) -> None:
    league = file_in(tmp_path)
    league.update(lambda one: one.with_agent(checkpoint(1, 5.0)))
    whole = text_of(tmp_path).read_bytes()
    for length in range(0, len(whole) - 2, 37):
        text_of(tmp_path).write_bytes(whole[:length])
        with pytest.raises(DamagedLeague):
            league.read()


def test_one_who_edits_the_file_takes_the_checksum_out(tmp_path: Path) -> None:
    league = file_in(tmp_path)
    league.update(lambda one: one.with_agent(checkpoint(1, 5.0)))
    written = json.loads(text_of(tmp_path).read_text())
    written["agents"][model(1)]["elo"] = 77.0
    del written["metadata"]["sha256"]
    text_of(tmp_path).write_text(json.dumps(written))
    assert league.read().agents[model(1)].elo == 77.0


@pytest.mark.parametrize(("run", "config"), [("other", "x_2p"), ("grpo", "y_2p")])
def test_the_league_of_another_run_or_configuration_is_refused(tmp_path: Path, run, config) -> None:
    file_in(tmp_path).update(lambda one: one)
    with pytest.raises(ForeignLeague, match=f"the league of x_2p in run grpo, not of {config} in run {run}"):
        file_in(tmp_path, run, config).update(lambda one: one.with_agent(checkpoint(1)))
    assert file_in(tmp_path).read() == league_of()


def test_who_reads_does_not_wait_for_who_writes(tmp_path: Path) -> None:
    league, inside, done = file_in(tmp_path), threading.Event(), threading.Event()
    league.update(lambda one: one.with_agent(checkpoint(1, 5.0)))

    def slow(one: League) -> League:
        inside.set()
        assert done.wait(30)
        return one.with_agent(checkpoint(2, 5.0))

    writer = threading.Thread(target=league.update, args=(slow,))
    writer.start()
    assert inside.wait(30)
    assert len(file_in(tmp_path).read().checkpoints) == 1
    done.set()
    writer.join()
    assert len(file_in(tmp_path).read().checkpoints) == 2


@pytest.mark.timeout(400)  # two flushes a step, on a disk that others use too
@pytest.mark.parametrize("steps", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_steps_by_eight_processes_lose_no_update(tmp_path: Path, steps: int) -> None:
    workers = [PREPARED.Process(target=take_steps, args=(tmp_path, number, 8, steps)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    league = file_in(tmp_path).read()
    assert league.agents["random"].matches == steps
    assert {model(step) for step in range(0, steps, 100)} <= league.agents.keys()
    entered = {agent.id for agent in league.agents.values() if agent.kind == "checkpoint"}
    assert {one for one, others in league.games.items() if "random" in others} == entered  # each entrant has its game
    assert [agent.step for agent in league.checkpoints if not agent.permanent] == [*range(steps - 90, steps, 10)]


def test_death_within_a_change_leaves_no_lock_and_a_whole_file(tmp_path: Path) -> None:
    file_in(tmp_path).update(lambda one: one.with_agent(checkpoint(1, 5.0)))
    worker = PREPARED.Process(target=hold_and_die, args=(tmp_path, tmp_path / "started"))
    worker.start()
    worker.join()
    assert (worker.exitcode, (tmp_path / "started").exists()) == (9, True)
    assert len(file_in(tmp_path).update(lambda one: one.with_agent(checkpoint(2, 5.0))).checkpoints) == 2
