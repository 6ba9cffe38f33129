"""A training script of somebody else: learns rock, paper, scissors, and writes tables and TensorBoard's files."""

import csv
import sys
import time
from pathlib import Path

import numpy as np
from torch.utils.tensorboard import SummaryWriter

PAYOFF = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
FIXED = {"Uniform": np.ones(3) / 3, "Rocky": np.array([0.7, 0.2, 0.1])}


def play(first, second, games, rng):
    """Return games won, drawn and lost."""
    outcomes = PAYOFF[rng.choice(3, games, p=first), rng.choice(3, games, p=second)]
    return [int((outcomes == value).sum()) for value in (1, 0, -1)]


def main(folder, iterations, pause):
    rng, logits = np.random.default_rng(0), np.zeros(3)
    writer, best = SummaryWriter(str(folder / "tb")), None
    folder.mkdir(exist_ok=True)
    with (folder / "results.csv").open("a", newline="") as results, (folder / "best.csv").open("a") as promoted:
        table = csv.writer(results)
        table.writerow(["iteration", "checkpoint", "opponent", "won", "drawn", "lost"])
        promoted.write("iteration,checkpoint\n")
        for iteration in range(1, iterations + 1):
            policy, name = np.exp(logits) / np.exp(logits).sum(), f"ckpt_{iteration:04}"
            writer.add_scalar("train/loss", -float(policy @ PAYOFF @ FIXED["Rocky"]), iteration)
            writer.add_scalar("train/entropy", -float(policy @ np.log(policy)), iteration)
            writer.flush()
            for opponent, strategy in FIXED.items():
                table.writerow([iteration, name, opponent, *play(policy, strategy, 200, rng)])
            results.flush()
            if best is None or policy @ PAYOFF @ FIXED["Rocky"] > best + 0.05:
                best = policy @ PAYOFF @ FIXED["Rocky"]
                promoted.write(f"{iteration},{name}\n")
                promoted.flush()
            logits = logits + (0.3 if iteration < 12 else 0.0) * (PAYOFF @ FIXED["Rocky"])
            time.sleep(pause)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
