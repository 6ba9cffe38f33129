"""Commands that read a run: their output and exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result
from commands import Flyball, invoke, refused, succeeded
from hashes import sha
from recorded_run import KEY, OLD, Recording, recording, write_journal

from flyball.app.api import following
from flyball.app.api.evaluation import evaluate
from flyball.app.api.following import BrokerWatch
from flyball.app.api.runs import locate_run
from flyball.app.cli.group import COMMANDS, EXIT_CODES, main
from flyball.app.config import GameConfig, RunFolder, RunSettings
from flyball.app.core import BROKER, FlyballError
from flyball.app.events import CATALOGUE, DaemonStarted, RunConfigured
from flyball.app.events.envelope import EPOCH
from flyball.app.events.frames import Frame, frame_of, seal
from flyball.app.journal import SqliteJournal
from flyball.app.status.status import Board
from flyball.app.status.summary import show_time
from flyball.daemons.clock import SystemClock
from flyball.daemons.run_folder import FolderLock

LONG = "x" * 300


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run folder whose journal holds the recording."""
    write_journal(tmp_path / "journal.sqlite", recording().events)
    return tmp_path


def lines(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def names(result: Result) -> list[str]:
    return [event["type"].removeprefix("flyball.") for event in lines(result)]


def test_help_imports_no_more_than_click() -> None:
    heavy = "{'torch', 'zmq', 'pydantic', 'structlog', 'rich', 'numpy'}"
    program = (
        "import sys\nfrom flyball.app.cli import main\ntry: main(['--help'])\n"
        f"finally: print(sorted({heavy} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert all(name in done.stdout for name in COMMANDS)


def test_status_imports_neither_numbers_nor_daemons(run: Path) -> None:
    """An operator asks for the status often, and each of these takes a tenth of the time or more."""
    heavy = "{'torch', 'numpy', 'scipy', 'flyball.daemons.registry', 'flyball.app.bus.broker', 'textual'}"
    program = (
        f"import sys\nfrom flyball.app.cli import main\ntry: main(['--run', {str(run)!r}, 'status'])\n"
        f"finally: print(sorted({heavy} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "[]"


def test_no_command_imports_torch(run: Path) -> None:
    program = (
        "import sys\nfrom importlib import import_module\nfrom flyball.app.cli.group import COMMANDS, main\n"
        "for name in COMMANDS: import_module(f'flyball.app.cli.{name}')\n"
        f"try: main(['--run', {str(run)!r}, 'tail'])\n"
        "finally: print({'torch', 'pyspiel'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip().endswith("set()")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(flyball: Flyball, name: str) -> None:
    assert flyball(name, "--help").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--run", LONG, "status"), "cannot be used: File name too long"),
        (("--config-file", LONG, "config", "show"), "cannot be used: File name too long"),
        (("eval", "--config", "hex7_2p", "--model", LONG), "cannot be used: File name too long"),
        (("eval", "--config", "hex7_2p", "--model", "random", "--against", f"{LONG}:3"), "File name too long"),
        (("train", "hex7_2p", "--resume", "--output", LONG), "cannot be used: File name too long"),
        (("--run", "\udcff", "status"), "b'\\xff' is not UTF-8"),
        (("tail", "\udcff"), "b'\\xff' is not UTF-8"),
        (("check", "game", "\udcff"), "b'\\xff' is not UTF-8"),
        (("--run", "", "status"), "the name is empty"),  # an unset variable of the shell
        (("status", "--run", ""), "the name is empty"),
        (("status", "--config-file", ""), "the name is empty"),
        (("--run", "here", "tail", "--run", "elsewhere"), "--run is given twice"),
        (("up", "--run", "/proc/nothing"), "/proc/nothing cannot be used as a run folder"),
        (("daemon", "run", "broker", "--run", "/proc/nothing"), "Name a folder that you may write to"),
    ],
)
def test_a_name_of_a_file_that_cannot_be_used_is_refused(words: tuple[str, ...], said: str) -> None:
    refused(invoke(*words), 2, said)


def test_folder_that_is_odd_or_gone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "\udcff"
    odd.mkdir()
    monkeypatch.chdir(odd)
    refused(invoke("status"), 2, "is not UTF-8")
    odd.rmdir()
    error = invoke("status")
    assert (error.exit_code, "The current folder was deleted" in error.stderr) == (2, True)


def test_exit_codes_belong_to_errors_that_exist() -> None:
    program = (
        "from importlib import import_module\n"
        "from flyball.app.cli.group import COMMANDS\nfrom flyball.app.core import FlyballError\n"
        "for name in COMMANDS: import_module(f'flyball.app.cli.{name}')\n"
        "from flyball.app.cli import auditing, episodes, training\n"
        "import flyball.daemons.process, flyball.app.api.paired\n"
        "def codes(kind):\n    return {kind.code}.union(*map(codes, kind.__subclasses__()))\n"
        "print(*codes(FlyballError))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) >= EXIT_CODES.keys()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["tial"], 2, "Did you mean tail?"),
        (["tail", "--since", "soon"], 2, "10m"),
        (["tail", "--since", "9999999999h"], 2, "10m"),
        (["tail", "--since", f"{'9' * 400}d"], 2, "10m"),
        (["journal", "delete", "--before", "9999999999d"], 2, "10m"),
        (["tail", "TRAINING_COMPLETE"], 4, "TRAINING_COMPLETED"),
        (["tail", "NOTHING_*"], 4, "no event type"),
        (["tail", "--config-key", "hart_4p"], 4, "The run plays breakthrough6_2p"),
        (["explain", "abc"], 2, "Did you mean trace ID"),
        (["why"], 2, "Did you mean trace ID"),
        (["trace", "zz"], 4, "'zz'"),
        (["trace", "0"], 4, "Write more"),
        (["trace", ""], 2, "write an id"),
        (["emit", "CLOCK_TICK", "{}", "--id", "x", "--count", "2"], 2, "leave --count out"),
        (["emit", "CLOCK_TICK", "{}", "--id", ""], 2, "an id has 1 to 255"),
        (["events", "schema", "ELO"], 4, "no event type"),
        (["daemon", "run", "brocker"], 4, "brocker"),
        (["tail", "-f", "-n", "0"], 3, "No broker listens"),
        (["emit", "CLOCK_TICK", '{"period_seconds": 1}'], 3, "flyball --run"),
        (["replay", "--yes"], 2, "--reason"),
        (["replay", "TRAINING_*", "--yes", "--reason", "why"], 3, "No broker listens"),
        (["up", "--profile", "desk"], 2, "laptop"),
        (["up", "--config", "hart_4p"], 4, "hearts_4p"),
    ],
)
def test_errors_have_their_codes_and_a_way_out(
    run: Path, flyball: Flyball, words: list[str], code: int, said: str
) -> None:
    refused(flyball(*words), code, said)


def options() -> Iterator[tuple[tuple[str, ...], click.Option]]:
    """Iterate over options that take a value, with their commands' words.

    The words are those that lead to the command.
    """

    def below(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Option]]:
        found = [param for param in command.params if isinstance(param, click.Option)]
        yield from ((words, option) for option in found if not option.is_flag)
        if isinstance(command, click.Group):
            ctx = click.Context(command)
            for name in command.list_commands(ctx):
                subcommand = command.get_command(ctx, name)
                assert subcommand is not None
                yield from below(subcommand, (*words, name))

    return below(main, ())


