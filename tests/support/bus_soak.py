"""Many seeds of the simulated bus, or one with all its steps (ADR-041)::

python tests/support/bus_soak.py --first 20000 --seeds 1000
python tests/support/bus_soak.py --seed 17
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from bus_rig import print_line
from bus_simulation.simulation import Failure, Outcome, Simulation

CHUNK = 50
SHOWN_FAILURES, REPORTED = 3, 1000


def outcomes(seeds: range) -> tuple[list[Outcome], list[tuple[str, str]]]:
    """Run seeds; return the outcomes, and each failure with and without its latest steps."""
    done, failures = [], []
    for seed in seeds:
        try:
            done.append(Simulation(seed).run())
        except Failure as failure:
            failures.append((str(failure), failure.summary))
    return done, failures


def soak(first: int, count: int, processes: int) -> Iterator[tuple[list[Outcome], list[tuple[str, str]]]]:
    """Run seeds in several processes; yield the results of each ``CHUNK``."""
    parts = [range(at, min(at + CHUNK, first + count)) for at in range(first, first + count, CHUNK)]
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(outcomes, parts)


def main() -> None:
    """Run the seeds of the command line. The status is 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="run this seed alone, and print all its steps")
    options = parser.parse_args()
    if options.seed is not None:
        simulation = Simulation(options.seed, traced=None)
        outcome = simulation.run()
        print_line(f"{simulation.world.trace()}\n{outcome}")
        return
    began, events, drained, struck, seeds, failures = time.monotonic(), 0, 0.0, Counter[str](), 0, 0
    for done, failed in soak(options.first, options.seeds, options.processes):
        seeds += len(done) + len(failed)
        for outcome in done:
            events, drained, struck = events + outcome.events, max(drained, outcome.drained_s), struck + outcome.struck
        if not seeds % REPORTED:
            print_line(f"{seeds} seeds, {failures} failed")
        for failure, summary in failed:
            failures += 1
            print_line(failure if failures <= SHOWN_FAILURES else summary)
    rate = seeds / (time.monotonic() - began)
    print_line(f"{seeds} seeds, {failures} failed; {events} events, at rest within {drained:.1f} s of the last fault.")
    print_line(f"{rate:.1f} seeds a second in {options.processes} processes.")
    for kind, times in struck.most_common():
        print_line(f"{times:8}  {kind}")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
