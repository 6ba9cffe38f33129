"""Compare promotion gates by strength after equal processor time, with several seeds.

Each arm is a pair of hypotheses for ``feedback.lifecycle``. For each seed and arm ``flyball up`` runs in a folder of
its own until its processes have used a number of processor seconds; wall time would depend on the neighbours. Then the
champions of all runs play a round robin, and the arms are compared seed by seed: runs of one seed begin with the same
network. Runs that have ended are not repeated, so a study can be broken off and continued; delete the folder of the run
that was broken off. The daemons' start alone takes some 20 seconds of a processor.

    python tests/benchmarks/gate_study.py --folder /tmp/gates --cpu-seconds 300 --seeds 5

With ``--errors N`` it plays no games. It draws N gates of candidates of known strengths, and prints how many pass,
after how many games and rounds.

    python tests/benchmarks/gate_study.py --errors 2000 --games 100
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from flyball.app.config import GAMES, RunFolder, RunSettings
from flyball.app.config.feedback import LifecycleSettings
from flyball.app.core import expected_score, gsprt_llr, sprt_verdict
from flyball.app.events import ModelPromoted, PromotionRejected
from flyball.app.journal import SqliteJournalReader, history
from flyball.app.league.pool import rate
from flyball.app.league.totals import PairTotals, pair_totals
from flyball.app.play.gauntlet import BatchResult, BatchSpec, GameBatch, Opponent
from flyball.app.play.match_statistics import match_statistics
from flyball.app.play.matches import batch as play_batch
from flyball.app.status.league import LEAGUES_READ, read_leagues
from flyball.app.store import FileStore

ARMS = {"none": (-2000.0, -1000.0), "not 40 worse": (-40.0, 0.0), "not 80 worse": (-80.0, 0.0), "better": (0.0, 35.0)}
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
GATES = "[feedback.lifecycle]\nelo0 = {}\nelo1 = {}\n"


def processor_seconds(process: int) -> float:
    """Return the processor seconds of a process and its descendants. Descendants that have ended are included."""
    parents, ticks = dict[int, int](), dict[int, int]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended since
        parents[int(folder.name)], ticks[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    family = {process}
    while grown := {child for child, parent in parents.items() if parent in family} - family:
        family |= grown
    return sum(ticks.get(member, 0) for member in family) / TICKS_PER_SECOND


def play(folder: Path, key: str, seed: int, arm: str, cpu_seconds: float) -> None:
    """Run the loop in a folder until its processor time is used."""
    folder.mkdir(parents=True)
    (folder / "flyball.toml").write_text(GATES.format(*ARMS[arm]))
    words = ["-m", "flyball.app.cli", "--run", str(folder), "up", "--seed", str(seed), "--config", key]
    with (folder / "up.txt").open("w") as log:
        loop = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log)
        try:
            while loop.poll() is None and processor_seconds(loop.pid) < cpu_seconds:
                time.sleep(1)
        finally:
            loop.send_signal(signal.SIGINT)
            loop.wait()
    (folder / "done").touch()


def outcome(folder: Path, key: str) -> dict[str, object]:
    """Return a run's champion and its gate's decisions."""
    reader = SqliteJournalReader(RunFolder(folder).journal)
    counts = {ModelPromoted: 0, PromotionRejected: 0}
    events = list(history(reader, types=LEAGUES_READ))
    for event in events:
        if event.subject == key and type(event.data) in counts and event.data.step > 0:
            counts[type(event.data)] += 1
    champion = read_leagues(events)[key].league.champion
    return {"champion": champion, "promoted": counts[ModelPromoted], "rejected": counts[PromotionRejected]}


def round_robin(store: Path, key: str, models: list[str], games: int) -> Iterator[PairTotals]:
    """Play all models against each other."""
    config = RunSettings(configs=(GAMES[key],)).config(key)
    for one, other in combinations(models, 2):
        opponent = Opponent(name="member_1", kind="model", model=other, games=games)
        batch = GameBatch(opponent=opponent, first=0, games=games)
        spec = BatchSpec(store=store, config=config, model=one, batch=batch, seed=20_261_123)
        played = BatchResult.model_validate(play_batch(spec.model_dump(mode="json"), lambda _: None))
        pair = pair_totals(one, other, match_statistics(played.games, config.players))
        assert pair is not None  # whole rotations are played
        yield pair


def report(runs: dict[tuple[int, str], dict[str, object]], strengths: dict[str, float]) -> dict[str, object]:
    """Compare the arms with the gate at [-40, 0] Elo. They are compared seed by seed."""
    base, found = "not 40 worse", {}
    for arm in ARMS:
        own = {seed: strengths[run["champion"]] for (seed, name), run in runs.items() if name == arm}
        gains = [elo - strengths[runs[seed, base]["champion"]] for seed, elo in own.items() if (seed, base) in runs]
        found[arm] = {
            "seeds": len(own),
            "promoted": sum(run["promoted"] for (_, name), run in runs.items() if name == arm),
            "rejected": sum(run["rejected"] for (_, name), run in runs.items() if name == arm),
            "elo_over_base": mean(gains) if gains else None,
            "stderr": stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else None,
        }
    return found


def drawn_gate(elo: float, games: int, limits: LifecycleSettings, rng: np.random.Generator) -> tuple[bool, int]:
    """Return whether a candidate passes a drawn gate without draws, and the number of rounds of so many games."""
    counts, rounds = np.zeros(5, dtype=int), 0
    while True:
        points = rng.random((games // 2, 2)) < expected_score(elo)
        counts += np.bincount(2 * points.sum(axis=1), minlength=5)
        rounds += 1
        llr = gsprt_llr(counts.tolist(), limits.elo0, limits.elo1)
        verdict = sprt_verdict(llr, limits.alpha, limits.beta)
        if verdict != "continue" or rounds * games >= limits.max_games:
            return verdict == "accept", rounds


def errors(gates: int, games: int) -> Iterator[dict[str, float]]:
    """Yield the share of candidates of each strength that pass, and the mean numbers of games and rounds."""
    for elo in (100.0, 50.0, 0.0, -20.0, -40.0, -60.0, -80.0, -100.0, -120.0, -150.0):
        rng, limits = np.random.default_rng(1), LifecycleSettings()
        passed, rounds = zip(*(drawn_gate(elo, games, limits, rng) for _ in range(gates)), strict=True)
        yield {"elo": elo, "promoted": mean(passed), "games": games * mean(rounds), "rounds": mean(rounds)}


def main() -> None:
    """Run the study and write JSON lines. There is a line for each run, then the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--errors", type=int, metavar="N", help="draw N gates of each strength instead")
    parser.add_argument("--config", default="connect_four_2p", choices=list(GAMES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cpu-seconds", type=float, default=300.0)
    parser.add_argument("--games", type=int, default=200, help="of each pair of champions, or of each round of a gate")
    asked = parser.parse_args()
    if asked.errors:
        for row in errors(asked.errors, asked.games):
            sys.stdout.write(f"{json.dumps(row)}\n")
            sys.stdout.flush()
        return
    if asked.folder is None:
        parser.error("--folder is missing")
    runs = {}
    for seed in range(1, asked.seeds + 1):
        for arm in ARMS:
            folder = asked.folder / f"{seed}-{arm.replace(' ', '-')}"
            if not (folder / "done").exists():
                play(folder, asked.config, seed, arm, asked.cpu_seconds)
            runs[seed, arm] = outcome(folder, asked.config)
            sys.stdout.write(f"{seed} {arm} {json.dumps(runs[seed, arm])}\n")
            sys.stdout.flush()
    champions = FileStore(asked.folder / "champions")
    for (seed, arm), run in runs.items():
        folder = asked.folder / f"{seed}-{arm.replace(' ', '-')}"
        champions.put(FileStore(RunFolder(folder).store).get(run["champion"]))
    models = sorted({run["champion"] for run in runs.values()})
    ratings = rate(round_robin(asked.folder / "champions", asked.config, models, asked.games), anchors={})
    found = report(runs, dict(zip(ratings.agents, ratings.elo, strict=True)))
    sys.stdout.write(f"{json.dumps(found, indent=1)}\n")


if __name__ == "__main__":
    main()