@pytest.mark.parametrize(
    ("words", "option"), [pytest.param(*one, id=" ".join((*one[0], one[1].opts[0]))) for one in options()]
)
def test_repeated_option_adds_or_is_refused(words: tuple[str, ...], option: click.Option) -> None:
    name = option.opts[0]
    result = invoke(*words, name, "1", name, "2", "-h")
    if option.multiple:
        assert result.exit_code == 0
    else:
        assert (result.exit_code, f"{name} is given twice" in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("words", [["status"], ["tail"], ["trace", "a"], ["replay", "--check"], ["journal", "verify"]])
def test_without_a_journal_nothing_runs(flyball: Flyball, words: list[str]) -> None:
    refused(flyball(*words), 3, "hint:")


def test_an_ambiguous_id_names_its_candidates(run: Path, flyball: Flyball) -> None:
    ids = [json.loads(line)["id"] for line in flyball("tail", "-n", 100, "--json").stdout.splitlines()]
    first = min(ids)[0]
    candidates = [one for one in ids if one.startswith(first)]
    assert len(candidates) > 1
    assert all(one in flyball("trace", first).stderr for one in candidates[:8])


@pytest.mark.parametrize("words", ["tail -n 100", "trace 0001", "replay --check", "config show"])
def test_a_reader_that_has_gone_is_no_error(run: Path, words: str) -> None:
    command = [sys.executable, "-m", "flyball.app.cli", "--run", str(run), *words.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, "rror" in said) == (0, False), said


def test_tail_shows_the_last_events_and_whole_cloudevents(run: Path, flyball: Flyball) -> None:
    shown = flyball("tail", "-n", 2).stdout.splitlines()
    assert len(shown) == 2
    assert shown[0].split()[:5] == ["15", "2026-01-31", "12:00:15.000Z", "PROMOTION_REJECTED", KEY]
    assert flyball("tail", "-n", 0).stdout == ""
    assert lines(flyball("tail", "-n", 100, "--json")) == [event.to_cloudevent() for event in recording().events]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["TRAINING_*"], ["training.requested", "training.completed"] * 2),
        (["training.completed"], ["training.completed"] * 2),
        (["*.completed", "-n", "3"], ["selfplay.completed", "training.completed", "evaluation.completed"]),
        (["model_promoted", "run_*"], ["run.configured", "model.promoted"]),
        (["--since", "0", "-n", "1"], ["daemon.stopped"]),
        (["--since", "15"], ["model.promotion_rejected", "daemon.stopped"]),
        (["--since", "14", "-n", "1"], ["daemon.stopped"]),
        (["--since", "2026-01-31T12:00:15Z"], ["model.promotion_rejected", "daemon.stopped"]),
        (["--since", "10m"], []),
        (["--since", "999"], []),
        (["daemon.*", "--config-key", KEY], []),
        (["--config-key", KEY, "-n", "1"], ["model.promotion_rejected"]),
        (["flyball.run.*"], ["run.configured"]),
    ],
)
def test_tail_selects(run: Path, flyball: Flyball, words: list[str], expected: list[str]) -> None:
    assert names(flyball("tail", "--json", *words)) == expected


