"""A training script of somebody else: it climbs a hill, plays matches, and writes tables and TensorBoard's files."""

import csv
import sys
import time
from pathlib import Path

import numpy as np
from torch.utils.tensorboard import SummaryWriter

FIXED = {"RandomPlayer": 0.0, "OldBot": 1.5}


def play(first, second, games, rng):
    """Return games won, drawn and lost by players of these strengths."""
    wins = rng.random(games) < 1 / (1 + np.exp(second - first))
    drawn = rng.random(games) < 0.1
    return [int((wins & ~drawn).sum()), int(drawn.sum()), int((~wins & ~drawn).sum())]


def main(folder, iterations, pause, bad_from):
    folder.mkdir(exist_ok=True)
    rng, weights, target, best = np.random.default_rng(0), np.zeros(8), np.ones(8), None
    writer = SummaryWriter(str(folder / "tb"))
    with (folder / "results.csv").open("a", newline="") as file, (folder / "best.jsonl").open("a") as promoted:
        results = csv.writer(file)
        results.writerow(["iteration", "checkpoint", "opponent", "won", "drawn", "lost"])
        for step in range(1, iterations + 1):
            strength = 3 - 3 * ((weights - target) ** 2).mean() - 2 * (step >= bad_from)
            name = f"checkpoints/{step:04}.npz"
            writer.add_scalar("loss", ((weights - target) ** 2).mean(), step)
            writer.flush()
            players = FIXED | ({} if best is None else {best[0]: best[1]})
            for opponent, other in players.items():
                results.writerow([step, name, opponent, *play(strength, other, 200, rng)])
            file.flush()
            if step < 10 or step == bad_from:  # it trusts its loss
                best = (name, strength)
                promoted.write(f'{{"event": "new best", "checkpoint": "{name}", "step": {step}}}\n')
                promoted.flush()
            weights = weights + 0.3 * (target - weights)
            time.sleep(pause)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
