"""Engines as players: moves, faults, restarts and the end of processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from flyball.app.config import GAMES, BotSettings, Compute
from flyball.app.core import ConfigKey
from flyball.app.games import open_table
from flyball.app.games.notation import NoNotation
from flyball.app.play import engine_process
from flyball.app.play.engine_process import EngineProcess
from flyball.app.play.engines import EngineFailed, EnginePlayer
from flyball.app.play.own_players import Turn
from flyball.app.play.players import PlayerCache, RandomPlayer
from flyball.app.play.rollout import Rollout, Schedule
from flyball.app.store import MemoryStore

GO = GAMES[ConfigKey("go7_2p")]
PASS = 49
SCRIPT = str(Path(__file__).parents[1] / "support" / "scripted_engine.py")


class Scripted:
    def __init__(self, folder: Path, mode: str, **settings: Any) -> None:
        self.starts = folder / "starts"
        command = (sys.executable, SCRIPT, mode, str(self.starts))
        bot = BotSettings(command=command, protocol="gtp", **settings)
        self.player = EnginePlayer("scripted", bot, GO, str(folder))

    def moves(self, games: int = 1) -> list[int]:
        table, slots = open_table(GO, games), np.arange(games)
        table.reset(slots, slots.tolist())
        return self.player.decide(Turn(*table.observe(slots), table, slots), np.full(games, 0.5)).tolist()

    def pids(self) -> list[int]:
        return [int(line) for line in self.starts.read_text().split()]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def ends(pid: int) -> bool:
    """Wait for the end of a process; a killed one takes a moment."""
    while is_running(pid):
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("mode", ["dies-once", "illegal-once", "floods-once", "hangs-once"])
def test_engine_that_fails_once_is_restarted(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_process, "_MOST_BYTES", 1 << 18)
    engine = Scripted(tmp_path, mode, answer_seconds=4.0 if mode == "hangs-once" else 60.0)
    assert engine.moves(2) == [PASS, PASS]
    first, second = engine.pids()
    assert ends(first)
    assert is_running(second)


@pytest.mark.parametrize(
    ("mode", "seconds", "why"),
    [
        ("chatters", 1.0, "did not answer .* within 1 s|wrote .* and no answer"),  # by the speed of the machine
        ("cat", 0.2, "did not answer '1 protocol_version' within 0.2 s"),
    ],
)
def test_engine_that_writes_no_answer_is_too_late(tmp_path: Path, mode: str, seconds: float, why: str) -> None:
    """An engine of another protocol, which repeats the question, too."""
    engine = Scripted(tmp_path, mode, answer_seconds=seconds)
    if mode == "cat":
        bot = BotSettings(command=("cat",), protocol="gtp", answer_seconds=seconds)
        engine.player = EnginePlayer("talker", bot, GO, str(tmp_path))
    with pytest.raises(EngineFailed, match=why):
        engine.moves()
    assert mode == "cat" or all(map(ends, engine.pids()))


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("dies", r"3 times in a row, at last because it exited with code 1:\nout of stones"),
        ("illegal", r"3 times in a row, at last because it answered 'z99', which is not a legal move after ''"),
        ("refuses", r"3 times in a row, at last because it refused 'protocol_version': unknown command"),
    ],
)
def test_engine_that_fails_repeatedly_is_given_up(tmp_path: Path, mode: str, why: str) -> None:
    engine = Scripted(tmp_path, mode)
    with pytest.raises(EngineFailed, match=rf"bot scripted failed {why}") as caught:
        engine.moves()
    assert caught.value.hint.startswith("Try it by hand: ")
    assert len(engine.pids()) == 3
    assert all(map(ends, engine.pids()))


def test_interrupted_engine_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the late answer would count as that to the next question."""

    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    engine = Scripted(tmp_path, "well")
    assert engine.moves(3) + engine.moves(2) == [PASS] * 5
    assert len(engine.pids()) == 1
    with monkeypatch.context() as patch:
        patch.setattr(EngineProcess, "_lines", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.moves()
    assert engine.moves() == [PASS]
    assert len(engine.pids()) == 2


def test_engine_ends_at_once_if_a_child_has_left_it(tmp_path: Path) -> None:
    engine = Scripted(tmp_path, "leaves")
    assert engine.moves() == [PASS]
    engine.player.close()
    first, left = engine.pids()
    assert ends(first)
    assert is_running(left), "nobody waited for it"
    os.kill(left, signal.SIGKILL)


def test_engine_that_resigns_plays_a_legal_move(tmp_path: Path) -> None:
    (move,) = Scripted(tmp_path, "resigns").moves()
    assert move == 25  # the middle of 50 legal actions


def test_missing_program_or_notation_is_an_error_at_once(tmp_path: Path) -> None:
    bot = BotSettings(command=("no-such-engine",), protocol="gtp")
    with pytest.raises(EngineFailed, match=r"no program 'no-such-engine'.*games.go7_2p.bots.x.command"):
        EnginePlayer("x", bot, GO, str(tmp_path))
    with pytest.raises(NoNotation, match=r"speak gtp are not asked about hex.*go by gtp, chess by uci, shogi by usi"):
        EnginePlayer("x", bot.replace(command=("cat",)), GAMES[ConfigKey("hex7_2p")], str(tmp_path))


def test_engine_ends_with_its_player(tmp_path: Path) -> None:
    engine = Scripted(tmp_path, "well")
    engine.moves()
    (pid,) = engine.pids()
    assert is_running(pid)
    del engine.player
    assert ends(pid)


OWNER = """
import sys, time
from flyball.app.play.engine_process import EngineProcess
from flyball.app.play.engine_protocols import Exchange
engine = EngineProcess(sys.argv[1:], ".", 60.0)
engine.exchange(Exchange(("1 name",), ("=1",), lambda lines: lines[-1]))
print("asked", flush=True)
time.sleep(600)
"""


def test_engine_dies_with_a_killed_process(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    command = [sys.executable, "-c", OWNER, sys.executable, SCRIPT, "well", str(starts)]
    owner = subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"asked\n"
        (pid,) = [int(line) for line in starts.read_text().split()]
        assert is_running(pid)
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()
    assert ends(pid)


def test_engine_plays_whole_games_from_the_cache(tmp_path: Path) -> None:
    bot = BotSettings(command=(sys.executable, SCRIPT, "well", "starts"), protocol="gtp")
    config, cache = GO.replace(bots={"scripted": bot}), PlayerCache()
    spec, compute = open_table(config, 0).spec, Compute(settings_folder=str(tmp_path))
    player = cache.load(MemoryStore(), "scripted", spec, compute, config)
    assert cache.load(MemoryStore(), "scripted", spec, compute, config) is player
    seating = np.array([[0, 1], [1, 0]], dtype=np.int8)
    schedule = Schedule([1, 2], seating, (1.0, 1.0), seed=3)
    outcomes = Rollout(open_table(config, 2), [player, RandomPlayer()], schedule).run()
    assert all(PASS in history for history in outcomes.histories)
    assert len((tmp_path / "starts").read_text().split()) == 1
    changed = config.replace(bots={"scripted": bot.replace(seconds=1.0)})
    assert cache.load(MemoryStore(), "scripted", spec, compute, changed) is not player