def test_trace_follows_causes(run: Path, flyball: Flyball) -> None:
    promoted = recording().events[7]
    (found,) = lines(flyball("trace", promoted.id[:12], "--json", "--effects", 1))
    assert (found["id"], found["earlier"]) == (promoted.id, 0)
    assert [event["level"] for event in found["events"]] == list(range(7))
    tree = flyball("trace", promoted.id, "--causes", 1).stdout
    assert "▶ MODEL_PROMOTED" in tree
    assert "4 earlier causes" in tree
    everything = flyball("trace", promoted.id, "--all").stdout
    assert "RUN_CONFIGURED" in everything
    assert "PROMOTION_REJECTED" in everything


def test_status_tells_configurations_daemons_and_what_runs(run: Path, flyball: Flyball) -> None:
    status = json.loads(flyball("status", "--json").stdout)
    config = next(one for one in status["configs"] if one["key"] == KEY)
    assert (config["games"], config["loops"], config["win_rate_random"]["n"]) == (600, 1, 200)
    assert status["daemons"][0]["state"] == "stopped"
    assert status["head"] == 16
    table = flyball("status")
    assert KEY in table.stdout
    assert "1 stopped" in table.stderr
    with closing(FolderLock(RunFolder(run))):
        (status,) = lines(flyball("status", "--json"))
        refused(flyball("up", "--for", "1"), 1, "Another `flyball up` runs in")
    assert status["running"]
    (run / "up.lock").touch()
    told = flyball("status", "--json")
    assert (told.exit_code, json.loads(told.stdout)["running"]) == (3, False)
    shown = flyball("status")
    assert shown.exit_code == 3
    assert KEY in shown.stdout
    assert f"The run in {run} is not running; its last event came" in shown.stderr
    assert f"flyball --run {run} up" in shown.stderr
    assert "ahead of this machine's clock" not in flyball("status").stderr
    with closing(SqliteJournal(run / "journal.sqlite")) as journal:
        now_us = (SystemClock().now() - EPOCH) // timedelta(microseconds=1)
        frame = Frame.parse(frame_of([recording().events[0].envelope], producer="p", epoch=9, base=0))
        journal.append([seal(frame, first=journal.head + 1, recorded_us=now_us + 7_200_000_000, source="p")])
    assert "s ahead of this machine's clock" in flyball("status").stderr
    assert 7000 < json.loads(flyball("status", "--json").stdout)["clock_lead_seconds"] <= 7200


