"""Compare configurations of another version and this one, at equal processor time.

Run with ``python tests/benchmarks/bench_configurations.py CHECKOUT [--seconds 60] [--seed 1] [KEY ...]``. CHECKOUT is a
folder of the other version, for instance of ``git worktree add``. Both train by their defaults, without early stopping,
for as many iterations as take that long, a clone of a bot not counted. Then the last policies play each other and the
bots. A row of Markdown for each configuration has the scores with 95% intervals, ties half.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app.config import GAMES, GameConfig
from app.core import HEURISTIC

HERE = Path(__file__).parents[2]
PILOT = 6
"""Iterations that measure the time of one."""

ALL_ITERATIONS = ("training.early_stopping=false", "training.final_games=0", "logging.log_level=WARNING")


def flyball(code: Path, *words: object) -> str:
    """Run a command of a version; return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "app.cli", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def train(code: Path, key: str, seed: int, iterations: int, folder: Path, *changes: str) -> float:
    """Train and return the processor seconds of an iteration."""
    settings = (f"collection.num_iterations={iterations}", *ALL_ITERATIONS, *changes)
    words = [word for setting in settings for word in ("--set", setting)]
    flyball(code, "train", key, "--output", folder, "--seed", seed, *words)
    with (folder / "training_log.csv").open() as log:
        rows = list(csv.DictReader(log))[2:]  # without the first policy and the first iteration, which compiles
    return sum(float(row["processor_seconds"]) for row in rows) / len(rows)


def trained(code: Path, key: str, seed: int, seconds: float, folder: Path) -> int:
    """Train for about ``seconds`` of processor time; return the number of iterations. Evaluations are not counted."""
    pilot = train(code, key, seed, PILOT, folder / "pilot", "training.eval_games=2", "collection.initial_policy=random")
    iterations = max(2, round(seconds / pilot))
    at_its_end = (f"training.eval_frequency={iterations}", "training.eval_games=400")
    train(code, key, seed, iterations, folder / "run", *at_its_end)
    return iterations


def scores(key: str, model: Path, opponents: list[str], games: int) -> Iterator[str]:
    """Yield the score against each opponent, with its interval."""
    said = flyball(HERE, "eval", "--config", key, "--model", model, "--against", ",".join(opponents), "--games", games)
    results: list[dict[str, Any]] = json.loads(said)["results"]
    for result in results:
        score = result["score"]
        yield f"{score['mean']:.3f} [{score['lower']:.3f}, {score['upper']:.3f}]"


def row(config: GameConfig, checkout: Path, seconds: float, seed: int, games: int) -> str:
    """Train a configuration under both versions; return a row of the table."""
    bots = ["random", *([HEURISTIC] if HEURISTIC in config.builtins else [])]
    with TemporaryDirectory() as scratch:
        folders = {"before": Path(scratch) / "before", "after": Path(scratch) / "after"}
        iterations = [
            trained(code, config.key, seed, seconds, folder)
            for code, folder in zip((checkout, HERE), folders.values(), strict=True)
        ]
        before, after = (folder / "run" for folder in folders.values())
        (duel,) = scores(config.key, after, [str(before)], games)
        found = [" / ".join(scores(config.key, run, bots, games)) for run in (before, after)]
    return f"| {config.key} | {iterations[0]} / {iterations[1]} | {duel} | {found[0]} | {found[1]} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("keys", nargs="*", default=list(GAMES), metavar="KEY")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--games", type=int, default=1000)
    asked = parser.parse_args()
    print("| configuration | iterations before / after | after v. before | before v. bots | after v. bots |")  # noqa: T201
    print("| --- | --- | --- | --- | --- |")  # noqa: T201
    for key in asked.keys:
        print(row(GAMES[key], asked.checkout, asked.seconds, asked.seed, asked.games), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
