"""Run folders of earlier versions, which every later version must continue.

Each is a small real run, packed: settings, journal, saved state, outboxes and the store, named for the commit that made
it. Beside it are the facts that this commit showed of it. Before a release, keep a folder of its version with::

    python tests/support/old_runs.py
"""

import json
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from running_loop import FLYBALL, running_loop

FOLDER = Path(__file__).parents[1] / "replay" / "old_runs"
KEPT = ("flyball.toml", "journal.sqlite", "outbox", "state", "store")
"""Files that a start makes again."""

LOOPS = 2
GAMES = 60
"""Games of an evaluation."""

SMALL = """
seed = 7
configs = ["tic_tac_toe_2p", "oh_hell_3p", "connect_four_2p"]
tick_seconds = 1.0
[deployment]
heartbeat_seconds = 1.0
drain_seconds = 3.0
[feedback.lifecycle]
elo0 = -200.0
max_games = 100
[games.tic_tac_toe_2p]
network = { hidden = [8] }
rows_per_training = 256
selfplay = { games_per_request = 64 }
evaluation = { random_games = 40, model_games = 20, anchor_games = 20 }
[games.oh_hell_3p]
network = { hidden = [8] }
rows_per_training = 256
selfplay = { games_per_request = 12 }
evaluation = { random_games = 42, model_games = 21, anchor_games = 21 }
[games.connect_four_2p]
network = { kind = "windows", hidden = [8] }
search = { simulations = 4 }
rows_per_training = 512
replay_rows = 1024
selfplay = { games_per_request = 32 }
evaluation = { random_games = 40, model_games = 20, anchor_games = 20 }
"""
"""A game without chance, one for three with hidden cards, one by search; models of a few kilobytes."""

CONFIG_FACTS = (
    *("games", "rows", "step", "elo", "elo_stderr", "promotions", "rejections", "rollbacks", "loops", "model"),
    *("blocked", "paused", "boost", "diverged"),
)
MEMBER_FACTS = ("agent", "kind", "champion", "step", "parent", "elo", "elo_stderr", "games")
EVAL_FACTS = ("games", "wins", "draws", "losses", "distinct_games", "mean_length")

Show = Callable[..., str]
"""Returns what a command of ``flyball`` writes, given its words."""


def unpack(name: str, into: Path) -> Path:
    """Unpack the run folder of the version ``name``, and return it."""
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(into, filter="data")
    return into / "run"


def facts_of(show: Show) -> dict[str, Any]:
    """Return what a version shows of a run that is stopped: status, league, evaluations."""
    status = json.loads(show("status", "--json"))
    configs = {one["key"]: {name: one[name] for name in CONFIG_FACTS} for one in status["configs"]}
    league, evaluations = {}, {}
    for key in configs:
        members = json.loads(show("league", key, "--json"))[key]["members"]
        league[key] = [{name: one[name] for name in MEMBER_FACTS} for one in members]
        words = ("eval", "--config", key, "--against", "random", "--games", str(GAMES), "--seed", "1")
        (result,) = json.loads(show(*words))["results"]
        evaluations[key] = {name: result[name] for name in EVAL_FACTS}
    return {
        "position": status["position"],
        "configs": configs,
        "league": league,
        "evaluations": evaluations,
    }


def record(name: str) -> Path:
    """Run all daemons until some loops of each game have closed, pack the folder, and keep its facts."""
    packed = FOLDER / f"{name}.tar.xz"
    packed.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        with running_loop(run, SMALL) as loop:

            def closed() -> bool:
                counts = Counter(event.subject for event in loop.loops())
                return len(counts) == SMALL.count("[games.") and min(counts.values()) >= LOOPS

            loop.wait_for("loops of each game", closed, seconds=900)
        pack(run, packed)
    return packed


def pack(run: Path, packed: Path) -> None:
    """Pack a stopped run's folder, and write the facts that this version shows of it."""
    with tarfile.open(packed, "w:xz") as archive:
        for kept in KEPT:
            archive.add(run / kept, f"run/{kept}", filter=_essential)

    def show(*words: str) -> str:
        command = [FLYBALL, "--run", str(run), *words]
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout  # 3: the run is stopped

    assert json.loads(show("replay", "--check", "--json"))["differing"] == 0
    facts = json.dumps(facts_of(show), indent=1)
    packed.with_name(packed.name.replace(".tar.xz", ".json")).write_text(facts + "\n")


def _essential(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, "", ""
    return None if entry.name.endswith(".lock") else entry


if __name__ == "__main__":
    commit = subprocess.check_output(["git", "rev-parse", "--short=8", "HEAD"], text=True).strip()
    sys.stdout.write(f"{record(commit)}\n")