def test_status_of_a_killed_run_calls_no_daemon_ready(tmp_path: Path, flyball: Flyball) -> None:
    write_journal(tmp_path / "journal.sqlite", recording().events[:13])
    shown = flyball("status")
    assert (shown.exit_code, "1 gone" in shown.stderr) == (3, True)
    assert "ready" not in shown.stdout + shown.stderr


def test_replay_shows_before_it_does(run: Path, flyball: Flyball) -> None:
    preview = flyball("replay", "TRAINING_*", "--from", 5, "--to", 11, "--json")
    assert names(preview) == ["training.completed", "training.requested"]
    assert "1 TRAINING_COMPLETED, 1 TRAINING_REQUESTED" in preview.stderr


def test_emit_validates_without_a_broker(run: Path, flyball: Flyball, tmp_path: Path) -> None:
    data = json.dumps({"model": OLD, "reason": "worse"})
    (tmp_path / "data.json").write_text(data)
    words = ("emit", "ROLLBACK_REQUESTED", "--config-key", KEY, "--dry-run")
    (first,) = lines(flyball(*words, data))
    (second,) = lines(flyball(*words, f"@{tmp_path / 'data.json'}"))
    assert first["data"] == second["data"] == json.loads(data)
    assert first["id"] != second["id"]
    piped = invoke(*words, "-", "--count", "3", run=run, input=data)
    assert len({event["id"] for event in lines(piped)}) == 3


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["ROLLBACK_REQUESTED", json.dumps({"model": sha("m")}), "--config-key", KEY], 2, "reason: Field required"),
        (["ROLLBACK_REQUESTED", json.dumps({"model": sha("m"), "reason": ""}), "--config-key", KEY], 2, "reason"),
        (["ROLLBACK_REQUESTED", "nonsense", "--config-key", KEY], 2, " events schema ROLLBACK_REQUESTED"),
        (["ROLLBACK_REQUESTED", "@/nowhere", "--config-key", KEY], 2, "/nowhere cannot be read"),
        (["ROLLBACK_REQUESTED", json.dumps({"model": sha("m"), "reason": "r"})], 2, "name its config key"),
        (
            ["ROLLBACK_REQUESTED", json.dumps({"model": sha("m"), "reason": "r"}), "--config-key", "chess_2p"],
            4,
            "chess_2p",
        ),
        (["CLOCK_TICK", '{"period_seconds": 1}', "--config-key", KEY], 2, "whole system"),
        (["ROLLBACK", "{}"], 4, "no event type"),
    ],
)
def test_emit_refuses_what_is_no_event(run: Path, flyball: Flyball, words: list[str], code: int, said: str) -> None:
    refused(flyball("emit", *words, "--dry-run"), code, said)


def test_config_show_tells_where_values_come_from(tmp_path: Path, flyball: Flyball) -> None:
    (tmp_path / "flyball.toml").write_text("seed = 5\n")
    (shown,) = lines(flyball("config", "show", "--json"))
    assert shown["seed"] == {"value": 5, "origin": "flyball.toml"}
    assert shown["min_quality"]["origin"] == "default"
    assert any(line.split() == ["seed", "5", "flyball.toml"] for line in flyball("config", "show").stdout.splitlines())
    assert flyball("config", "check").exit_code == 0
    (tmp_path / "flyball.toml").write_text("sead = 5\n")
    refused(flyball("config", "check"), 2, "Did you mean seed?")


def test_the_catalogue_and_daemons_are_listed(flyball: Flyball) -> None:
    assert len(lines(flyball("events", "list", "--json"))) == len(CATALOGUE)
    assert len(flyball("events", "list").stdout.splitlines()) == len(CATALOGUE)
    schema = json.loads(flyball("events", "schema", "MODEL_PROMOTED").stdout)
    assert "evidence" in schema["properties"]
    assert "specversion" in json.loads(flyball("events", "schema", "MODEL_PROMOTED", "--whole").stdout)["properties"]
    assert lines(flyball("daemon", "list", "--json"))[0]["name"] == "broker"
    assert flyball("daemon", "list").stdout.startswith("broker")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script(flyball: Flyball, shell: str) -> None:
    assert "_FLYBALL_COMPLETE" in flyball("completion", shell).stdout


