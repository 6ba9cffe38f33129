"""Measure false alarms of the quarantine, and its delay.

    python tests/benchmarks/bench_nodes.py [SEEDS]

Prints a row for each noise and size of a cluster: a week for each seed.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from node_deliveries import false_alarms_and_delays

CLUSTERS = ((36, 12), (4, 5), (2, 1))
NOISES = (0.02, 0.05, 0.1, 0.15)


def main(seeds: int) -> None:
    """Print a table in Markdown."""
    sys.stdout.write(
        "| nodes | configurations | noise | false alarms | shards of sound nodes | a node and year | noticed after |\n"
    )
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    for nodes, configs in CLUSTERS:
        for noise in NOISES:
            found = [
                false_alarms_and_delays(
                    np.random.default_rng(seed), days=7, noise_sd=noise, nodes=nodes, configs=configs
                )
                for seed in range(seeds)
            ]
            alarms, shards = sum(one[0] for one in found), sum(one[1] for one in found)
            delays = [delay for one in found for delay in one[2]]
            years = seeds * nodes * 7 / 365
            after = f"{np.median(delays):.0f} shards, 90%: {np.quantile(delays, 0.9):.0f} (n={len(delays)})"
            sys.stdout.write(
                f"| {nodes} | {configs} | {noise} | {alarms} | {shards:,} | {alarms / years:.2g} | {after} |\n"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