def test_event_names_are_completed(run: Path) -> None:
    environment = {
        **os.environ,
        "_FLYBALL_COMPLETE": "bash_complete",
        "COMP_WORDS": "flyball tail model_p",
        "COMP_CWORD": "2",
    }
    program = "from flyball.app.cli import main; main(prog_name='flyball')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split() == ["plain,MODEL_PROMOTED"]


def test_commands_name_the_copy_of_a_lost_journal(tmp_path: Path) -> None:
    copy = tmp_path / "journal.sqlite.rescued"
    copy.touch()
    for command in ("status", "doctor"):
        refused(invoke(command, run=tmp_path), 3, f"mv {copy} {tmp_path / 'journal.sqlite'}")


@pytest.fixture
def halted_broker(run: Path) -> Iterator[int]:
    """Halt a process that listens at the broker's address; return its id."""
    code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print(flush=True)"
    command = [sys.executable, "-c", f"{code}; sys.stdin.read()", str(run / "bus.sock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        yield process.pid
        process.kill()


def test_status_names_a_broker_that_is_halted(flyball: Flyball, halted_broker: int) -> None:
    """The hint is the command that lets it go on."""
    shown = succeeded(flyball("status"))
    last = show_time(recording().events[-1].recordedtime)
    named = f"WARNING: The broker (process {halted_broker}) does not answer; it recorded its last event at {last}."
    assert f"{named} Its process is halted. Let it go on: kill -CONT {halted_broker}" in shown.stderr
    assert f"(process {halted_broker}) does not answer. Its process is halted." in flyball("doctor").stdout


async def test_watch_shows_a_halted_broker_as_silent(
    run: Path, halted_broker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "SILENCE_SECONDS", 0.2)
    place, recorded, board = locate_run(run), recording(), Board()
    recorded.add(DaemonStarted(daemon=BROKER, node="laptop", pid=halted_broker, version="0.1.0"))
    board.feed(recorded.events)
    watch = BrokerWatch(place, place.load(), 0.15, "top")
    await watch.look()
    assert (watch.running, watch.is_silent, watch.trouble) == (True, False, ""), "it may only be busy"
    await watch.look()
    await watch.close()
    assert f"(process {halted_broker})" in watch.trouble
    states = {daemon.daemon: daemon.state for daemon in watch.status(board).daemons}
    assert states == {"broker": "silent", "training": "stopped"}


def test_hint_about_a_current_model_names_the_option(run: Path, flyball: Flyball) -> None:
    """The hint is what was typed, with the option added."""
    refused = flyball("export", "current", run / "x.npz")
    assert refused.exit_code == 2
    assert f"flyball --run {run} export current {run / 'x.npz'} --config KEY" in refused.stderr


def test_eval_of_a_run_of_another_settings_file_names_the_option(tmp_path: Path, flyball: Flyball) -> None:
    """The run was begun with --config-file, so that its folder has no settings."""
    mine = {"key": "tiny_hex_2p", "game": "hex(board_size=4)", "players": 2}
    settings = RunSettings(configs=(GameConfig(**mine),))
    journal = Recording([])
    journal.add(RunConfigured(run_id="1", settings=settings.model_dump(mode="json")))
    write_journal(tmp_path / "journal.sqlite", journal.events)
    words = ("eval", "--config", "tiny_hex_2p", "--model", "random", "--games", "2")
    refused = invoke(*words, run=tmp_path)
    assert refused.exit_code == 2
    assert "plays tiny_hex_2p, which is in another settings file" in refused.stderr
    assert f"flyball --run {tmp_path} {' '.join(words)} --config-file FILE" in refused.stderr
    near = invoke("eval", "--config", "tiny_hex_p", run=tmp_path)
    assert (near.exit_code, "Did you mean tiny_hex_2p?" in near.stderr) == (4, True)
    shipped = invoke("eval", "--config", "heart_4p", run=tmp_path)
    assert "Did you mean hearts_4p?" in shipped.stderr
    with pytest.raises(FlyballError) as error:
        evaluate("random", "tiny_hex_2p", run=tmp_path)
    assert error.value.hint == "Name that file, too: config_file."


def test_config_check_shows_sizes_in_one_kind_of_unit(flyball: Flyball) -> None:
    """A bound of 50 GiB, the default, is 54 GB."""
    shown = flyball("config", "check").stderr
    assert re.search(r"Expected size of the store: .*tic_tac_toe_2p [\d.]+ [kM]B, .*; the bound is 54 GB\.", shown)
